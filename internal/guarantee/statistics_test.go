package guarantee

import (
	"fmt"
	"testing"
)

// states are those in which tables and plans may be when programs make calls. Each prepares
// a database in which the log is still empty, and returns the session that makes the calls
// once the log is full.
var states = map[string]func(s *session, calls func(s *session), fill func()) *session{
	"never analysed": func(s *session, _ func(*session), fill func()) *session {
		fill()
		return s.another()
	},
	"analysed while empty": func(s *session, _ func(*session), fill func()) *session {
		s.exec("analyze")
		fill()
		return s.another()
	},
	"vacuumed while empty": func(s *session, _ func(*session), fill func()) *session {
		s.exec("vacuum (analyze)")
		fill()
		return s.another()
	},
	"analysed with three events": func(s *session, _ func(*session), fill func()) *session {
		s.publishMany(3)
		s.exec("analyze")
		fill()
		return s.another()
	},
	"plans from before": func(s *session, calls func(*session), fill func()) *session {
		s.publishMany(3)
		s.exec("analyze")
		for range 7 { // a plan is kept from the sixth call on
			calls(s)
		}
		fill()
		return s
	},
	"analysed": func(s *session, _ func(*session), fill func()) *session {
		fill()
		s.exec("analyze")
		return s.another()
	},
}

// A call reads about as many rows as it returns, in each state of the statistics.
func TestCallsReadWhatTheyReturnInEachState(t *testing.T) {
	t.Parallel()
	const events, batch = 8000, 500
	calls := map[string]struct{ prepare, fill, call string }{
		"claim in order": {
			prepare: `select posthorn.define_group('default', 'keyed', '{"order": "key", "slots": 1}')`,
			call:    "select count(*) from posthorn.claim('default', 'keyed', 'w', $1)",
		},
		"claim by subscription": {
			prepare: `select posthorn.define_group('default', 'wanted'), posthorn.subscribe('default', 'wanted', 'w', '{"type": "order.placed"}')`,
			call:    "select count(*) from posthorn.claim('default', 'wanted', 'w', $1)",
		},
		"claim": {
			prepare: "select posthorn.define_group('default', 'plain')",
			call:    "select count(*) from posthorn.claim('default', 'plain', 'w', $1)",
		},
		"settle failures": {
			prepare: "select posthorn.define_group('default', 'failing')",
			call:    claimAndFail("failing", false),
		},
		"settle deaths": {
			prepare: "select posthorn.define_group('default', 'failing')",
			call:    claimAndFail("failing", true),
		},
		"webhook_status": {
			prepare: `select posthorn.create_webhook('default', 'w' || n, '{"url": "https://example.org/"}') from generate_series(1, 50) n`,
			fill: `
				insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
				select g.namespace_id, w.group_id, w.name, n, 1, 'e', '{}', '{}', '{}', now(), 3, 'Not delivered'
				from posthorn.webhooks w join posthorn.groups g on g.id = w.group_id, generate_series(1, 400) n`,
			call: "select sum(dead_letters)::int from posthorn.webhook_status where $1 > 0",
		},
		"read_next_events": {
			prepare: `select posthorn.define_group('default', 'reader'), posthorn.subscribe('default', 'reader', 'w', '{"type": "order.placed"}')`,
			call:    "select count(*) from posthorn.read_next_events('reader', chunk_size => $1, peek => true)",
		},
	}
	for state, prepare := range states {
		for name, c := range calls {
			t.Run(fmt.Sprintf("%s, %s", name, state), func(t *testing.T) {
				t.Parallel()
				s := database(t)
				s.exec("select posthorn.tend()")
				s.exec("update posthorn.config set value = '1000' where key = 'poll_chunk_size'")
				s.exec(c.prepare)
				for _, table := range column[string](s, tables) {
					s.exec("alter table " + table + " set (autovacuum_enabled = off)")
				}
				caller := prepare(s,
					func(s *session) {
						s.exec("begin")
						value[int](s, c.call, batch)
						s.exec("rollback")
					},
					func() {
						s.exec("select count(posthorn.publish('default', 'order.placed', key => 'k')) from generate_series(1, $1)", events)
						if c.fill != "" {
							s.exec(c.fill)
						}
					})
				caller.exec("begin")
				before := value[int64](caller, totalRead)
				returned := value[int](caller, c.call, batch)
				read := value[int64](caller, totalRead) - before
				caller.exec("rollback")
				t.Logf("%d rows read for %d", read, returned)
				if returned < batch/2 {
					t.Fatalf("%d events returned, want %d", returned, batch)
				}
				if read > int64(12*max(batch, returned)) {
					t.Errorf("%d rows are read for %d", read, returned)
				}
			})
		}
	}
}

// claimAndFail is a call that claims events, and settles them as failures.
func claimAndFail(group string, permanent bool) string {
	return fmt.Sprintf(`
		with claimed as materialized (select * from posthorn.claim('default', '%s', 'w', $1)), settled as materialized (
			select posthorn.settle(min(c.lease), min(c.attempt), jsonb_agg(jsonb_build_object('event', c.event_id, 'error', 'no', 'permanent', %t)))
			from claimed c)
		select count(*) from claimed cross join settled`, group, permanent)
}

package guarantee

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The state of each event by itself. outbox_event must say the same without asking all events.
const askedOneByOne = `
	select e.id, x.at
	from posthorn.events e
	join posthorn.stream_relays() s on s.stream_id = e.stream_id and s.namespace_id = e.namespace_id
	left join lateral (
		select posthorn.relayed_row(s.readers, s.busy, s.relays, e.stream_id, e.id, e.xid, e.created_at) as key
		where e.id not in (select i from posthorn.leases l, unnest(l.ids) i where l.ids is not null)) k on true
	left join posthorn.relayed x on x.group_id = k.key[1] and x.stream_id = e.stream_id and x.first_id = k.key[2]`

// Seed 003.4: outbox_event finds owed events in few ranges of ids. Whatever a relay did, and wherever it was moved,
// each event is in the view once, and has a time if it was written.
func TestOutboxEventHasEachEventOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			s := database(t)
			s.of("old", 5)
			r := s.relay(first)
			streams := []string{"a", "b", "c"}
			for _, stream := range streams {
				s.of(stream, 1)
			}
			open := s.another()
			isOpen := false
			var clock time.Duration
			var inFlight []window
			for i := range 100 {
				stream := streams[random.IntN(3)]
				switch n := random.IntN(16); {
				case n < 3:
					s.of(stream, 1+random.IntN(4))
				case n == 3 && !isOpen:
					open.exec("begin")
					open.of(stream, 2)
					isOpen = true
				case n == 4 && isOpen:
					open.exec([]string{"commit", "rollback"}[random.IntN(2)])
					isOpen = false
				case n < 9:
					if w := r.take(1 + random.IntN(6)); len(w.events) > 0 {
						inFlight = append(inFlight, w)
					} else if w.lease != 0 {
						s.exec("select posthorn.settle($1, $2)", w.lease, w.attempt)
					}
				case n < 13 && len(inFlight) > 0:
					r.settleSome(inFlight[0], random)
					inFlight = inFlight[1:]
				case n == 13:
					s.exec([]string{"select posthorn.purge('default', 'out')", "select posthorn.redrive('default', 'out', '{\"limit\": 2}')"}[random.IntN(2)])
				case n == 14 && random.IntN(3) == 0:
					clock += time.Duration(random.IntN(3)) * time.Second
					s.turnClock(clock)
					s.exec("select posthorn.tend()")
				case n == 15 && random.IntN(3) == 0:
					inFlight = nil
					s.exec("select posthorn.seek('default', 'out', " + []string{"'-infinity'", "'infinity'", "posthorn.now() - interval '2 seconds'"}[random.IntN(3)] + ")")
					r.lead()
				case n == 15 && random.IntN(2) == 0:
					inFlight = nil
					s.exec("select posthorn.define_relay('default', 'out', $1::text::jsonb)", []string{`{"streams": ["a", "b"]}`, `{}`, `{"streams": ["c"]}`}[random.IntN(3)])
					r.lead()
				}
				const wrong = `select coalesce(string_agg(format('%s: %s, in the view %s %s', o.id, o.at, v.n, v.at), '; '), '')
					from (` + askedOneByOne + `) o full join (
						select id, count(*) as n, max(published_at) as at from posthorn.outbox_event group by id) v on v.id = o.id
					where v.n is distinct from 1 or o.at is distinct from v.at`
				if got := value[string](s, wrong); got != "" {
					t.Fatalf("after step %d: %s", i, got)
				}
			}
		})
	}
}

func (r *relay) lead() {
	r.t.Helper()
	r.epoch = value[int64](r.session, "select coalesce((posthorn.lead_relay($1, $2, '1 day')).term, 0)", r.group, r.owner)
}

// settleSome settles a window of which some events failed for good or were set aside.
func (r *relay) settleSome(w window, random *rand.Rand) {
	r.t.Helper()
	failed, aside := []int64{}, []int64{}
	for _, id := range w.events {
		switch random.IntN(12) {
		case 0:
			failed = append(failed, id)
		case 1:
			aside = append(aside, id)
		}
	}
	r.exec(`select posthorn.settle_relay($1, $2, $3, $4, $5, jsonb_build_object(
			'failures', (select coalesce(jsonb_agg(jsonb_build_object('event', i, 'permanent', true, 'error', 'too large')), '[]') from unnest($6::bigint[]) i),
			'aside', (select coalesce(jsonb_agg(jsonb_build_array(x.stream_id, x.ids)), '[]') from (
				select e.stream_id, array_agg(e.id order by e.id) as ids from posthorn.events e where e.id = any ($7) group by 1) x),
			'relayed', (select coalesce(jsonb_agg(jsonb_build_array(x.stream_id, x.lo, x.hi)), '[]') from (
				select e.stream_id, min(e.id) as lo, max(e.id) as hi from posthorn.events e
				where e.id = any ($8) and e.id <> all ($6) and e.id <> all ($7) group by 1) x)))`,
		r.group, r.owner, r.epoch, w.lease, w.attempt, failed, aside, w.events)
}

// Unpublished events are found by what is owed, and published ones by id, whatever the planner knows.
func TestOutboxEventReadsWhatIsOwed(t *testing.T) {
	t.Parallel()
	s := database(t)
	r := s.relay(first)
	s.of("a", 1)
	for range 4 {
		s.of("a", 5000)
		for {
			w := r.take(2000)
			if len(w.events) == 0 {
				break
			}
			r.settle(w, "a")
		}
	}
	owed := s.of("a", 7)
	written := owed[0] - 1
	for _, when := range []string{"never analysed", "analysed"} {
		if when == "analysed" {
			s.exec("analyze")
		}
		for _, query := range []string{
			"select count(*) from posthorn.outbox_event where published_at is null",
			"select count(*) from (select * from posthorn.outbox_event where published_at is null limit 100) x",
			"select count(*) from (select * from posthorn.outbox_event where published_at is null and stream_name = 'a' order by created_at, id limit 100) x",
			fmt.Sprintf("select 6 + count(published_at) from posthorn.outbox_event where id = %d", written),
		} {
			s.exec("begin")
			before := value[int64](s, totalRead)
			equal(t, query, value[int](s, query), 7)
			if rows := value[int64](s, totalRead) - before; rows > 500 && (when == "analysed" || strings.Contains(query, "is null")) {
				t.Errorf("%s: %q looks at %d rows", when, query, rows)
			}
			s.exec("commit")
		}
	}
}

package guarantee

import (
	"fmt"
	"testing"
	"time"
)

// Defaults are evaluated in column order: with xid before id, a transaction that has
// drawn an id always has an xid. (seed 001.19)
func TestXidStandsBeforeID(t *testing.T) {
	t.Parallel()
	s := database(t)
	columns := column[string](s, `
		select a.attname::text || ' default ' || pg_get_expr(d.adbin, d.adrelid)
		from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
		where a.attrelid = 'posthorn.events'::regclass and a.attname in ('xid', 'id') order by a.attnum`)
	equal(t, "columns", columns, []string{
		"xid default pg_current_xact_id()",
		"id default nextval('posthorn.event_id'::regclass)",
	})
}

// A session with cached ids would use them long after readers have read past them.
func TestIDsAreNotCached(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "cache", value[int64](s, "select seqcache from pg_sequence where seqrelid = 'posthorn.event_id'::regclass"), 1)
}

// Each way to publish is stopped when it draws an id, and must have an xid by then.
func TestXidIsAssignedBeforeIDIsDrawn(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]string{
		"publish":         "select posthorn.publish('default', 'e')",
		"new stream":      "select posthorn.publish('default', 'e', stream => 'new')",
		"dedup":           "select posthorn.publish('default', 'e', dedup_key => 'k')",
		"delayed":         "select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour')",
		"many":            `select posthorn.publish_many('default', '[{"type": "e"}, {"type": "f"}]')`,
		"batch":           "select posthorn.publish_batch('default', array['e', 'f'], array['{}', '{}']::json[])",
		"batch in turn":   "select posthorn.publish_in_turn('default', array['e', 'f'], array['{}', '{}']::json[])",
		"deliver delayed": "select posthorn.deliver_delayed()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour')")
			s.turnClock(2 * time.Hour)
			publisher := s.another()
			s.exec("begin; alter sequence posthorn.event_id cache 1")
			outcome := publisher.background(publish)
			s.await(`select exists (select from pg_locks
				where pid = $1 and relation = 'posthorn.event_id'::regclass and not granted)`, publisher.pid())

			if !value[bool](s, fmt.Sprintf("select exists (select from pg_locks where pid = %d and locktype = 'transactionid' and granted)", publisher.pid())) {
				t.Error("waits for an id, and has no xid")
			}
			s.exec("commit")
			if err := outcome(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An unused sequence has the last value 1.
func TestFirstEventOfFreshSequence(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	cursor := value[string](s, "select posthorn.cursor_at('infinity')")
	first := s.publish()
	equal(t, "id", first, 1)

	wantEvents(t, s.drain(), first)
	read, _ := s.read(cursor)
	wantEvents(t, read, first)
}

func TestFirstEventAfterClaimsOfNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	wantEvents(t, s.drain())
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	first := s.publish()
	wantEvents(t, s.drain(), first)
}

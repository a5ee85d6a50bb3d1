package guarantee

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
)

// A process that takes the lead of a relay again, under the same name, is not the one
// that had it: calls of before are refused.
func TestLeadOfARelayHasANewEpoch(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.of("a", 20)
	before := s.relay(first)
	before.take(10)
	again := s.relay(first)
	if again.epoch <= before.epoch {
		t.Fatalf("epoch %d after %d", again.epoch, before.epoch)
	}
	s.refused("PH003", "select posthorn.take_relay($1, $2, $3, 10, '1 minute', gen_random_uuid())", before.group, before.owner, before.epoch)
}

// A late leader that takes a window while another process takes the lead waits for it,
// and is then refused.
func TestLateOwnerTakesNothingInARace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.of("a", 20)
	late := s.relay(first)
	s.turnClock(2 * time.Minute)
	leading, taking := s.another(), s.another()
	leading.exec("begin")
	leading.exec("select posthorn.lead_relay($1, $2, '1 minute')", late.group, second)
	outcome := taking.background("select posthorn.take_relay($1, $2, $3, 10, '1 minute', gen_random_uuid())", late.group, late.owner, late.epoch)
	s.awaitBlocked(taking)
	leading.exec("commit")
	if err := outcome(); !hasCode(err, "PH003") {
		t.Errorf("taking: %v", err)
	}
}

// Whatever moves or deletes the group of some webhooks waits for a record of the process that leads before it locks
// rows that the record needs.
func TestGroupIsMovedAfterTheRecord(t *testing.T) {
	t.Parallel()
	for _, move := range []string{
		"select posthorn.seek('default', 'webhooks', 'infinity')",
		"select posthorn.delete_group('default', 'webhooks')",
	} {
		t.Run(move, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			_, w := s.webhook("{}")
			s.publish()
			lease := value[int64](s, "select lease from posthorn.take_webhooks($1, $2, $3, 10, '1 minute')", w.group, sender, w.epoch)
			other := s.another()
			s.exec("begin")
			s.exec("select posthorn.record_webhooks($1, $2, $3, '{}')", w.group, sender, w.epoch)
			outcome := other.background(move)
			s.awaitBlocked(other)
			s.exec("select posthorn.record_webhooks($1, $2, $3, $4::text::jsonb)", w.group, sender, w.epoch, fmt.Sprintf(`{"windows": [[%d, 1]]}`, lease))
			s.exec("commit")
			if err := outcome(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that waits for the lead while the streams are changed leads with the new ones: the cursor of a relay does
// not go back for streams that it passed.
func TestLeadHasTheNewestStreams(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.relay(first).exec("select posthorn.resign_relay(id, owner, epoch) from posthorn.leads")
	s.exec("create table public.led (patterns text[])")
	s.exec("create table public.imported (patterns text[])")
	s.exec("select posthorn.define_import('default', 'in', 'redis://r', 'redis', '{a}')")
	asking, importing := s.another(), s.another()
	s.exec("begin")
	s.exec(`select posthorn.define_relay('default', 'out', '{"streams": ["b"]}'), posthorn.define_import('default', 'in', 'redis://r', 'redis', '{b}')`)
	led := asking.background("insert into public.led select patterns from posthorn.leads l, posthorn.lead_relay(l.id, $1, '1 minute') where l.kind = 'relay'", second)
	imported := importing.background("insert into public.imported select patterns from posthorn.lead_import(1, $1, '1 minute')", importerA)
	s.awaitBlocked(asking)
	s.awaitBlocked(importing)
	s.exec("commit")
	if err := errors.Join(led(), imported()); err != nil {
		t.Fatal(err)
	}
	equal(t, "streams of the relay", value[[]string](s, "select patterns from public.led"), []string{"b"})
	equal(t, "streams of the import", value[[]string](s, "select patterns from public.imported"), []string{"b"})
}

// A group that was moved to the end knows that no earlier event can come late, whatever else the move writes: without
// that, its first window is looked for in all events since.
func TestMovedGroupKnowsItsPlace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.webhook("{}")
	s.relay(first)
	s.exec("select posthorn.define_group('default', 'plain')")
	for _, group := range []string{"webhooks", "out", "plain"} {
		s.exec("select posthorn.seek('default', $1, 'infinity')", group)
		equal(t, "whether the place of "+group+" is known", value[bool](s, `select c.base_next is not null
			from posthorn.cursors c join posthorn.groups g on g.id = c.group_id where g.name = $1 order by c.n desc limit 1`, group), true)
	}
}

// An import and a group may have the same number. Neither waits for the other.
func TestImportKeepsNoGroupWaiting(t *testing.T) {
	t.Parallel()
	s := database(t)
	group := s.relay(first).group
	s.exec("select posthorn.define_import('default', 'i' || i, 'redis://r', 'redis') from generate_series(1, $1) i", group)
	epoch := value[int64](s, "select term from posthorn.lead_import($1, $2, '1 day')", group, importerA)
	other := s.another()
	s.exec("begin")
	s.exec("select posthorn.note_import_lag($1, $2, $3, '{}', '{}', '{}')", group, importerA, epoch)
	other.exec("set lock_timeout = '10s'")
	other.exec("select posthorn.seek('default', 'out', 'infinity')")
	s.exec("commit")
}

// Events that a relay had set aside and was writing again, when the database was copied, wait again in another cluster.
func TestSetAsideSurvivesARebase(t *testing.T) {
	t.Parallel()
	s := database(t)
	events := s.of("a", 3)
	r := s.relay(first)
	w := r.take(10)
	r.setAside(w, "a", w.events...)
	equal(t, "events that are written again", r.takeAside("a").events, events)
	s.exec("select posthorn.rebase(force => true)")
	equal(t, "events after the rebase", s.relay(first).takeAside("a").events, events)
}

// The heartbeat of a leader extends its windows.
func TestLeaderKeepsItsWindows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.of("a", 20)
	r := s.relay(first)
	r.take(10)
	s.turnClock(50 * time.Second)
	s.exec("select posthorn.lead_relay($1, $2, '1 minute', $3)", r.group, r.owner, r.epoch)
	s.turnClock(100 * time.Second)
	equal(t, "windows in time", value[int](s, "select count(*) from posthorn.leases where until > posthorn.now()"), 1)
}

// Of many events that are set aside none is left out.
func TestManyEventsAreSetAsideWhole(t *testing.T) {
	t.Parallel()
	s := database(t)
	events := s.of("a", 1001)
	r := s.relay(first)
	w := r.take(1001)
	r.setAside(w, "a", w.events...)
	equal(t, "set aside", column[int64](s, "select i from posthorn.leases l, unnest(l.ids) i order by i"), events)
}

// An event that was set aside, and that the broker then refuses, is a dead letter.
func TestRefusedEventThatWasSetAside(t *testing.T) {
	t.Parallel()
	s := database(t)
	event := s.of("a", 1)[0]
	r := s.relay(first)
	w := r.take(1)
	r.setAside(w, "a", event)
	lease := r.takeAside("a").lease
	s.exec("select posthorn.settle_aside($1, $2, $3, $4::text::jsonb)", r.group, r.owner, r.epoch,
		fmt.Sprintf(`{"leases": [[%d, 1, %d]], "failures": %s}`, lease, event, list([]failure{{Event: event, Permanent: true, Error: "no"}})))
	equal(t, "dead letters", column[int64](s, "select event_id from posthorn.dead_letters"), []int64{event})
	equal(t, "leases", value[int](s, "select count(*) from posthorn.leases"), 0)
}

// The last event of a stream is known when it comes again alone.
func TestImportKnowsTheLastEvent(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	i, err := pg.DefineImport(t.Context(), ph.Pool(), "default", "in", "redis://r", "redis", nil)
	if err != nil {
		t.Fatal(err)
	}
	lead, err := pg.LeadImport(t.Context(), ph.Pool(), i, importerA, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range []int64{1, 0} {
		from := ""
		if at > 0 {
			from = fmt.Sprint(at)
		}
		if n, err := pg.ImportEvents(t.Context(), ph.Pool(), lead, importPart(from, fmt.Sprint(at+1), 7)); n != want || err != nil {
			t.Errorf("time %d: %d are new, want %d; %v", at+1, n, want, err)
		}
	}
}

// One session at a time plans an archive, and its segments are written in their order.
func TestOneSessionPlansAnArchive(t *testing.T) {
	t.Parallel()
	s := database(t)
	a := s.archive()
	events := s.of("a", 1)
	other := s.another()
	other.exec("begin")
	other.exec("select posthorn.plan_archive($1)", a)
	equal(t, "plans beside it", value[int](s, "select count(*) from posthorn.plan_archive($1)", a), 0)
	other.exec("commit")
	events = append(events, s.of("a", 1)...)
	for range 3 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	equal(t, "segments", column[int64](s, "select first_id from posthorn.archive_segments order by 1"), events)
	equal(t, "the first to write", value[int64](s, "select first_id from posthorn.unwritten_segment($1, $2)", a, s.stream("a")), events[0])
}

// A crash may undo the last settlements of the process that leads a relay or webhooks. If it
// went on leading, it would never return to these windows. So its lead ends, and the next
// leader begins with them.
func TestLeadEndsWhenTheServerCrashes(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]string{
		"crash":                                  crashed,
		"crash that another session has noticed": crashed + "; select posthorn.notice_restore()",
		"restore":                                "update posthorn.cluster set life = '1/2/3/4'; select posthorn.notice_restore()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			_, hooks := s.webhook("{}")
			s.exec("select posthorn.define_import('default', 'in', 'redis://r', 'redis')")
			leadImport := fmt.Sprintf("select coalesce(term, 0) from posthorn.lead_import(1, '%s', '1 day', $1)", importerA)
			importing := value[int64](s, leadImport, nil)
			events := s.of("a", 10)
			before := s.relay(first)
			w := before.take(10)
			s.of("a", 1)
			s.exec(crash)
			for _, call := range []string{
				"select posthorn.lead_relay($1, $2, '1 minute', $3)",
				"select posthorn.take_relay($1, $2, $3, 10, '1 minute', gen_random_uuid())",
				"select posthorn.take_aside($1, $2, $3, '{}', '1 minute', gen_random_uuid())",
				fmt.Sprintf("select posthorn.settle_relay($1, $2, $3, %d, %d)", w.lease, w.attempt),
			} {
				s.refused("PH003", call, before.group, before.owner, before.epoch)
			}
			for _, call := range []string{
				"select posthorn.lead_webhooks($1, $2, '1 minute', $3)",
				"select posthorn.record_webhooks($1, $2, $3, '{}')",
				"select posthorn.webhook_endpoints($1, $2, $3)",
			} {
				s.refused("PH003", call, hooks.group, sender, hooks.epoch)
			}
			s.refused("PH003", leadImport, importing)
			s.refused("PH003", "select posthorn.note_import_lag(1, $1, $2, '{}', '{}', '{}')", importerA, importing)
			equal(t, "epoch of the import", value[int64](s, leadImport, nil), importing+1)
			wantEvents(t, s.relay(first).take(10).events, events...)
			hooks.lead()
			s.exec("select posthorn.record_webhooks($1, $2, $3, '{}')", hooks.group, sender, hooks.epoch)
		})
	}
}

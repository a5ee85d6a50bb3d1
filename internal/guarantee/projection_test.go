package guarantee

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// project makes the group of a test a projection.
func (s *session) project() {
	s.t.Helper()
	s.exec("select posthorn.define_projection('default', $1)", group)
}

// settleTo settles the head of a lease up to its nth event.
func (s *session) settleTo(l lease, from, to int) {
	s.t.Helper()
	s.exec("select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, l.Events[from], l.Events[to])
}

// applyAll applies all events that a projection is owed, and returns them in order.
func (s *session) applyAll(name string) []int64 {
	s.t.Helper()
	var events []int64
	for {
		l, err := s.tryClaim(name, 100)
		if err != nil {
			s.t.Fatalf("claim: %v", err)
		}
		if l.ID == 0 {
			return events
		}
		events = append(events, l.Events...)
		s.settleTo(l, 0, len(l.Events)-1)
	}
}

// projection is a row of projection_status.
type projection struct {
	Position     int64   `json:"position"`
	LagEvents    int     `json:"lag_events"`
	Failures     int     `json:"failures"`
	FailedEvent  int64   `json:"failed_event"`
	Error        string  `json:"error"`
	Rebuilding   bool    `json:"rebuilding"`
	RebuildDone  int64   `json:"rebuild_done"`
	RebuildTotal int64   `json:"rebuild_total"`
	RebuiltAt    *string `json:"rebuilt_at"`
}

func (s *session) projection(name string) projection {
	s.t.Helper()
	var p projection
	text := value[string](s, "select to_json(x)::text from posthorn.projection_status x where x.projection = $1", name)
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// Seed 002.30: exactly the events that the effect's transaction names are settled:
// the same events cannot be settled twice, nor others before them.
func TestProjectionSettlesItsHead(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(4)
	l := s.claim(10)
	s.settleTo(l, 0, 1)
	// A worker that lost the answer to its commit settles again.
	s.refused("PH003", "select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, events[0], events[1])
	s.refused("PH003", "select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, events[3], events[3])
	s.refused("PH004", "select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, events[3], events[2])
	equal(t, "lag", s.projection(group).LagEvents, 2)
	equal(t, "position", s.projection(group).Position, events[1])
	s.settleTo(l, 2, 3)
	equal(t, "lag", s.projection(group).LagEvents, 0)
	wantEvents(t, s.applyAll(group))
}

// Seed 002.30: a worker that has lost its lease cannot settle.
func TestProjectionIsFenced(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(2)
	l := s.claim(10)
	s.expire()
	wantEvents(t, s.claim(10).Events, events...)
	s.refused("PH003", "select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, events[0], events[1])
	s.refused("PH003", "select posthorn.fail_projection($1, $2, $3, 'late')", l.ID, l.Attempt, events[0])
}

// A transaction that takes a lease away may wait for rows that the worker has locked.
// So the worker must not wait in turn: it gives up.
func TestProjectionDoesNotWaitForARebuild(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(2)
	l := s.claim(10)
	other := s.another()
	other.exec("begin")
	other.exec("select posthorn.rebuild_projection('default', $1)", group)
	s.exec("set lock_timeout = '5s'")
	s.refused("PH003", "select posthorn.settle_projection($1, $2, $3, $4)", l.ID, l.Attempt, events[0], events[1])
	other.exec("rollback")
	s.settleTo(l, 0, 1)
}

// The reverse: a rebuild waits for a settlement in progress, so the statement that
// empties the tables sees its effect, even if that is a delete.
func TestRebuildWaitsForSettlement(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	s.exec("create table public.effect (event bigint)")
	events := s.publishMany(2)
	worker := s.another()
	l := worker.claim(10)
	worker.exec("begin")
	worker.exec("insert into public.effect values ($1)", events[0])
	worker.settleTo(l, 0, 1)

	other := s.another()
	other.exec("begin")
	rebuilt := other.background("select posthorn.rebuild_projection('default', $1)", group)
	s.awaitBlocked(other)
	worker.exec("commit")
	if err := rebuilt(); err != nil {
		t.Fatal(err)
	}
	other.exec("delete from public.effect")
	other.exec("commit")
	equal(t, "effects", value[int](s, "select count(*) from public.effect"), 0)
	wantEvents(t, s.applyAll(group), events...)
}

// Seed 002.30: a rebuild hands out every event once, including late and failed ones.
func TestRebuildHandsOutEverythingOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	slow := s.another()
	slow.exec("begin")
	late := slow.publish()
	events := s.publishMany(3)
	l := s.claim(2)
	s.settleTo(l, 0, 0)
	s.exec("select posthorn.fail_projection($1, $2, $3, 'broken')", l.ID, l.Attempt, events[1])
	s.exec("select posthorn.rebuild_projection('default', $1)", group)
	equal(t, "status", s.projection(group), projection{
		Position: events[0] - 1, LagEvents: 3, Rebuilding: true, RebuildTotal: 3,
	})
	wantEvents(t, s.applyAll(group), events...)
	slow.exec("commit")
	wantEvents(t, s.applyAll(group), late)
}

// A rebuild is complete when the events that were in the log at its start are
// applied. Later events do not count.
func TestRebuildEnds(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	s.publishMany(3)
	s.exec("select posthorn.rebuild_projection('default', $1)", group)
	since := s.publish()
	l := s.claim(2)
	s.settleTo(l, 0, 1)
	p := s.projection(group)
	equal(t, "done", p.RebuildDone, 2)
	equal(t, "total", p.RebuildTotal, 3)
	l = s.claim(1)
	s.settleTo(l, 0, 0)
	p = s.projection(group)
	equal(t, "rebuilding", p.Rebuilding, false)
	equal(t, "has an end", p.RebuiltAt != nil, true)
	wantEvents(t, s.applyAll(group), since)
}

// Seed 002.30: a projection never gives an event up, and stops at it.
func TestProjectionNeverGivesUp(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(3)
	at := time.Duration(0)
	for n := range 20 {
		l := s.claim(10)
		wantEvents(t, l.Events, events...)
		equal(t, "deliveries", l.Deliveries[0], 1)
		s.exec("select posthorn.fail_projection($1, $2, $3, 'broken')", l.ID, l.Attempt, events[0])
		equal(t, "failures", s.projection(group).Failures, n+1)
		wantEvents(t, s.applyAll(group))
		at += 2 * time.Minute
		s.turnClock(at)
	}
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 0)
	l := s.claim(10)
	s.settleTo(l, 0, 0)
	p := s.projection(group)
	equal(t, "failures", p.Failures, 0)
	equal(t, "error", p.Error, "")
}

// A projection that two workers died of is handed out event by event, in order.
func TestProjectionThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(3)
	for range 2 {
		wantEvents(t, s.claim(10).Events, events...)
		s.expire()
	}
	for range 10 { // however many workers die of the first event, it is not given up
		wantEvents(t, s.claim(10).Events, events[0])
		s.expire()
	}
	for _, event := range events {
		s.lookAgain()
		l := s.claim(10)
		wantEvents(t, l.Events, event)
		s.settleTo(l, 0, 0)
	}
}

// Operations that would make a projection skip events or apply them twice are
// refused.
func TestProjectionIsGuarded(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	s.refused("PH005", "select posthorn.seek('default', $1, 'infinity')", group)
	s.refused("PH005", "select posthorn.define_group('default', $1, '{}')", group)
	s.refused("PH004", `select posthorn.define_projection('default', $1, '{"attempts": 3}')`, group)
	s.exec(`select posthorn.define_projection('default', $1, '{"backoff": {"to": "5 minutes"}}')`, group)
	equal(t, "backoff", value[string](s, "select backoff_to::text from posthorn.groups"), "00:05:00")
	s.exec("select posthorn.define_group('default', 'other')")
	s.refused("PH002", "select posthorn.define_projection('default', 'other')")
	s.refused("PH001", "select posthorn.rebuild_projection('default', 'other')")
}

// A rebuild that would miss events removed by retention is refused.
func TestRebuildWithMissingEventsIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	s.keepADay()
	first := s.publish()
	l := s.claim(10)
	s.settleTo(l, 0, 0)
	s.turnClock(longAfter)
	s.maintain()
	kept := s.publish()
	l = s.claim(10)
	s.settleTo(l, 0, 0)
	s.maintain()
	equal(t, "in the log", s.inLog(first), false)
	s.refused("PH005", "select posthorn.rebuild_projection('default', $1)", group)
	s.refused("PH005", "select posthorn.begin_replacement('default', $1)", group)
	s.exec("select posthorn.rebuild_projection('default', $1, partial => true)", group)
	l = s.claim(10)
	wantEvents(t, l.Events, kept)
	s.settleTo(l, 0, 0)
	s.exec("select posthorn.rebuild_projection('default', $1)", group) // the present contents miss nothing
}

const replacement = group + " (replacement)"

func (s *session) finish() bool {
	s.t.Helper()
	return value[bool](s, "select posthorn.finish_replacement('default', $1)", group)
}

// Seed 002.30: a replacement takes over when it has applied all events that the old
// projection was handed. From then on each event is applied once, including late
// ones, and workers of the old projection are fenced out.
func TestReplacementTakesThePlace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	slow := s.another()
	slow.exec("begin")
	late := slow.publish()
	events := s.publishMany(3)
	wantEvents(t, s.applyAll(group), events...)
	s.exec("select posthorn.begin_replacement('default', $1)", group)
	equal(t, "caught up at the beginning", s.finish(), false)
	l, err := s.tryClaim(replacement, 2)
	if err != nil {
		t.Fatal(err)
	}
	wantEvents(t, l.Events, events[:2]...)
	s.settleTo(l, 0, 1)
	equal(t, "caught up after two of three", s.finish(), false)
	held := s.publish()
	old := s.claim(10)
	wantEvents(t, old.Events, held)
	wantEvents(t, s.applyAll(replacement), events[2], held)
	equal(t, "caught up", s.finish(), true)

	s.refused("PH003", "select posthorn.settle_projection($1, $2, $3, $4)", old.ID, old.Attempt, held, held)
	s.refused("PH001", "select posthorn.finish_replacement('default', $1)", group)
	equal(t, "groups", column[string](s, "select name from posthorn.groups"), []string{group})
	wantEvents(t, s.applyAll(group))
	slow.exec("commit")
	wantEvents(t, s.applyAll(group), late)
	last := s.publish()
	wantEvents(t, s.applyAll(group), last)
}

// While others keep publishing, some events are always unread. The replacement only
// needs to reach the position of the old projection, which stops meanwhile.
func TestReplacementCatchesUpUnderLoad(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(2)
	wantEvents(t, s.applyAll(group), events...)
	s.exec("select posthorn.begin_replacement('default', $1)", group)
	s.applyAll(replacement)
	seen := s.publish()
	wantEvents(t, s.applyAll(group), seen)
	equal(t, "caught up without an event that the old one has seen", s.finish(), false)
	l, err := s.tryClaim(replacement, 10)
	if err != nil {
		t.Fatal(err)
	}
	left := s.publish()
	equal(t, "caught up with that event in work", s.finish(), false)
	s.settleTo(l, 0, 0)
	more := s.publish()
	equal(t, "caught up with events left that the old one has not seen", s.finish(), true)
	wantEvents(t, s.applyAll(group), left, more)
}

// If the old projection has never run, the log still has to be replayed.
func TestReplacementOfAnIdleProjection(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	events := s.publishMany(2)
	s.exec("select posthorn.begin_replacement('default', $1)", group)
	equal(t, "caught up", s.finish(), false)
	wantEvents(t, s.applyAll(replacement), events...)
	equal(t, "caught up", s.finish(), true)
}

// The old projection stops while a replacement finishes.
func TestReplacementHoldsTheOldOne(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	s.publish()
	s.applyAll(group)
	s.exec("select posthorn.begin_replacement('default', $1)", group)
	worker := s.another()
	s.exec("begin")
	equal(t, "caught up", s.finish(), false)
	s.publish()
	published := s.another()
	published.publish()
	claimed := worker.background("select posthorn.claim('default', $1, 'worker')", group)
	published.awaitBlocked(worker)
	s.exec("commit")
	if err := claimed(); err != nil {
		t.Fatal(err)
	}
}

func TestReplacementBeginsOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.project()
	first := value[string](s, "select posthorn.begin_replacement('default', $1)::text", group)
	second := value[string](s, "select posthorn.begin_replacement('default', $1)::text", group)
	equal(t, "the second", second, strings.Replace(first, ",t)", ",f)", 1))
	s.refused("PH005", "select posthorn.begin_replacement('default', $1)", replacement)
	s.exec("select posthorn.abandon_replacement('default', $1)", group)
	s.refused("PH001", "select posthorn.abandon_replacement('default', $1)", group)
	s.exec("select posthorn.begin_replacement('default', $1)", group)
	s.exec("select posthorn.delete_group('default', $1)", group)
	equal(t, "projections", value[int](s, "select count(*) from posthorn.projections"), 0)
	equal(t, "groups", value[int](s, "select count(*) from posthorn.groups"), 0)
}

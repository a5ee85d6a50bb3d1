package guarantee

import (
	"fmt"
	"testing"
	"time"
)

// state returns all rows that a settlement could change.
func (s *session) state() string {
	s.t.Helper()
	return value[string](s, `
		select concat_ws(E'\n',
			(select string_agg(x::text, E'\n' order by x::text) from posthorn.leases x),
			(select string_agg(x::text, E'\n' order by x::text) from posthorn.retries x),
			(select string_agg(x::text, E'\n' order by x::text) from posthorn.dead_letters x),
			(select string_agg(x::text, E'\n' order by x::text) from posthorn.cursors x))`)
}

// seed 000.43
func TestLateSettleIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{"none": "none", "total": "total"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `"}`)
			events := s.publishMany(3)
			late := s.claim(10)
			s.expire()
			wantEvents(t, s.claim(10).Events, events...)
			before := s.state()

			s.refused("PH003", "select posthorn.settle($1, $2)", late.ID, late.Attempt)
			s.refused("PH003", "select posthorn.settle($1, $2, $3)", late.ID, late.Attempt,
				list([]failure{{Event: events[0]}, {Event: events[1], Permanent: true}}))
			s.refused("PH003", "select posthorn.release($1, $2)", late.ID, late.Attempt)
			s.refused("PH003", "select posthorn.extend($1, $2, '1 minute')", late.ID, late.Attempt)

			equal(t, "state", s.state(), before)
		})
	}
}

func TestLateSettleOfRetriesIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(10), failure{Event: event, RetryIn: "0"})
	late := s.claim(10)
	s.expire()
	wantEvents(t, s.claim(10).Events, event)
	before := s.state()

	s.refused("PH003", "select posthorn.settle($1, $2)", late.ID, late.Attempt)
	equal(t, "state", s.state(), before)
}

func TestLateSettleWithNextTakeIsRefusedAndTakesNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.publishMany(4)
	late := s.claim(2)
	s.expire()
	s.claim(2)
	before := s.state()

	s.refused("PH003", `select posthorn.take(g.id, 'late', 10, '1 minute', gen_random_uuid(), $1, $2) from posthorn.groups g`,
		late.ID, late.Attempt)
	equal(t, "state", s.state(), before)
}

// The rest of a lease that a smaller take-over leaves is fenced as well.
func TestLateSettleAfterOversizeTakeOverIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(4)
	late := s.claim(4)
	s.expire()
	head := s.claim(1)
	wantEvents(t, head.Events, events[0])

	s.refused("PH003", "select posthorn.settle($1, $2)", late.ID, late.Attempt)
	s.settle(head)
	s.lookAgain()
	wantEvents(t, s.drain(), events[1:]...)
}

func TestSettleAfterDeadlineBeforeTakeOver(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.publish()
	l := s.claim(10)
	s.turnClock(time.Hour)
	s.settle(l)
	wantEvents(t, s.drain())
}

func TestLeaseExtendedInTimeIsNotTakenOver(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	l := s.claim(10)
	s.turnClock(50 * time.Second)
	s.exec("select posthorn.extend($1, $2, '1 minute')", l.ID, l.Attempt)
	s.turnClock(100 * time.Second)
	wantEvents(t, s.drain())

	s.turnClock(120 * time.Second)
	wantEvents(t, s.claim(10).Events, event)
}

// seed 002.12: the second settlement changes nothing, even with other failures.
func TestSettleTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	l := s.claim(10)
	s.settle(l)
	before := s.state()
	s.refused("PH003", "select posthorn.settle($1, $2)", l.ID, l.Attempt)
	s.refused("PH003", "select posthorn.settle($1, $2, $3)", l.ID, l.Attempt, list([]failure{{Event: event, Permanent: true}}))
	equal(t, "state", s.state(), before)
	s.wantOutcome(event, outcomeCompleted)
}

// The take-over has locked the lease when the late worker settles. The second one
// fails, whatever it saw when it began.
func TestSettleDuringTakeOverIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	late := s.claim(10)
	s.expire()
	other := s.another()
	other.exec("begin")
	wantEvents(t, other.claim(10).Events, event)

	worker := s.another()
	outcome := worker.background("select posthorn.settle($1, $2)", late.ID, late.Attempt)
	s.awaitBlocked(worker)
	other.exec("commit")
	if err := outcome(); !hasCode(err, "PH003") {
		t.Errorf("error %v, want PH003", err)
	}
}

// The reverse: a take-over does not wait for a settlement in progress, and the
// settled events are not handed out.
func TestTakeOverDuringSettle(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.publish()
	l := s.claim(10)
	s.expire()
	s.exec("begin")
	s.settle(l)
	other := s.another()
	wantEvents(t, other.drain())
	s.exec("commit")
	wantEvents(t, other.drain())
}

func TestOfRepeatedFailuresTheLastCounts(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := []int64{s.publish(), s.publish()}
	other := s.publish()
	l := s.claim(2)
	equal(t, "claimed", l.Events, events)
	s.refused("PH004", "select posthorn.settle($1, $2, $3)", l.ID, l.Attempt, list([]failure{{Event: other}}))
	s.settle(l,
		failure{Event: events[0], Error: "first"}, failure{Event: events[1], Permanent: true},
		failure{Event: events[0], Permanent: true, Error: "last"}, failure{Event: events[1], Error: "not yet"})
	equal(t, "dead letters", column[string](s, "select event_id || ' ' || error from posthorn.dead_letters order by 1"), []string{fmt.Sprintf("%d last", events[0])})
	equal(t, "retries", column[string](s, "select event_id || ' ' || error from posthorn.retries order by 1"), []string{fmt.Sprintf("%d not yet", events[1])})
}

func TestSettleOfUnknownLeaseIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.refused("PH003", "select posthorn.settle(1, 1)")
	s.refused("PH003", "select posthorn.settle(null, null)")
}

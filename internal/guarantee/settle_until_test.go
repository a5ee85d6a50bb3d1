package guarantee

import (
	"fmt"
	"testing"
	"time"
)

const settleUntil = "select posthorn.settle_until($1, $2, $3, '1 minute', $4::text::jsonb)"

// inEffect runs a statement in a transaction that has written before, as handlers do.
func (s *session) inEffect(sql string, args ...any) {
	s.t.Helper()
	s.exec("begin")
	s.exec("create temp table if not exists effect (n int)")
	s.exec("insert into effect values (1)")
	s.exec(sql, args...)
	s.exec("commit")
}

// A lease keeps the events behind the one up to which it was settled, whether it is a
// window or a list of ids, and whether the transaction has an effect. A later call with
// an earlier event brings nothing back.
func TestSettleUntilKeepsTheRest(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "total"} {
		for name, settle := range map[string]func(s *session, sql string, args ...any){"alone": (*session).exec, "with an effect": (*session).inEffect} {
			t.Run(order+" "+name, func(t *testing.T) {
				t.Parallel()
				s := database(t)
				s.define(`{"order": "` + order + `"}`)
				events := s.publishMany(5)
				l := s.claim(5)
				settle(s, settleUntil, l.ID, l.Attempt, events[1], "[]")
				settle(s, settleUntil, l.ID, l.Attempt, events[0], "[]")
				s.expire()
				wantEvents(t, s.drain(), events[2:]...)
			})
		}
	}
}

// A worker that has lost its lease settles no part of it.
func TestLateSettleUntilIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(3)
	late := s.claim(3)
	s.expire()
	next := s.claim(3)
	s.refused("PH003", settleUntil, late.ID, late.Attempt, events[2], "[]")
	s.exec("begin")
	s.exec("create temp table effect ()")
	s.refused("PH003", settleUntil, late.ID, late.Attempt, events[2], "[]")
	s.exec("rollback")
	s.refused("PH003", settleUntil, late.ID, late.Attempt, events[0], list([]failure{{Event: events[0], Permanent: true}}))
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 0)
	s.expire()
	equal(t, "taken over", next.Events, events)
	wantEvents(t, s.drain(), events...)
}

// A worker that settles as it goes keeps its lease.
func TestSettleUntilExtendsTheLease(t *testing.T) {
	t.Parallel()
	s := database(t)
	for name, settle := range map[string]func(s *session, sql string, args ...any){"alone": (*session).exec, "with an effect": (*session).inEffect} {
		s.exec("select posthorn.define_group('default', $1)", name)
		events := s.publishMany(3)
		l, err := s.tryClaim(name, 3)
		if err != nil {
			t.Fatal(err)
		}
		s.turnClock(50 * time.Second)
		settle(s, settleUntil, l.ID, l.Attempt, events[0], "[]")
		s.turnClock(100 * time.Second)
		s.lookAgain()
		if other, err := s.tryClaim(name, 3); other.ID != 0 || err != nil {
			t.Errorf("%s: %v was taken over, %v", name, other.Events, err)
		}
		s.turnClock(0)
	}
}

// While a worker goes on behind an event of its slot that has failed, nobody gets the
// failed one.
func TestFailureOfAHeldLeaseWaitsForIt(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(3)
	l := s.claim(3)
	s.exec(settleUntil, l.ID, l.Attempt, events[0], list([]failure{{Event: events[0], RetryIn: "0"}}))
	if other := s.claim(3); other.ID != 0 {
		t.Errorf("%v is handed out beside %v", other.Events, events[1:])
	}
	s.settle(l)
	wantEvents(t, s.drain(), events[0])
}

// The rest of a lease whose worker gives it back or dies behind a failed event comes after that event, whether it is the
// first delivery of the rest or a further one.
func TestRestOfALeaseComesAfterItsFailedEvent(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *session, l lease){"released": (*session).release, "expired": func(s *session, _ lease) { s.expire() }} {
		for _, delivery := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, delivery %d", name, delivery), func(t *testing.T) {
				t.Parallel()
				s := database(t)
				s.define(`{"order": "total"}`)
				events := s.publishMany(3)
				l := s.claim(2)
				if delivery == 2 {
					s.settle(l, failure{Event: events[0], RetryIn: "0"}, failure{Event: events[1], RetryIn: "0"})
					l = s.claim(2)
				}
				s.exec(settleUntil, l.ID, l.Attempt, events[0], list([]failure{{Event: events[0], RetryIn: "1 hour"}}))
				end(s, l)
				for range 3 {
					s.lookAgain()
					if other := s.claim(3); other.ID != 0 {
						t.Errorf("%v is handed out before %d", other.Events, events[0])
					}
				}
				s.turnClock(time.Hour + time.Second)
				wantEvents(t, s.drain(), events...)
			})
		}
	}
}

// A failure that is reported again, since the answer was lost, does not take the retry
// from the worker that has it meanwhile.
func TestRepeatedFailureLeavesTheRetry(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(2)
	l := s.claim(2)
	failed := []failure{{Event: events[0], RetryIn: "0", Error: "first"}}
	s.exec(settleUntil, l.ID, l.Attempt, events[0]-1, list(failed))
	retried := s.claim(2)
	wantEvents(t, retried.Events, events[0])
	s.settle(l, failed...)
	if other := s.claim(2); other.ID != 0 {
		t.Errorf("%v is handed out twice", other.Events)
	}
	s.settle(retried)
	wantEvents(t, s.drain())
}

// The call that settles failures answers what became of each: a retry, or a dead letter by the decision of the worker or of
// the group; released events have not failed.
func TestSettleFailedTellsWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 2}`)
	events := s.publishMany(4)
	settle := func(l lease, upto any, failures ...failure) []string {
		return column[string](s, `select concat_ws(' ', failure, attempts, dead, due_at is not null)
			from posthorn.settle_failed($1, $2, $3::text::jsonb, $4)`, l.ID, l.Attempt, list(failures), upto)
	}
	l := s.claim(4)
	equal(t, "fates", settle(l, events[0], failure{Event: events[2], RetryIn: "1 hour"}, failure{Event: events[0], Permanent: true}),
		[]string{"1 1 f t", "2 1 t f"})
	equal(t, "fates of the rest", settle(l, nil, failure{Event: events[3], Released: true}, failure{Event: events[1], RetryIn: "1 day"}),
		[]string{"2 1 f t"})
	wantEvents(t, s.drain(), events[3])
	s.turnClock(2 * time.Hour)
	equal(t, "fate after the last attempt", settle(s.claim(1), nil, failure{Event: events[2]}), []string{"1 2 t f"})
}

package guarantee

import (
	"testing"
	"time"
)

// A retry waits for its time, also when a claim has found an expired lease or looked
// for one.
func TestRetryWaitsForItsTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, RetryIn: "1 hour"})
	s.turnClock(time.Minute)
	s.lookAgain()
	next := s.publish()
	wantEvents(t, s.drain(), next)
	s.turnClock(61 * time.Minute)
	wantEvents(t, s.drain(), event)
}

// Giving back retries counts no delivery.
func TestReleasedRetryCountsNoDelivery(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 2}`)
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, RetryIn: "0"})
	for range 3 {
		l := s.claim(1)
		equal(t, "delivery", l.Deliveries, []int{2})
		s.release(l)
	}
	s.settle(s.claim(1), failure{Event: event})
	equal(t, "attempts", value[int](s, "select attempts from posthorn.dead_letters"), 2)
}

// An event that is buried again tells of the later failure.
func TestDeadLetterTellsOfTheLastFailure(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, Permanent: true, Error: "first"})
	s.seek("-infinity")
	s.settle(s.claim(1), failure{Event: event, Permanent: true, Error: "second"})
	equal(t, "errors", column[string](s, "select error from posthorn.dead_letters"), []string{"second"})
}

// Redriving a dead letter of an event that is being retried leaves the retry to its
// worker.
func TestRedriveLeavesRunningRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, Permanent: true})
	s.seek("-infinity")
	s.settle(s.claim(1), failure{Event: event, RetryIn: "0"})
	retried := s.claim(1)
	wantEvents(t, retried.Events, event)
	s.exec("select posthorn.redrive('default', $1)", group)
	equal(t, "deliveries", value[int](s, "select attempts from posthorn.retries"), 2)
	s.settle(retried)
	wantEvents(t, s.drain())
}

// A dead letter that was discarded can be recovered for as long as events are kept.
func TestDiscardedDeadLettersAreKept(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.bury("a")
	s.exec("select posthorn.discard('default', $1)", group)
	equal(t, "deleted at once", value[int](s, "select posthorn.sweep_discarded()"), 0)
	s.keepADay()
	s.turnClock(25 * time.Hour)
	equal(t, "deleted later", value[int](s, "select posthorn.sweep_discarded()"), 1)
}

// A lease that waits for its slot belongs to no worker, so nobody can settle it.
func TestWaitingLeaseCannotBeSettled(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(3)
	head := s.claim(1)
	s.refused("PH003", "select posthorn.settle(id, attempt) from posthorn.leases where until is null")
	s.settle(head)
	wantEvents(t, s.drain(), events[1:]...)
}

// A slot with more events than a lease may have is cut into several, without a rest that
// is lost.
func TestLongSlotIsCutWhole(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '2001' where key = 'poll_chunk_size'")
	s.define(`{"order": "total"}`)
	events := s.publishMany(2001)
	wantEvents(t, s.drain(), events...)
}

// Retries of a slot that are due wait for those before them, in the middle of the slot,
// too.
func TestDueRetriesWaitForEarlierOnes(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(3)
	s.settle(s.claim(3), failure{Event: events[0], RetryIn: "0"}, failure{Event: events[1], RetryIn: "1 hour"}, failure{Event: events[2], RetryIn: "0"})
	wantEvents(t, s.drain(), events[0])
	s.turnClock(2 * time.Hour)
	wantEvents(t, s.drain(), events[1:]...)
}

// A claim that looks for expired leases leaves those that are in time.
func TestLeaseInTimeIsLeft(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	held := s.publish()
	wantEvents(t, s.claim(1).Events, held)
	next := s.publish()
	s.lookAgain()
	wantEvents(t, s.claim(10).Events, next)
}

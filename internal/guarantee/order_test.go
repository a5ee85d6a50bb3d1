package guarantee

import (
	"testing"
	"time"
)

// seed 000.67
func TestSlotHasOneLeaseInFlight(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key"}`)
	first, other, second := s.publishKey("a"), s.publishKey("b"), s.publishKey("a")

	one, two := s.claim(1), s.claim(1)

	if l := s.claim(10); l.ID != 0 {
		t.Errorf("both slots are in flight, yet %v was handed out", l.Events)
	}
	equal(t, "heads of both slots", map[int64]bool{first: true, other: true}, map[int64]bool{one.Events[0]: true, two.Events[0]: true})
	s.settle(one)
	s.settle(two)
	wantEvents(t, s.claim(10).Events, second)
}

func TestTotalOrderHasOneLeaseInFlight(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(3)

	l := s.claim(1)
	if other := s.claim(10); other.ID != 0 {
		t.Errorf("%v was handed out beside %v", other.Events, l.Events)
	}
	s.settle(l)

	wantEvents(t, append(l.Events, s.drain()...), events...)
}

func TestStreamOrderGoesByStream(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "stream"}`)
	publish := func(stream string) int64 {
		return value[int64](s, "select posthorn.publish('default', 'e', stream => $1)", stream)
	}
	a1, b1, a2 := publish("a"), publish("b"), publish("a")

	got := [][]int64{s.claim(10).Events, s.claim(10).Events}

	if got[0][0] == b1 {
		got[0], got[1] = got[1], got[0]
	}
	equal(t, "events by stream", got, [][]int64{{a1, a2}, {b1}})
}

func TestFailureBlocksItsSlotOnly(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key"}`)
	failed := s.publishKey("a")
	s.settle(s.claim(10), failure{Event: failed, RetryIn: "1 hour"})

	behind, other := s.publishKey("a"), s.publishKey("b")
	wantEvents(t, s.drain(), other)

	s.turnClock(time.Hour + time.Second)
	wantEvents(t, s.drain(), failed, behind)
}

func TestFailureSetAsideDoesNotBlock(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key", "on_failure": "set_aside"}`)
	failed := s.publishKey("a")
	s.settle(s.claim(10), failure{Event: failed, RetryIn: "1 hour"})

	behind := s.publishKey("a")
	wantEvents(t, s.drain(), behind)

	s.turnClock(time.Hour + time.Second)
	wantEvents(t, s.drain(), failed)
}

func TestWorkerThatStopsAtFailureKeepsOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(4)
	s.settle(s.claim(3), failure{Event: events[1], RetryIn: "0"}, failure{Event: events[2], Released: true})

	l := s.claim(10)
	wantEvents(t, l.Events, events[1], events[2])
	equal(t, "deliveries", l.Deliveries, []int{2, 1})
	s.settle(l)
	wantEvents(t, s.drain(), events[3])
}

func TestDeadLetterUnblocksSlot(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	failed := s.publish()
	s.settle(s.claim(10), failure{Event: failed, Permanent: true})

	behind := s.publish()
	wantEvents(t, s.drain(), behind)
}

func TestTakeOverInSlotKeepsOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(3)
	s.claim(2)
	s.expire()

	wantEvents(t, s.drain(), events...)
}

// The rest that a take-over leaves is handed out before the waiting events.
func TestOversizeTakeOverInSlotKeepsOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(10)
	s.claim(6)
	s.expire()

	head := s.claim(2)
	wantEvents(t, head.Events, events[:2]...)
	s.settle(head)
	wantEvents(t, s.drain(), events[2:]...)
}

func TestOversizeTakeOverOfGivenBackLeaseKeepsOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(10)
	for _, size := range []int{6, 4, 2} {
		s.release(s.claim(size))
	}

	head := s.claim(1)
	wantEvents(t, head.Events, events[0])
	s.settle(head)
	wantEvents(t, s.drain(), events[1:]...)
}

func TestOversizeTakeOverOfRetriesInSlot(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	events := s.publishMany(4)
	l := s.claim(3)
	s.settle(l, failure{Event: events[0], RetryIn: "0"}, failure{Event: events[1], RetryIn: "0"}, failure{Event: events[2], RetryIn: "0"})
	s.claim(3)
	s.expire()

	head := s.claim(1)
	wantEvents(t, head.Events, events[0])
	s.settle(head)
	wantEvents(t, s.drain(), events[1:]...)
	equal(t, "leases and retries left", value[int](s, "select (select count(*) from posthorn.leases) + (select count(*) from posthorn.retries)"), 0)
}

// Parts of the log that were cut one after another wait in one slot.
func TestWaitingPartsKeepOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '2' where key = 'poll_chunk_size'")
	s.define(`{"order": "total"}`)
	events := s.publishMany(6)
	first := s.claim(1)
	if other := s.claim(1); other.ID != 0 { // reads ahead, and gets nothing
		t.Fatalf("%v was handed out beside %v", other.Events, first.Events)
	}
	if n := value[int](s, "select count(*) from posthorn.leases where until is null"); n < 2 {
		t.Fatalf("%d parts wait: this tests nothing", n)
	}
	s.settle(first)
	wantEvents(t, s.drain(), events[1:]...)
}

// Parts that waited in a slot are handed out together, as far as the worker has room.
func TestWaitingPartsAreJoined(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	first := s.publish()
	l := s.claim(10)
	wantEvents(t, l.Events, first)
	var events []int64
	for range 5 {
		events = append(events, s.publish())
		s.claim(10) // reads ahead, and gets nothing
	}
	equal(t, "parts that wait", value[int](s, "select count(*) from posthorn.leases where until is null"), len(events))
	s.settle(l)
	l = s.claim(3)
	wantEvents(t, l.Events, events[:3]...)
	s.expire()
	for _, next := range [][]int64{events[:2], events[2:3], events[3:]} { // the head of a lease is cut off
		l = s.claim(2)
		wantEvents(t, l.Events, next...)
		s.settle(l)
	}
	equal(t, "leases left", value[int](s, "select count(*) from posthorn.leases"), 0)
}

// An event that was committed late waits behind events with higher ids. Joined with them it comes first.
func TestLateEventIsJoinedInOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	s.publish()
	l := s.claim(10)
	slow := s.another()
	slow.exec("begin")
	events := []int64{slow.publish(), s.publish()}
	s.claim(10) // reads ahead
	slow.exec("commit")
	events = append(events, s.publish())
	s.claim(10)
	equal(t, "parts that wait", value[int](s, "select count(*) from posthorn.leases where until is null"), 3)
	s.settle(l)
	l = s.claim(10)
	wantEvents(t, l.Events, events...)
	s.expire()
	l = s.claim(1) // cuts off the head
	wantEvents(t, l.Events, events[0])
	s.settle(l)
	wantEvents(t, s.drain(), events[1:]...)
}

func TestReadAheadIsBounded(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '10' where key = 'poll_chunk_size'")
	s.define(`{"order": "total", "read_ahead": 20}`)
	s.publishMany(100)
	s.claim(1)
	for range 10 {
		s.claim(1)
	}
	if waiting := value[int](s, "select sum(cardinality(ids)) from posthorn.leases"); waiting > 30 {
		t.Errorf("%d events were read ahead, want at most 20 and one chunk", waiting)
	}
}

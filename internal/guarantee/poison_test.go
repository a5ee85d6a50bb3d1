package guarantee

import (
	"slices"
	"testing"
)

// dieOn claims like workers that die when they receive the killer, until nothing is
// left. It returns the events that were handled.
func (s *session) dieOn(killer int64, max int) []int64 {
	s.t.Helper()
	var handled []int64
	for range 100 {
		l := s.claim(max)
		switch {
		case l.ID == 0 && value[bool](s, "select exists (select from posthorn.group_status where lag_events > 0)"): // a claim ends after a second
		case l.ID == 0:
			slices.Sort(handled)
			return handled
		case slices.Contains(l.Events, killer):
			s.expire()
		default:
			handled = append(handled, l.Events...)
			s.settle(l)
			s.lookAgain()
		}
	}
	s.t.Fatal("there is no end to it")
	return nil
}

func (s *session) wantBuried(event int64, attempts int) {
	s.t.Helper()
	type letter struct {
		Event    int64
		Attempts int
		Reason   string
	}
	var got letter
	err := s.conn.QueryRow(s.t.Context(), "select event_id, attempts, reason from posthorn.dead_letters").
		Scan(&got.Event, &got.Attempts, &got.Reason)
	if err != nil {
		s.t.Fatal(err)
	}
	equal(s.t, "dead letter", got, letter{event, attempts, "Worker died"})
}

func TestKillerOfWorkersIsFoundAndBuried(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "stream", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"attempts": 4, "order": "` + order + `"}`)
			events := s.publishMany(10)
			killer := events[4]

			handled := s.dieOn(killer, 10)

			wantEvents(t, handled, slices.Delete(slices.Clone(events), 4, 5)...)
			s.wantBuried(killer, 4)
		})
	}
}

func TestKillerAmongRetriesIsFoundAndBuried(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		`{"attempts": 5}`,
		`{"attempts": 5, "order": "total"}`,
		`{"attempts": 5, "order": "total", "on_failure": "set_aside"}`,
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(config)
			events := s.publishMany(5)
			killer := events[2]
			var failures []failure
			for _, e := range events {
				failures = append(failures, failure{Event: e, RetryIn: "0"})
			}
			s.settle(s.claim(10), failures...)

			handled := s.dieOn(killer, 10)

			wantEvents(t, handled, slices.Delete(slices.Clone(events), 2, 3)...)
			s.wantBuried(killer, 5)
		})
	}
}

// Each worker asks for fewer events than the one that died before.
func TestKillerIsFoundByEverSmallerClaims(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"attempts": 3, "order": "` + order + `"}`)
			events := s.publishMany(12)
			killer := events[0]
			s.claim(12)
			s.expire()
			s.claim(7)
			s.expire()

			handled := s.dieOn(killer, 3)

			wantEvents(t, handled, events[1:]...)
			s.wantBuried(killer, 3)
		})
	}
}

// seed 002.18
func TestSingleKillerIsBuriedAfterItsAttempts(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 3}`)
	killer := s.publish()
	for n := range 3 {
		l := s.claim(10)
		equal(t, "deliveries", l.Deliveries, []int{n + 1})
		s.expire()
	}
	wantEvents(t, s.drain())
	s.wantBuried(killer, 3)
}

// A released lease is not a delivery.
func TestReleasedLeaseCountsNoDelivery(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 1}`)
	events := s.publishMany(2)
	for range 5 {
		l := s.claim(10)
		equal(t, "deliveries", l.Deliveries, []int{1, 1})
		s.release(l)
	}
	wantEvents(t, s.drain(), events...)
}

// seed 002.18
func TestUnlimitedAttemptsNeverBury(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 0}`)
	event := s.publish()
	for range 20 {
		s.settle(s.claim(10), failure{Event: event, RetryIn: "0"})
	}
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 0)
	wantEvents(t, s.drain(), event)
}

package guarantee

import "testing"

// clock reads the database's clock, so that clockAt can stop it there.
func (s *session) clock() (since func(period string)) {
	s.t.Helper()
	start := value[string](s, "select posthorn.now()::text")
	return func(period string) {
		s.t.Helper()
		s.clockAt(value[string](s, "select ($1::timestamptz + $2::interval)::text", start, period))
		s.lookAgain()
	}
}

// Events that were taken are invisible to others for 30 seconds. They are handed out
// again if they were not settled by then, any number of times.
//
// seed 000.5, 000.22–26, 000.43, 002.3–6, 002.8
func TestUnsettledEventsComeAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	later := s.clock()
	later("0")
	event := s.publish()
	take := func() []int {
		t.Helper()
		return column[int](s, "select delivery from posthorn.claim('default', $1, 'worker')", group)
	}
	equal(t, "delivery", take(), []int{1})
	s.wantOutcome(event, outcomeProcessing)
	later("29.999 seconds")
	equal(t, "while it is invisible", take(), []int{})
	later("30 seconds")
	equal(t, "after that", take(), []int{2})
	later("59.999 seconds") // its time starts over
	equal(t, "while it is invisible again", take(), []int{})
	later("1 minute")
	equal(t, "after that", take(), []int{3})

	s.exec("select posthorn.settle(id, attempt) from posthorn.leases")
	later("1 hour")
	equal(t, "after it was settled", take(), []int{})
	s.wantOutcome(event, outcomeCompleted)
}

// seed 000.22, 000.43, 002.8: two workers never have the same event, even if they
// take concurrently.
func TestTwoWorkersTakeDifferentEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(4)
	first, second := s.another(), s.another()
	first.exec("begin")
	wantEvents(t, first.claim(2).Events, events[:2]...)
	outcome := second.background("create temporary table taken as select event_id from posthorn.claim('default', $1, 'second', 10)", group)
	s.awaitBlocked(second)
	first.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "events of the second", column[int64](second, "select event_id from pg_temp.taken order by 1"), events[2:])
}

// seed 000.57: one statement writes the dead letter and ends the original.
func TestDeadLetterComesWithTheSettle(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	l := s.claim(1)
	before := s.state()
	s.exec("begin")
	s.settle(l, failure{Event: event, Permanent: true})
	s.exec("rollback")
	equal(t, "state after a rollback", s.state(), before)
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 0)
	// A refused settlement leaves no dead letter.
	s.refused("PH004", "select posthorn.settle($1, $2, $3)", l.ID, l.Attempt,
		list([]failure{{Event: event, Permanent: true}, {Event: 4711, Permanent: true}}))
	equal(t, "state after a refusal", s.state(), before)

	s.settle(l, failure{Event: event, Permanent: true})
	equal(t, "leases and dead letters", value[string](s, `
		select (select count(*) from posthorn.leases) || ' ' || (select count(*) from posthorn.dead_letters)`), "0 1")
}

// seed 002.18, 002.25: a transient failure is retried after the group's delay, until
// its attempts are used up.
func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	const seconds = "select extract(epoch from due_at - failed_at)::float8 from posthorn.retries"
	type span struct{ from, to float64 }
	for name, test := range map[string]struct {
		config string
		want   []span // seconds between attempts
	}{
		"default": {`{}`, []span{{.9, 1}, {1.8, 2}, {3.6, 4}, {7.2, 8}}},
		"backoff": {
			`{"attempts": 6, "backoff": {"from": "10 s", "to": "1 min", "factor": 3, "jitter": 0}}`,
			[]span{{10, 10}, {30, 30}, {60, 60}, {60, 60}, {60, 60}},
		},
		"delays":                        {`{"delays": ["1 s", "5 min", "1 h"]}`, []span{{1, 1}, {300, 300}, {3600, 3600}}},
		"delays with more attempts":     {`{"delays": ["1 s", "5 min"], "attempts": 4}`, []span{{1, 1}, {300, 300}, {300, 300}}},
		"delays with fewer attempts":    {`{"delays": ["1 s", "5 min"], "attempts": 2}`, []span{{1, 1}}},
		"one attempt, as seed 000 does": {`{"attempts": 1}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(test.config)
			later := s.clock()
			later("0")
			event := s.publish()
			for i, want := range test.want {
				s.settle(s.claim(1), failure{Event: event})
				if got := value[float64](s, seconds); got < want.from || got > want.to {
					t.Errorf("after attempt %d it waits for %v s, want %v to %v", i+1, got, want.from, want.to)
				}
				s.exec("update posthorn.retries set due_at = posthorn.now()")
			}
			l := s.claim(1)
			equal(t, "deliveries", l.Deliveries, []int{len(test.want) + 1})
			s.settle(l, failure{Event: event})
			equal(t, "retries and dead letters", value[string](s, `
				select (select count(*) from posthorn.retries) || ' ' || (select count(*) from posthorn.dead_letters)`), "0 1")
		})
	}
}

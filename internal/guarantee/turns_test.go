package guarantee

import "testing"

// Retries that are always due and new events take turns: neither waits for the other
// to end.
func TestRetriesAndNewEventsTakeTurns(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"none": `{"attempts": 0, "delays": ["0"]}`,
		"key":  `{"attempts": 0, "delays": ["0"], "order": "key", "on_failure": "set_aside"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(config)
			failing := s.publish()
			s.settle(s.claim(1), failure{Event: failing})

			const rounds = 5
			s.publishMany(rounds)
			retries := 0
			for range 2 * rounds {
				l := s.claim(1)
				if l.Events[0] == failing {
					retries++
					s.settle(l, failure{Event: failing})
				} else {
					s.settle(l)
				}
			}
			equal(t, "leases of retries", retries, rounds)
			// There are no new events, and the retry does not wait for one.
			equal(t, "first", s.claim(1).Events, []int64{failing})
		})
	}
}

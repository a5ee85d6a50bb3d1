package guarantee

import (
	"fmt"
	"strings"
	"testing"
)

// number is a condition that fails if n is not a number.
const number = "(e.payload->>'n')::int > coalesce((s.params->>'over')::int, 5)"

func (s *session) deadLetters() []string {
	s.t.Helper()
	return column[string](s, "select format('%s %s: %s', event_id, subscription, error) from posthorn.dead_letters where reason = 'Condition failed' order by event_id, subscription")
}

// An event for which a condition fails becomes a dead letter of its subscription in
// the same claim. Other subscriptions, other events, and later events of the same key
// are not affected.
func TestEventThatFailsAConditionIsADeadLetter(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `", "on_failure": "block"}`)
			s.subscribeSQL("number", number, "{}")
			s.subscribeSQL("any", "e.payload ? 'n'", "{}")
			publish := func(n string) int64 {
				return value[int64](s, "select posthorn.publish('default', 'a', $1::text::json, key => 'k')", `{"n": `+n+`}`)
			}
			first, bad, alone, last := publish("7"), publish(`"abc"`), publish(`"1e9"`), publish("8")
			s.wantHanded(to(first, "any", "number"), to(bad, "any"), to(alone, "any"), to(last, "any", "number"))
			letters := []string{
				fmt.Sprintf(`%d number: invalid input syntax for type integer: "abc"`, bad),
				fmt.Sprintf(`%d number: invalid input syntax for type integer: "1e9"`, alone),
			}
			equal(t, "dead letters", s.deadLetters(), letters)
			equal(t, "stopped", s.stopped(), []string{})

			equal(t, "brought back", value[int](s, "select posthorn.redrive('default', $1)", group), 0) // the condition still fails for it
			equal(t, "dead letters", s.deadLetters(), letters)
			s.subscribeSQL("number", "(e.payload->>'n')::float8 > 5", "{}")
			s.exec("update posthorn.dead_letters set payload = '{\"n\": 3}' where event_id = $1", bad)
			equal(t, "brought back", value[int](s, "select posthorn.redrive('default', $1)", group), 1)
			s.wantHanded(to(alone, "number"))
			equal(t, "dead letters", s.deadLetters(), []string{}) // no subscription wants the other event
		})
	}
}

// The params of some of many subscriptions fail: the event is a dead letter of these
// subscriptions.
func TestParamsThatFail(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("begin")
	for i := range 1000 {
		params := `{"over": "5"}`
		if i%400 == 7 {
			params = `{"over": "many"}`
		}
		s.subscribeSQL(fmt.Sprintf("s%03d", i), number, params)
	}
	s.exec("commit")
	event := s.publishEvent("a", `{"n": 7}`)
	h := s.claimHandout(group, 10)
	equal(t, "events", h.Events, []int64{event})
	equal(t, "matched", len(h.Handed[0].Subscriptions), 997)
	s.settle(h.lease)
	var want []string
	for _, name := range []string{"s007", "s407", "s807"} {
		want = append(want, fmt.Sprintf(`%d %s: invalid input syntax for type integer: "many"`, event, name))
	}
	equal(t, "dead letters", s.deadLetters(), want)
	equal(t, "stopped", s.stopped(), []string{})
	s.exec(`update posthorn.subscriptions set params = '{"over": 1}' where name = 's407'`)
	equal(t, "brought back", value[int](s, "select posthorn.redrive('default', $1)", group), 1)
	s.wantHanded(to(event, "s407"))
}

// A condition that fails for 100 events in a row stops its subscription, wherever
// batches end. Later events are owed to the subscription. An event for which the
// condition does not fail resets the count.
func TestConditionThatFailsForAHundredEventsStops(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1000, 7} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("update posthorn.config set value = '5 minutes' where key = 'condition_time_limit'") // a busy machine takes seconds
			s.subscribeSQL("number", number, "{}")
			s.subscribe("all", "{}")
			publish := func(n string, count int) {
				s.exec("select posthorn.publish('default', 'a', $1::text::json) from generate_series(1, $2)", `{"n": `+n+`}`, count)
			}
			claim := func() {
				for len(s.handOut(group, batch)) > 0 {
				}
			}
			publish(`"x"`, 99)
			publish("7", 1)
			publish(`"x"`, 60)
			claim()
			equal(t, "stopped", s.stopped(), []string{})
			publish(`"x"`, 60)
			publish("8", 1)
			claim()
			equal(t, "dead letters", len(s.deadLetters()), 199)
			if got := s.stopped(); len(got) != 1 || !strings.HasPrefix(got[0], "number: failed for 100 events in a row, the last time with: invalid input") {
				t.Errorf("stopped: %q", got)
			}
			s.subscribeSQL("number", "e.payload->>'n' in ('x', '8')", "{}")
			equal(t, "owed", value[int](s, "select count(*) from posthorn.retries where subscription = 'number'"), 21)
			claim()
			equal(t, "owed", value[int](s, "select count(*) from posthorn.retries"), 0)
			equal(t, "brought back", value[int](s, "select posthorn.redrive('default', $1)", group), 199)
		})
	}
}

// A batch that is matched twice makes no second dead letter, and is counted once.
func TestMisfitsOfABatchThatIsMatchedAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribeSQL("number", number, "{}")
	s.subscribe("all", "{}")
	for range 60 {
		s.publishEvent("a", `{"n": "x"}`)
	}
	h := s.claimHandout(group, 100)
	for range 3 {
		s.exec("select posthorn.release($1, $2)", h.ID, h.Attempt)
		h = s.claimHandout(group, 100)
	}
	equal(t, "dead letters", len(s.deadLetters()), 60)
	equal(t, "stopped", s.stopped(), []string{})
}

// The time limit is checked between the events of a batch and between conditions:
// many quick conditions together must not delay a claim.
func TestTimeOfConditionsIsLookedAtInBetween(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '1 second' where key = 'condition_time_limit'")
	s.allowFunction("nap(n bigint) returns boolean", "begin perform pg_sleep(0.05); return true; end") // its duration is compared with the limit
	for i := range 3 {
		s.subscribeSQL(fmt.Sprint(i), fmt.Sprintf("public.nap(e.id + %d)", i), "{}")
	}
	s.exec("update posthorn.conditions set foreign_code = false") // conditions that only call functions of Postgres run like this
	s.subscribe("quick", "{}")
	events := s.publishMany(1000) // 50 seconds for each condition
	s.exec("set statement_timeout = '40s'")
	h := s.claimHandout(group, 1000)
	equal(t, "events", h.Events, events)
	equal(t, "matched", h.Handed[0].Subscriptions, []string{"quick"})
	equal(t, "stopped", len(s.stopped()), 3)
}

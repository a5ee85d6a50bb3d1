package guarantee

import (
	"fmt"
	"testing"
)

// gate makes a function that conditions may call, and which waits while the gate is
// closed. It is open at first.
func (s *session) gate() (shut, open func()) {
	s.t.Helper()
	s.exec("update posthorn.config set value = '1 hour' where key = 'condition_time_limit'")
	s.allowFunction("passed() returns boolean", `
		begin
			perform pg_advisory_lock_shared(1);
			perform pg_advisory_unlock_shared(1);
			return true;
		end`)
	keeper := s.another()
	return func() { keeper.exec("select pg_advisory_lock(1)") }, func() { keeper.exec("select pg_advisory_unlock(1)") }
}

// freely runs a statement that must not wait for locks of others.
func (s *session) freely(sql string, args ...any) {
	s.t.Helper()
	s.exec("set lock_timeout = '1ms'")
	s.exec(sql, args...)
	s.exec("reset lock_timeout")
}

// failing makes a subscription whose condition fails for each event with {"n": "abc"}, and
// has failed for one.
func (s *session) failing(name string) {
	s.t.Helper()
	s.subscribeSQL(name, strict, `{"r": 0}`)
	s.publishEvent("a", `{"n": "abc"}`)
	s.handOut(group, 10)
}

// A subscription that gets another condition while events are matched is matched with its old
// condition or with its new one.
func TestSubscriptionChangesDuringAMatch(t *testing.T) {
	t.Parallel()
	s := database(t)
	shut, open := s.gate()
	// Conditions with code of users are matched one by one, after all others.
	for i := range 3 {
		s.subscribeSQL(fmt.Sprint(i), fmt.Sprintf("public.passed() and %d = %[1]d", i), "{}")
	}
	event := s.publish()
	shut()
	claimer := s.another()
	claimed := claimer.background("create temporary table handed as select event_id, unnest(subscriptions) as name from posthorn.claim('default', $1, 'w')", group)
	s.awaitBlocked(claimer)
	for i := range 3 {
		s.freely("select posthorn.subscribe('default', $1, $2, $3::text::jsonb)", group, fmt.Sprint(i), conditionFilter("e.type <> ''", "{}"))
	}
	open()
	if err := claimed(); err != nil {
		t.Fatal(err)
	}
	equal(t, "event", column[int64](claimer, "select distinct event_id from handed"), []int64{event})
	equal(t, "subscriptions", column[string](claimer, "select name from handed order by 1"), []string{"0", "1", "2"})
}

// Subscribe locks its own subscription and no other. Else it and a claim, which counts the
// failures of all, could wait for each other.
func TestSubscribeLocksNoOtherSubscription(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.failing("other")
	s.failing("w")
	s.exec("select posthorn.stop_subscriptions(group_no, array[(id, 'boom')::posthorn.trouble]) from posthorn.subscriptions where name = 'w'")
	event := s.publishEvent("a", `{"n": 3}`)
	s.publishEvent("a", `{"n": "abc"}`)
	s.handOut(group, 10)
	s.exec("update posthorn.subscriptions set stopped_at = null where name = 'w'") // catches up later
	failures := func() int {
		return value[int](s, "select failed_in_row from posthorn.subscriptions where name = 'other'")
	}
	before := failures()
	if before < 1 {
		t.Fatal("the condition of the other subscription has not failed: this tests nothing")
	}

	claimer := s.another()
	claimer.exec("begin; select from posthorn.subscriptions where name = 'other' for update")
	s.freely("select posthorn.subscribe('default', $1, 'w', $2::text::jsonb)", group, conditionFilter(strict, `{"r": 0}`))
	claimer.exec("rollback")
	equal(t, "failures of the other", failures(), before)
	s.wantHanded(to(event, "w"))
}

// A claim that has met an event for which a condition fails locks the group before it locks
// the subscription: whoever lets a stopped subscription go on has the lock of the group, and
// waits for that subscription.
func TestClaimLocksTheGroupBeforeSubscriptions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.failing("w")
	for range 100 {
		s.publishEvent("a", `{"n": "abc"}`)
	}
	id := value[int64](s, "select posthorn.define_group('default', $1)", group)
	taken := value[int64](s, "select lease from posthorn.take($1, 'w', 1000, '1 hour', gen_random_uuid())", id)
	claimer, other := s.another(), s.another()
	other.exec("begin")
	other.exec("select posthorn.lock_group($1::int)", id)
	read := claimer.background("select count(*) from posthorn.filtered_events($1)", taken)
	s.awaitBlocked(claimer)
	s.freely("select from posthorn.subscriptions for update")
	other.exec("commit")
	if err := read(); err != nil {
		t.Fatal(err)
	}
	equal(t, "stopped", len(s.stopped()), 1)
}

// Catching up locks a subscription before the events that it missed, as claims do, and leaves
// one that somebody else has locked for the next time.
func TestCatchUpLeavesALockedSubscription(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.failing("w")
	s.exec("select posthorn.stop_subscriptions(group_no, array[(id, 'boom')::posthorn.trouble]) from posthorn.subscriptions")
	event := s.publishEvent("a", `{"n": 3}`)
	s.publishEvent("a", `{"n": "abc"}`)
	s.handOut(group, 10)
	s.exec("update posthorn.subscriptions set stopped_at = null") // catches up later

	claimer := s.another()
	claimer.exec("begin; select from posthorn.subscriptions for update")
	s.freely("select posthorn.catch_up()")
	claimer.exec("rollback")
	equal(t, "still to do", value[int](s, "select count(*) from posthorn.stops"), 1)
	s.catchUp()
	s.wantHanded(to(event, "w"))
}

// Two subscriptions may take each other's condition at the same time: both count the conditions
// in one order.
func TestSubscriptionsThatSwapConditions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("one", `{"type": "a"}`)
	s.subscribe("two", `{"key": "a"}`)
	for _, c := range []struct{ name, filter string }{{"one", `{"key": "a"}`}, {"two", `{"type": "a"}`}} {
		first, other := s.another(), s.another()
		first.exec("begin; select from posthorn.matchers where condition_id = (select min(condition_id) from posthorn.matchers) for update")
		subscribed := other.background("select posthorn.subscribe('default', $1, $2, $3::text::jsonb)", group, c.name, c.filter)
		s.awaitBlocked(other)
		first.freely("select from posthorn.matchers where condition_id = (select max(condition_id) from posthorn.matchers) for update")
		first.exec("rollback")
		if err := subscribed(); err != nil {
			t.Fatal(err)
		}
		s.subscribe("one", `{"type": "a"}`)
		s.subscribe("two", `{"key": "a"}`)
	}
}

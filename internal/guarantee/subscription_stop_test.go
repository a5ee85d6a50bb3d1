package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fussy is a condition that stops its subscription if n is not a number, because it
// then takes too long.
const fussy = "public.fussy(e.payload->>'n', s.params->>'over')"

func (s *session) makeFussy() {
	s.t.Helper()
	s.exec("update posthorn.config set value = '1 second' where key = 'condition_time_limit'")
	s.allowFunction("fussy(n text, over_n text) returns boolean", `
		begin
			if n !~ '^[0-9]+$' then
				perform pg_sleep(1.1); -- longer than condition_time_limit
			else
				return n::int > coalesce(over_n::int, 5);
			end if;
			return null;
		end`)
}

// allowFunction makes a function that conditions may call.
func (s *session) allowFunction(declaration, body string) {
	s.t.Helper()
	s.exec("create function public." + declaration + " language plpgsql stable as $$" + body + "$$")
	name, _, _ := strings.Cut(declaration, "(")
	s.exec("select posthorn.allow_condition_function(p.oid) from pg_proc p where p.proname = $1 and p.pronamespace = 'public'::regnamespace", name)
}

// catchUp runs the part of upkeep that hands out missed events.
func (s *session) catchUp() {
	s.t.Helper()
	for value[int](s, "select posthorn.catch_up()") > 0 {
	}
}

// seed 001.22: a condition that fails stops only its own subscription, in the same
// claim. After a change, the subscription continues, and gets the missed events once.
func TestFailingConditionStopsOnlyItsSubscription(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"subscribe", "update"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.makeFussy()
			s.subscribeSQL("fussy", fussy, "{}")
			s.subscribeSQL("calm", "(e.payload->>'n') is not null", "{}")
			s.subscribe("filter", "{}")
			s.exec("select posthorn.subscribe('default', 'elsewhere', 'fussy', $1::text::jsonb)", conditionFilter("(e.payload->>'n') ~ '^[0-9]+$' and "+fussy, "{}"))
			before := s.publishEvent("a", `{"n": 7}`)
			s.wantHanded(to(before, "calm", "filter", "fussy"))

			first, bad, third := s.publishEvent("a", `{"n": 7}`), s.publishEvent("a", `{"n": "abc"}`), s.publishEvent("a", `{"n": 8}`)
			h := s.claimHandout(group, 100)
			equal(t, "handed out", h.Handed, []handed{{first, []string{"calm", "filter"}}, {bad, []string{"calm", "filter"}}, {third, []string{"calm", "filter"}}})
			if got := s.stopped(); len(got) != 1 || !strings.HasPrefix(got[0], "fussy: took ") {
				t.Errorf("stopped: %q", got)
			}
			s.settle(h.lease)
			later := s.publishEvent("a", `{"n": 9}`)
			s.publishEvent("a", `{"n": 1}`)
			s.wantHanded(to(later, "calm", "filter"), to(later+1, "calm", "filter"))
			equal(t, "elsewhere", s.handOut("elsewhere", 10), []string{to(before, "fussy"), to(first, "fussy"), to(third, "fussy"), to(later, "fussy")})

			better := "e.payload->>'n' ~ '^[0-9]+$' and " + fussy
			if change == "subscribe" {
				s.subscribeSQL("fussy", better, "{}")
			} else {
				s.exec("update posthorn.subscriptions set conditions_sql = $1 where name = 'fussy' and group_id = $2", "case when e.payload->>'n' ~ '^[0-9]+$' then "+fussy+" end", group)
				s.exec("select posthorn.tend()")
			}
			equal(t, "stopped", s.stopped(), []string{})
			s.wantHanded(to(first, "fussy"), to(third, "fussy"), to(later, "fussy"))
			after := s.publishEvent("a", `{"n": 10}`)
			s.wantHanded(to(after, "calm", "filter", "fussy"))
			equal(t, "stops left", value[int](s, "select (select count(*) from posthorn.stops) + (select count(*) from posthorn.missed)"), 0)
		})
	}
}

// A changed condition that fails again stops its subscription again, without losing
// events.
func TestSubscriptionThatFailsAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	publish := func(n string) int64 { return s.publishEvent("a", `{"n": `+n+`}`) }
	publish(`"abc"`)
	one := publish("7")
	s.wantHanded()
	s.exec("update posthorn.subscriptions set params = '{\"over\": 6}'") // catches up later
	two := publish("8")
	s.wantHanded(to(two, "fussy"))
	s.catchUp() // and meets the bad event again
	equal(t, "stopped", len(s.stopped()), 1)
	three := publish("9")
	publish(`"x"`)
	s.wantHanded()
	s.subscribeSQL("fussy", fussy, `{"over": 4}`)
	equal(t, "stopped again", len(s.stopped()), 1)
	s.wantHanded()
	s.subscribeSQL("fussy", "e.payload->>'n' ~ '^[0-9]+$' and "+fussy, "{}")
	s.wantHanded(to(one, "fussy"), to(three, "fussy"))
}

// A claim may wait for rows that catching up has written. If a condition fails
// meanwhile, catching up does not wait for the claim, which would be a deadlock, and
// stops the subscription in its next run.
func TestCatchUpDoesNotWaitForAClaim(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	s.publishEvent("a", `{"n": "abc"}`)
	one := s.publishEvent("a", `{"n": 7}`)
	s.wantHanded()
	s.exec("update posthorn.subscriptions set params = '{\"over\": 6}'") // catches up later
	claim := s.another()
	claim.exec("begin")
	claim.exec("select posthorn.lock_group(group_no) from posthorn.subscriptions")
	s.exec("set lock_timeout = '1 min'")
	s.exec("select posthorn.catch_up()")
	equal(t, "stopped", s.stopped(), []string{})
	claim.exec("commit")
	s.catchUp()
	equal(t, "stopped", len(s.stopped()), 1)
	s.subscribeSQL("fussy", "e.payload->>'n' ~ '^[0-9]+$' and "+fussy, "{}")
	s.wantHanded(to(one, "fussy"))
}

// Errors caused only by the machine stop no subscription.
func TestErrorsThatAreNoOnesFault(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.allowFunction("full() returns boolean", `
		begin
			if current_setting('test.disk', true) = 'yes' then
				raise exception 'disk full' using errcode = '53100';
			end if;
			return true;
		end`)
	s.subscribeSQL("a", "public.full()", "{}")
	event := s.publish()
	s.exec("set test.disk = 'yes'")
	s.refused("53100", "select posthorn.claim('default', $1, 'w')", group)
	s.exec("reset test.disk")
	s.wantHanded(to(event, "a"))
	equal(t, "stopped", s.stopped(), []string{})
}

// A condition that sleeps is stopped when its time is used up, and the group
// continues.
func TestSlowConditionIsStopped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '10 milliseconds' where key = 'condition_time_limit'")
	s.allowFunction("nap() returns boolean", "begin perform pg_sleep(0.02); return true; end") // its duration is compared with the limit
	s.subscribe("quick", "{}")
	s.subscribeSQL("slow", "public.nap()", "{}")
	events := s.publishMany(50)
	h := s.claimHandout(group, 100)
	equal(t, "events", h.Events, events)
	equal(t, "matched", h.Handed[0].Subscriptions, []string{"quick"})
	s.settle(h.lease)
	if got := s.stopped(); len(got) != 1 || !strings.HasPrefix(got[0], "slow: took ") {
		t.Errorf("stopped: %q", got)
	}
	s.exec("update posthorn.config set value = '1 hour' where key = 'condition_time_limit'")
	s.subscribeSQL("slow", "e.id % 50 = 0", "{}")
	s.wantHanded(to(50, "slow"))
}

// Cancelling a claim stops no subscription, whatever the claim was doing.
func TestCanceledClaimStopsNoSubscription(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.allowFunction("wait() returns boolean", "begin perform pg_advisory_xact_lock_shared(7); return true; end")
	for _, condition := range []string{"public.wait()", "e.type = 'order.placed'"} {
		s.subscribeSQL(condition, condition, "{}")
	}
	event := s.publish()
	holder, claimer := s.another(), s.another()
	holder.exec("select pg_advisory_lock(7)")
	outcome := claimer.background("select posthorn.claim('default', $1, 'w')", group)
	s.awaitBlocked(claimer)
	s.exec("select pg_cancel_backend($1)", claimer.pid())
	if err := outcome(); !hasCode(err, "57014") {
		t.Errorf("the claim ended with %v", err)
	}
	holder.exec("select pg_advisory_unlock(7)")
	equal(t, "stopped", s.stopped(), []string{})
	s.wantHanded(to(event, "e.type = 'order.placed'", "public.wait()"))
}

// A stopped subscription may be removed, with all missed events.
func TestStoppedSubscriptionIsRemoved(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	s.publishEvent("a", `{"n": "abc"}`)
	s.wantHanded()
	equal(t, "owed", value[int](s, "select posthorn.unsubscribe('default', $1, 'fussy')", group), 0)
	s.subscribeSQL("fussy", "true", "{}")
	s.wantHanded()
	equal(t, "left", value[int](s, "select (select count(*) from posthorn.stops) + (select count(*) from posthorn.missed)"), 0)
	s.exec("select posthorn.delete_group('default', $1)", group)
}

// Leases that are active when a subscription is stopped are settled, expire, or are
// released as usual. The subscription gets the events that it missed in them when it
// is restarted.
func TestLeasesInFlightWhenASubscriptionStops(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.makeFussy()
			s.define(`{"order": "` + order + `", "slots": 1000}`)
			s.subscribeSQL("fussy", fussy, "{}")
			s.subscribe("calm", "{}")
			publish := func(key, n string) int64 {
				return value[int64](s, "select posthorn.publish('default', 'a', $1::text::json, key => $2)", `{"n": `+n+`}`, key)
			}
			// Three events before the bad one: one lease is settled, one expires, and
			// one fails.
			var events []int64
			for i := range 4 {
				events = append(events, publish(fmt.Sprint("k", i), "7"))
			}
			publish("bad", `"abc"`)
			var held []handout
			for range 5 {
				held = append(held, s.claimHandout(group, 1))
			}
			equal(t, "stopped", len(s.stopped()), 1)
			matched := map[int64]bool{}
			for i, h := range held {
				if slices.Contains(h.Handed[0].Subscriptions, "fussy") {
					matched[h.Events[0]] = true
				}
				switch i {
				case 0:
					s.settle(h.lease)
				case 1:
					s.exec("update posthorn.leases set until = posthorn.now() where id = $1", h.ID)
				case 2:
					s.release(h.lease)
				case 3:
					s.settle(h.lease, failure{Event: h.Events[0], RetryIn: "0"})
				default:
					s.settle(h.lease)
				}
			}
			s.lookAgain()
			var again []int64
			for h := s.claimHandout(group, 1); h.ID != 0; h = s.claimHandout(group, 1) {
				again = append(again, h.Events...)
				equal(t, "while stopped", h.Handed[0].Subscriptions, []string{"calm"})
				s.settle(h.lease)
			}
			s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc'", "{}")
			got := s.handOut(group, 10)
			want := []string{}
			for _, e := range events {
				if !matched[e] || slices.Contains(again, e) {
					want = append(want, to(e, "fussy"))
				}
			}
			slices.Sort(got)
			equal(t, "missed events", got, want)
		})
	}
}

// The events cut off from a wide window are not missed when its head is matched: the
// next claim hands them out.
func TestCutOffRestIsHandedOutOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	s.subscribe("calm", `{"type": "a"}`)
	s.exec("select posthorn.publish('default', 'other', '{\"n\": 1}') from generate_series(1, 5)") // so that the window is widened
	bad := s.publishEvent("a", `{"n": "abc"}`)
	rest := []int64{s.publishEvent("a", `{"n": 7}`), s.publishEvent("a", `{"n": 8}`)}
	h := s.claimHandout(group, 1)
	equal(t, "handed out", h.Handed, []handed{{bad, []string{"calm"}}})
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	s.settle(h.lease)
	s.wantHanded(to(rest[0], "calm", "fussy"), to(rest[1], "calm", "fussy"))
}

// Events that wait for their slot were taken while a subscription was stopped, and
// are matched after it was restarted.
func TestEventWaitingForItsSlotIsHandedOutOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.define(`{"order": "total"}`)
	s.subscribeSQL("fussy", fussy, "{}")
	s.subscribe("calm", "{}")
	bad := s.publishEvent("a", `{"n": "abc"}`)
	s.wantHanded(to(bad, "calm"))
	var want []string
	for range 5 {
		s.publishEvent("a", `{"n": 7}`)
	}
	h := s.claimHandout(group, 1)
	s.settle(h.lease)
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	want = append(want, to(bad+1, "fussy"))
	for i := range int64(4) {
		want = append(want, to(bad+2+i, "calm", "fussy"))
	}
	s.wantHanded(want...)
}

// The group is moved while a subscription is stopped.
func TestSeekWhileASubscriptionIsStopped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	s.publishEvent("a", `{"n": "abc"}`)
	s.wantHanded()
	missed := s.publishEvent("a", `{"n": 7}`)
	s.wantHanded()
	skipped := s.publishEvent("a", `{"n": 8}`)
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	after := s.publishEvent("a", `{"n": 9}`)
	s.wantHanded()
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	s.wantHanded(to(missed, "fussy"), to(after, "fussy"))

	s.subscribeSQL("fussy", fussy, "{}")
	s.exec("select posthorn.seek('default', $1, '-infinity')", group)
	s.wantHanded() // stops again, and misses the second reading
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	s.wantHanded(to(missed, "fussy"), to(skipped, "fussy"), to(after, "fussy"))
}

// seed 001, where PGMB loses events: retention keeps the events owed to a stopped
// subscription.
func TestRetentionWaitsForStoppedSubscription(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprint("behind ", behind), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.makeFussy()
			s.keepADay()
			s.subscribeSQL("fussy", fussy, "{}")
			bad := s.publishEvent("a", `{"n": "abc"}`)
			owed := bad
			if behind {
				s.wantHanded()
				owed = s.publishEvent("a", `{"n": 7}`)
			}
			s.wantHanded()
			if behind { // and no other event of the partition
				s.exec("delete from posthorn.missed")
			}
			s.wantKept(owed, "subscription fussy of group billing was stopped before it", func() {
				s.subscribeSQL("fussy", "e.payload->>'n' = 'abc' or "+fussy, "{}")
				s.handOut(group, 10)
			})
		})
	}
}

// A group without any subscription left blocks no retention, and hands out nothing.
func TestRetentionDoesNotWaitForGroupWithoutSubscriptions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.subscribe("a", "{}")
	event := s.publish()
	s.exec("delete from posthorn.subscriptions")
	s.turnClock(longAfter)
	if s.maintain(); s.inLog(event) {
		t.Error("the event still exists")
	}
	s.publish()
	s.wantHanded()
}

// An event that commits late while a subscription is stopped is owed to it too.
func TestLateCommitForStoppedSubscription(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", fussy, "{}")
	slow, slower := s.another(), s.another()
	slow.exec("begin")
	slower.exec("begin")
	late := slow.publishEvent("a", `{"n": 7}`)
	later := slower.publishEvent("a", `{"n": 8}`)
	s.publishEvent("a", `{"n": "abc"}`)
	s.wantHanded()
	slow.exec("commit")
	s.wantHanded() // the group reads past it
	fresh := s.publishEvent("a", `{"n": 9}`)
	s.wantHanded()
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	s.wantHanded(to(late, "fussy"), to(fresh, "fussy"))
	slower.exec("commit")
	s.wantHanded(to(later, "fussy"))
}

// It is restarted in the middle of the log: later events are matched as usual.
func TestGoingOnFarBehind(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.makeFussy()
	s.subscribeSQL("fussy", "e.payload->>'n' is not null and "+fussy, "{}")
	s.subscribe("calm", "{}")
	var want []string
	for _, event := range column[int64](s, "select posthorn.publish('default', 'a', case i when 501 then '{\"n\": \"abc\"}' else '{\"n\": 7}' end::json) from generate_series(1, 3000) i") {
		if event != 501 {
			want = append(want, to(event, "fussy"))
		}
	}
	var got []string
	fussyOnly := func(h handout) {
		for _, e := range h.Handed {
			if slices.Contains(e.Subscriptions, "fussy") {
				got = append(got, to(e.Event, "fussy"))
			}
		}
		s.settle(h.lease)
	}
	for range 15 {
		fussyOnly(s.claimHandout(group, 100))
	}
	equal(t, "stopped", len(s.stopped()), 1)
	s.subscribeSQL("fussy", "e.payload->>'n' <> 'abc' and "+fussy, "{}")
	for h := s.claimHandout(group, 100); h.ID != 0; h = s.claimHandout(group, 100) {
		fussyOnly(h)
	}
	slices.Sort(got)
	slices.Sort(want)
	equal(t, "handed to fussy", got, want)
	s.catchUp()
	equal(t, "stops left", value[int](s, "select count(*) from posthorn.stops"), 0)
}

// seed 001.29: a subscription expires when its group has not been read for its expiry
// interval. A group is removed with its last subscription.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("kept", "{}")
	s.subscribe("short", `{"expiry_interval": "1 hour"}`)
	s.exec("select posthorn.subscribe('default', 'temporary', 'a', '{\"expiry_interval\": \"1 hour\"}')")
	s.exec("select posthorn.subscribe('default', 'temporary', 'b', '{\"expiry_interval\": \"2 hours\"}')")
	s.exec("select posthorn.subscribe('default', 'read', 'a', '{\"expiry_interval\": \"1 hour\"}')")
	names := func() []string {
		s.exec("select posthorn.tend()")
		return column[string](s, "select group_id || ' ' || name from posthorn.subscriptions order by 1")
	}
	groups := func() []string { return column[string](s, "select name from posthorn.groups order by 1") }
	all := []string{"billing kept", "billing short", "read a", "temporary a", "temporary b"}
	equal(t, "at once", names(), all)
	event := s.publish()
	h := s.claimHandout(group, 10)
	s.fail(h, event, "short", `, "retry_in": "1 day"`)

	s.turnClock(50 * time.Minute)
	equal(t, "before their time", names(), all)
	s.claimHandout("read", 10)                                                                            // finds something
	s.exec("select posthorn.subscribe('default', 'temporary', 'a', '{\"expiry_interval\": \"1 hour\"}')") // exists again
	s.turnClock(100 * time.Minute)
	equal(t, "after an hour", names(), []string{"billing kept", "read a", "temporary a", "temporary b"})
	equal(t, "retries", value[int](s, "select count(*) from posthorn.retries"), 0)
	s.handOut("read", 10)                        // finds its events
	equal(t, "idle", s.handOut("read", 10), nil) // and no more, but the group is read
	s.turnClock(150 * time.Minute)
	equal(t, "after two hours and a half", names(), []string{"billing kept", "read a"})
	equal(t, "groups", groups(), []string{"billing", "read"})
	s.turnClock(1000 * time.Hour)
	equal(t, "in the end", names(), []string{"billing kept"})
	equal(t, "groups", groups(), []string{"billing"})
}

// A subscription may be stopped while subscribe waits for its row. Then subscribe takes the
// lock of the group before the row, in the order of claims.
func TestSubscribeWhileASubscriptionIsStopped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.subscribe("w", "{}")
	stopper, claimer, subscriber := s.another(), s.another(), s.another()
	stopper.exec("begin; update posthorn.subscriptions set stopped_at = posthorn.now()")
	subscribed := subscriber.background("select posthorn.subscribe('default', $1, 'w', '{\"type\": \"order.placed\"}')", group)
	s.awaitBlocked(subscriber)
	claimer.exec("begin; select posthorn.lock_group(id) from posthorn.groups")
	stopper.exec("commit")
	s.await("select exists (select from pg_locks where pid = $1 and locktype = 'advisory' and not granted)", subscriber.pid())
	claimer.exec("update posthorn.subscriptions set failed_in_row = 1; commit")
	if err := subscribed(); err != nil {
		t.Fatal(err)
	}
	equal(t, "it goes on", value[bool](s, "select stopped_at is null from posthorn.subscriptions"), true)
}

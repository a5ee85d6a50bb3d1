package guarantee

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// seed 001.45, 001.49: an event that failed for one subscription is retried, buried
// and redriven for that subscription alone.
func TestRetriesOfOneSubscription(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "stream", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `", "attempts": 2, "delays": ["0"]}`)
			s.subscribe("a", "{}")
			s.subscribeSQL("b", "e.key = 'k'", "{}")
			event := s.publishKey("k")
			h := s.claimHandout(group, 1)
			equal(t, "first", h.Handed, []handed{{event, []string{"a", "b"}}})
			s.fail(h, event, "b", "")
			s.wantOutcome(event, "RETRYING b 1 no - -")
			h = s.claimHandout(group, 1)
			equal(t, "retry", h.Handed, []handed{{event, []string{"b"}}})
			equal(t, "delivery", h.Deliveries, []int{2})
			s.fail(h, event, "b", "")
			s.wantOutcome(event, "COMPLETED_WITH_ERRORS b 2 no Handler error worker")
			s.wantHanded()
			equal(t, "redriven", value[int](s, `select posthorn.redrive('default', $1, '{"subscription": "b"}')`, group), 1)
			s.wantHanded(to(event, "b"))
			s.wantOutcome(event, outcomeCompleted)
		})
	}
}

// An event that failed as a whole is matched again.
func TestRetryOfAWholeEventIsMatchedAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("a", "{}")
	event := s.publish()
	s.settle(s.claimHandout(group, 1).lease, failure{Event: event, RetryIn: "0"})
	s.subscribe("b", `{"type": "order.placed"}`)
	s.subscribe("c", `{"type": "order.paid"}`)
	s.wantHanded(to(event, "a", "b"))
	s.settle(s.claimOne(), failure{Event: event + 1, Permanent: true})
	s.exec("select posthorn.unsubscribe('default', $1, 'a')", group)
	s.exec("select posthorn.redrive('default', $1)", group)
	s.wantHanded(to(event+1, "b"))
}

// claimOne publishes an event and claims it.
func (s *session) claimOne() lease {
	s.t.Helper()
	s.publish()
	return s.claimHandout(group, 1).lease
}

// Ordered groups keep the order of handed out events. Events that no subscription
// wants block nothing.
func TestOrderedGroupsWithSubscriptions(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"key", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `", "delays": ["1 hour"]}`)
			s.subscribe("a", `{"type": "order.placed"}`)
			var want []int64
			for range 20 {
				s.exec("select posthorn.publish('default', 'other', key => 'k')")
				want = append(want, s.publishKey("k"))
			}
			first := s.claimHandout(group, 2) // a window of two, of which one is wanted
			equal(t, "first", first.Events, want[:1])
			wantEvents(t, s.claimHandout(group, 2).Events) // its slot is taken
			s.fail(first, want[0], "a", "")
			wantEvents(t, s.claimHandout(group, 2).Events) // blocked
			s.turnClock(2 * time.Hour)
			retry := s.claimHandout(group, 2)
			equal(t, "retry", retry.Handed, []handed{{want[0], []string{"a"}}})
			s.settle(retry.lease)
			var got []int64
			for h := s.claimHandout(group, 3); h.ID != 0; h = s.claimHandout(group, 3) {
				got = append(got, h.Events...)
				s.settle(h.lease)
			}
			wantEvents(t, got, want[1:]...)
		})
	}
}

// Delayed events are matched when they are due.
func TestDelayedEventsAreMatched(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("a", "{}")
	s.exec("select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour')")
	s.wantHanded()
	s.subscribe("b", `{"type": "e"}`)
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	s.wantHanded(to(value[int64](s, "select max(id) from posthorn.events"), "a", "b"))
}

// If a batch kills its workers, only an event that was handed out can be the cause:
// these events are split and buried, and unwanted events are not.
func TestKillerInAGroupWithSubscriptions(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"attempts": 4, "order": "` + order + `"}`)
			s.subscribe("a", `{"type": "order.placed"}`)
			s.exec("select posthorn.publish('default', 'other') from generate_series(1, 100)")
			events := s.publishMany(5)
			s.exec("select posthorn.publish('default', 'other') from generate_series(1, 100)")
			killer := events[2]
			handled := s.dieOn(killer, 10)
			wantEvents(t, handled, slices.Delete(slices.Clone(events), 2, 3)...)
			s.wantBuried(killer, 4)
			equal(t, "retries that no subscription wants", value[int](s, "select count(*) from posthorn.retries"), 0)
			s.exec("select posthorn.redrive('default', $1)", group)
			s.wantHanded(to(killer, "a"))
		})
	}
}

// Only the events that were handed out of a batch are split.
func TestOnlyWantedEventsAreSplit(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("a", `{"type": "order.placed"}`)
	s.publishMany(5)
	s.exec("select posthorn.publish('default', 'other') from generate_series(1, 50)")
	for range 2 {
		s.claimHandout(group, 100)
		s.expire()
	}
	s.claimHandout(group, 1)
	equal(t, "parts", value[int](s, "select count(*) from posthorn.retries"), 5)
}

// seed 001.10: a message for one subscription reaches only that subscription.
func TestPublishTo(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribeSQL("a", "true", "{}")
	s.subscribe("b", "{}")
	s.exec("select posthorn.subscribe('default', 'other', 'a', '{}')")
	s.exec("select posthorn.define_group('default', 'plain')")
	s.exec("select posthorn.define_namespace('elsewhere')")
	s.exec("select posthorn.define_group('elsewhere', $1, '{\"start\": \"beginning\"}')", group)
	cursor := value[string](s, "select posthorn.cursor_at('-infinity')")
	send := func(arguments string) int64 {
		return value[int64](s, "select posthorn.publish_to('default', 'billing', 'a', 'hello', "+arguments+")")
	}
	event := send(`'{"for" : "a"}', stream => 'letters', key => 'k', tags => '{red}', metadata => '{"m" : 1}'`)
	s.wantOutcome(event, "RETRYING a 0 - - -")
	var got string
	var l lease
	err := s.conn.QueryRow(t.Context(), `
		select lease, attempt, concat_ws('|', event_id, stream, type, key, tags, payload, metadata, published_at is not null, delivery, subscriptions)
		from posthorn.claim('default', 'billing', 'w')`).Scan(&l.ID, &l.Attempt, &got)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "message", got, fmt.Sprintf(`%d|letters|hello|k|{red}|{"for" : "a"}|{"m" : 1}|t|1|{a}`, event))
	s.wantOutcome(event, "PROCESSING a 1 - - w")
	s.settle(l)
	s.wantOutcome(event, outcomeCompleted)
	equal(t, "groups it is of", column[string](s, "select group_name from posthorn.outcomes('default', $1)", event), []string{group})
	equal(t, "in the log", column[string](s, "select namespace || ' ' || event_type from posthorn.event_log where event_id = $1", event), []string{"default hello"})
	s.refused("PH001", "select posthorn.outcomes('elsewhere', $1)", event)
	for _, g := range []string{"other", "plain"} {
		equal(t, g, s.handOut(g, 10), nil)
	}
	equal(t, "elsewhere", value[int](s, "select count(*) from posthorn.claim('elsewhere', 'billing', 'w')"), 0)
	events, _ := s.read(cursor)
	wantEvents(t, events)
	s.exec("select posthorn.seek('default', $1, '-infinity')", group)
	s.wantHanded()

	// It is retried, buried and redriven like any event, even after the log has
	// dropped it.
	event = send("'{}'")
	h := s.claimHandout(group, 1)
	s.fail(h, event, "a", `, "retry_in": "0"`)
	h = s.claimHandout(group, 1)
	equal(t, "retry", h.Handed, []handed{{event, []string{"a"}}})
	s.fail(h, event, "a", `, "permanent": true`)
	s.wantOutcome(event, "COMPLETED_WITH_ERRORS a 2 no Handler error worker")
	s.keepADay()
	s.turnClock(longAfter)
	if s.maintain(); s.inLog(event) {
		t.Error("the log keeps it for good")
	}
	s.exec("select posthorn.redrive('default', $1)", group)
	s.wantHanded(to(event, "a"))
	s.turnClock(0)

	event = send("'{}', deliver_at => posthorn.now() + interval '1 hour'")
	s.wantHanded()
	s.wantOutcome(event, "RETRYING a 0 - - -")
	s.turnClock(2 * time.Hour)
	s.wantHanded(to(event, "a"))

	s.exec("begin")
	send("'{}'")
	s.exec("rollback")
	s.wantHanded()
	s.refused("PH001", "select posthorn.publish_to('default', 'billing', 'nobody', 'e')")
	s.refused("PH001", "select posthorn.publish_to('default', 'plain', 'a', 'e')")
	s.refused("PH001", "select posthorn.publish_to('default', 'nowhere', 'a', 'e')")
	s.refused("PH001", "select posthorn.publish_to('nowhere', 'billing', 'a', 'e')")
	s.refused("PH004", "select posthorn.publish_to('default', 'billing', 'a', '')")
	s.refused("PH004", "select posthorn.publish_to('default', 'billing', 'a', 'e', deliver_at => 'infinity')")
	s.refused("PH004", `select posthorn.publish_to('default', 'billing', 'a', 'e', '{"a": "\u0000"}')`)
	s.exec("set role posthorn_publisher")
	send("'{}'")
	s.exec("reset role")
	equal(t, "dropped with its subscription", value[int](s, "select posthorn.unsubscribe('default', 'billing', 'a')"), 1)
	s.wantHanded()
}

// seed 001, where PGMB loses events: a transaction commits late, after its group has
// read past it.
func TestLateCommitReachesSubscriptions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("a", "{}")
	s.subscribeSQL("b", "s.params @> jsonb_build_object('topic', e.topic)", `{"topic": "order.placed"}`)
	slow := s.another()
	slow.exec("begin")
	late := slow.publish()
	fresh := s.publish()
	s.wantHanded(to(fresh, "a", "b"))
	slow.exec("commit")
	s.wantHanded(to(late, "a", "b"))
}

// seed 001, where PGMB loses events: the server crashes right after a publish, and
// before the claim that hands it out is settled.
func crashWithSubscriptions(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.subscribe("a", "{}")
	s.subscribeSQL("b", "e.type = 'order.placed'", "{}")
	first, second := s.publish(), s.publish()
	s.claimHandout(group, 1)
	own.crash()
	s = own.session()
	s.expire()
	s.wantHanded(to(first, "a", "b"), to(second, "a", "b"))
}

// seed 001, where PGMB loses events: many events in one batch get distinct ids, and
// all are handed out in order, in small leases.
func TestBatchReachesSubscriptionsInOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	s.subscribe("a", `{"type": "e"}`)
	ids := column[int64](s, "select posthorn.publish_batch('default', array_fill('e'::text, array[1000]), array_fill('{}'::json, array[1000]))")
	var want []string
	for _, id := range ids {
		want = append(want, to(id, "a"))
	}
	equal(t, "handed out", s.handOut(group, 77), want)
}

// seed 001, where PGMB loses events: retention keeps the events that a group with
// subscriptions has not read.
func TestRetentionWaitsForGroupWithSubscriptions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.subscribe("a", "{}")
	event := s.publish()
	s.wantKept(event, "group billing of namespace default has not read all of it", func() { s.wantHanded(to(event, "a")) })
}

// A dead letter of a removed subscription is handed out after a redrive, and so is an
// event owed to a handler from before the group had subscriptions: no event leaves a
// group unseen.
func TestRetriesOfSubscriptionsThatAreGone(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	first := s.publish()
	h := s.claimHandout(group, 1)
	s.fail(h, first, "handler", `, "retry_in": "0"`)
	s.subscribe("a", "{}")
	s.wantHanded(to(first, "handler"))

	second := s.publish()
	h = s.claimHandout(group, 1)
	s.fail(h, second, "a", `, "permanent": true`)
	s.exec("select posthorn.unsubscribe('default', $1, 'a')", group)
	s.exec("select posthorn.redrive('default', $1)", group)
	s.wantHanded(to(second, "a"))
}

package guarantee

import (
	"testing"
	"time"
)

// rename makes name the present name of a subscription, as a new version of a program does.
func (s *session) rename(name string, formerly ...string) {
	s.t.Helper()
	s.exec("select posthorn.subscribe('default', $1, $2, '{}', formerly => $3)", group, name, formerly)
}

func (s *session) subscriptionNames() []string {
	s.t.Helper()
	return column[string](s, "select name from posthorn.subscriptions order by name")
}

// A subscription that was renamed has all that was owed to it: events that no worker has
// had, a lease in flight, retries and dead letters.
func TestRenamedSubscriptionTakesOver(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `", "delays": ["0"], "on_failure": "set_aside"}`)
			s.subscribe("book", "{}")
			dead, retried, inFlight, unread := s.publishKey("k"), s.publishKey("k"), s.publishKey("k"), s.publishKey("k")
			s.settle(s.claimHandout(group, 1).lease, failure{Event: dead, Subscription: "book", Permanent: true})
			s.settle(s.claimHandout(group, 1).lease, failure{Event: retried, Subscription: "book", RetryIn: "0"})
			l := s.claimHandout(group, 1)
			for l.Events[0] == retried { // retries and other events take turns
				s.settle(l.lease, failure{Event: retried, Subscription: "book", Released: true})
				l = s.claimHandout(group, 1)
			}
			equal(t, "in flight", l.Handed, []handed{{inFlight, []string{"book"}}})

			s.rename("book-order", "book")
			s.fail(l, inFlight, "book", "") // the worker of the old version
			equal(t, "subscriptions", s.subscriptionNames(), []string{"book-order"})
			equal(t, "redriven", value[int](s, `select posthorn.redrive('default', $1, '{"subscription": "book-order"}')`, group), 1)
			s.wantHanded(to(dead, "book-order"), to(retried, "book-order"), to(inFlight, "book-order"), to(unread, "book-order"))
			s.wantHanded()
		})
	}
}

// The old version goes on under the former name, and may start again: nothing of it becomes
// a second subscription.
func TestFormerNameMeansThePresentOne(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"delays": ["0"]}`)
	s.subscribe("book", "{}")
	s.rename("book-order", "book")
	id := value[int64](s, "select posthorn.subscribe('default', $1, 'book')", group)
	equal(t, "subscription", value[string](s, "select name from posthorn.subscriptions where id = $1", id), "book-order")
	s.exec("insert into posthorn.subscriptions (group_id, name, params) values ($1, 'book', '{}') on conflict do nothing", group)
	s.rename("book-order", "book") // another process of the new version
	equal(t, "subscriptions", s.subscriptionNames(), []string{"book-order"})

	message := value[int64](s, "select posthorn.publish_to('default', $1, 'book', 'order.recheck')", group)
	s.wantHanded(to(message, "book-order"))
	event := s.publish()
	s.settle(s.claimHandout(group, 1).lease, failure{Event: event, Subscription: "book", Permanent: true})
	equal(t, "dead letter", value[string](s, "select subscription from posthorn.dead_letters"), "book-order")

	if hint := s.refused("PH001", "select posthorn.unsubscribe('default', $1, 'book')", group).Hint; hint != "It was renamed, and is 'book-order' now." {
		t.Errorf("hint %q", hint)
	}
	s.exec("select posthorn.unsubscribe('default', $1, 'book-order')", group)
	s.subscribe("book", "{}") // free again
	equal(t, "subscriptions", s.subscriptionNames(), []string{"book"})
}

// Transactions that began under the former name end later: what they leave is handed out
// under the present one, once.
func TestLateCommitsUnderAFormerName(t *testing.T) {
	t.Parallel()
	s, publisher, worker, old := database(t), (*session)(nil), (*session)(nil), (*session)(nil)
	publisher, worker, old = s.another(), s.another(), s.another()
	s.define(`{"delays": ["0"]}`)
	s.subscribe("book", "{}")
	dead, failed := s.publish(), s.publish()
	l := s.claimHandout(group, 2)
	publisher.exec("begin")
	message := value[int64](publisher, "select posthorn.publish_to('default', $1, 'book', 'order.recheck')", group)
	event := publisher.publish()
	worker.exec("begin")
	worker.settle(l.lease, failure{Event: dead, Subscription: "book", Permanent: true}, failure{Event: failed, Subscription: "book", RetryIn: "0"})

	s.rename("book-order", "book")

	publisher.exec("commit")
	worker.exec("commit")
	s.wantHanded(to(failed, "book-order"), to(message, "book-order"), to(event, "book-order"))
	s.wantHanded()
	s.exec("select posthorn.sweep()")
	equal(t, "dead letter", value[string](s, "select subscription from posthorn.dead_letters"), "book-order")

	// A transaction of the old version that makes the subscription holds the renaming up.
	s.exec("select posthorn.unsubscribe('default', $1, 'book-order')", group)
	old.exec("begin")
	old.exec("insert into posthorn.subscriptions (group_id, name, params) values ($1, 'book', '{}')", group)
	done := worker.background("select posthorn.subscribe('default', $1, 'book-order', formerly => '{book}')", group)
	s.awaitBlocked(worker)
	old.exec("commit")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	equal(t, "subscriptions", s.subscriptionNames(), []string{"book-order"})

	// And the other way round, also for a snapshot from before.
	s.exec("select posthorn.unsubscribe('default', $1, 'book-order')", group)
	s.exec("begin")
	s.rename("book-order", "book")
	done = worker.background("select posthorn.subscribe('default', $1, 'book')", group)
	old.exec("begin isolation level repeatable read")
	old.exec("select from posthorn.subscriptions")
	publisher.awaitBlocked(worker)
	s.exec("commit")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	old.refused("40001", `select posthorn.subscribe('default', $1, 'book', '{"type": "order.paid"}')`, group)
	old.exec("rollback")
	equal(t, "subscriptions", s.subscriptionNames(), []string{"book-order"})
}

// Renaming waits for no settlement that is under way, however many retries it holds.
func TestRenamingWaitsForNoSettlement(t *testing.T) {
	t.Parallel()
	s := database(t)
	worker := s.another()
	s.define(`{"delays": ["0"], "attempts": 9}`)
	s.subscribe("book", "{}")
	first, second := s.publish(), s.publish()
	s.settle(s.claimHandout(group, 2).lease, failure{Event: first, Subscription: "book"}, failure{Event: second, Subscription: "book"})
	l := s.claimHandout(group, 2)
	worker.exec("begin")
	worker.settle(l.lease, failure{Event: second, Subscription: "book"}, failure{Event: first, Subscription: "book"})
	s.exec("set lock_timeout = '1ms'")
	s.rename("book-order", "book")
	s.exec("reset lock_timeout")
	worker.exec("commit")
	s.wantHanded(to(first, "book-order"), to(second, "book-order"))
	s.wantHanded()
}

// A settlement that is under way while its subscription is renamed goes on: it has not been
// removed, and the failures that it records are owed.
func TestSettlementDuringARenaming(t *testing.T) {
	t.Parallel()
	s := database(t)
	worker, blocker := s.another(), s.another()
	s.define(`{"delays": ["0"], "attempts": 9}`)
	s.subscribe("book", "{}")
	first, second := s.publish(), s.publish()
	failures := []failure{{Event: first, Subscription: "book"}, {Event: second, Subscription: "book"}}
	// during renames the subscription while a settlement of both events waits for the first.
	during := func(name, formerly, settle string, args ...any) {
		t.Helper()
		done := worker.background(settle, args...)
		s.awaitBlocked(worker)
		s.rename(name, formerly)
		blocker.exec("rollback")
		if err := done(); err != nil {
			t.Fatal(err)
		}
	}
	l := s.claimHandout(group, 2)
	blocker.exec("begin")
	blocker.exec("insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at) select id, $1, 'book', 1, posthorn.now() from posthorn.groups", first)
	during("book-order", "book", "select posthorn.settle($1, $2, $3::text::jsonb)", l.ID, l.Attempt, list(failures))

	l = s.claimHandout(group, 2)
	equal(t, "retries", l.Handed, []handed{{first, []string{"book-order"}}, {second, []string{"book-order"}}})
	blocker.exec("begin")
	blocker.exec("update posthorn.retries set attempts = attempts where event_id = $1", first)
	for i := range failures {
		failures[i].Subscription = "book-order"
	}
	// The lease stays, with the renamed retry of the second event, whose failure is a retry of its own by now.
	during("booking", "book-order", "select posthorn.settle_until($1, $2, 0, null, $3::text::jsonb)", l.ID, l.Attempt, list(failures))
	s.wantHanded(to(first, "booking"), to(second, "book-order"))
	s.settle(l.lease)
	s.wantHanded()
}

// Names can change again, and back. A version that knows only older names changes nothing.
func TestNamesChangeAgainAndBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"delays": ["0"]}`)
	s.subscribe("a", "{}")
	event := s.publish()
	s.settle(s.claimHandout(group, 1).lease, failure{Event: event, Subscription: "a", Permanent: true})
	s.rename("b", "a")
	s.rename("c", "b")
	s.rename("b", "a") // a process of the version before
	equal(t, "subscriptions", s.subscriptionNames(), []string{"c"})
	s.subscribe("a", "{}")
	equal(t, "subscriptions", s.subscriptionNames(), []string{"c"})
	s.rename("a", "c")
	equal(t, "subscriptions", s.subscriptionNames(), []string{"a"})
	equal(t, "names", column[string](s, "select former || ' ' || name from posthorn.former_names order by former"), []string{"b a", "c a"})
	equal(t, "dead letter", value[string](s, "select subscription from posthorn.dead_letters"), "a")
}

// A program that ran under both names without formerly ends with one of them, and with one
// retry and one dead letter for each event.
func TestRenamingAfterBothNamesWereUsed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"delays": ["1 hour"]}`)
	s.subscribe("book", "{}")
	s.subscribe("book-order", "{}")
	dead, retried := s.publish(), s.publish()
	s.settle(s.claimHandout(group, 2).lease,
		failure{Event: dead, Subscription: "book", Permanent: true}, failure{Event: dead, Subscription: "book-order", Permanent: true},
		failure{Event: retried, Subscription: "book"}, failure{Event: retried, Subscription: "book-order"})
	s.rename("book-order", "book")
	equal(t, "subscriptions", s.subscriptionNames(), []string{"book-order"})
	equal(t, "dead letters", column[string](s, "select subscription from posthorn.dead_letters"), []string{"book-order"})
	s.turnClock(2 * time.Hour)
	s.wantHanded(to(retried, "book-order"))
}

// What cannot be meant is refused.
func TestFormerNamesThatAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.register_node('default', 'n')")
	handlers := func(document string) (sql string, args []any) {
		return "select posthorn.set_node_handlers('default', 'n', $1, $2::text::jsonb)", []any{group, document}
	}
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', formerly => '{a}')", group)
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', formerly => '{\"\"}')", group)
	sql, args := handlers(`[{"name": "a", "patterns": [">"], "formerly": "b"}]`)
	s.refused("PH004", sql, args...)
	for _, twice := range []string{
		`[{"name": "a", "patterns": [">"], "formerly": ["b"]}, {"name": "b", "patterns": [">"]}]`,
		`[{"name": "a", "patterns": [">"], "formerly": ["c"]}, {"name": "b", "patterns": [">"], "formerly": ["c"]}]`,
	} {
		sql, args = handlers(twice)
		s.refused("PH002", sql, args...)
	}
	equal(t, "former names", value[int](s, "select count(*) from posthorn.former_names"), 0)
	s.exec("select posthorn.create_webhook('default', 'w', '{\"url\": \"https://example.com\"}')")
	s.refused("PH005", `select posthorn.set_node_handlers('default', 'n', 'webhooks', '[{"name": "v", "patterns": [], "formerly": ["w"]}]')`)
}

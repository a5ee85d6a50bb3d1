package guarantee

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// subscribe makes or changes a subscription of the test's group.
func (s *session) subscribe(name, filter string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.subscribe('default', $1, $2, $3::text::jsonb)", group, name, filter)
}

// subscribeSQL makes a subscription with a condition in SQL.
func (s *session) subscribeSQL(name, condition, params string) int64 {
	s.t.Helper()
	return s.subscribe(name, conditionFilter(condition, params))
}

func conditionFilter(condition, params string) string {
	text, err := json.Marshal(map[string]any{"conditions_sql": condition, "params": json.RawMessage(params)})
	if err != nil {
		panic(err) // cannot fail for the texts of these tests
	}
	return string(text)
}

// publishEvent publishes an event of a type with a payload.
func (s *session) publishEvent(eventType, payload string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.publish('default', $1, $2::text::json)", eventType, payload)
}

// handed is an event of a lease, and the subscriptions that it is for.
type handed struct {
	Event         int64
	Subscriptions []string
}

// handout is a lease of a group with subscriptions.
type handout struct {
	lease
	Handed []handed
}

// claimHandout repeats a claim that has used its full second: it may have ended
// before it reached an event that a subscription wants.
func (s *session) claimHandout(group string, max int) handout {
	s.t.Helper()
	began := time.Now()
	var h handout
	var e handed
	var delivery int
	rows, _ := s.conn.Query(s.t.Context(), `select lease, attempt, event_id, delivery, subscriptions
		from posthorn.claim('default', $1, 'worker', $2, '1 minute')`, group, max)
	_, err := pgx.ForEachRow(rows, []any{&h.ID, &h.Attempt, &e.Event, &delivery, &e.Subscriptions}, func() error {
		slices.Sort(e.Subscriptions)
		h.Events = append(h.Events, e.Event)
		h.Deliveries = append(h.Deliveries, delivery)
		h.Handed = append(h.Handed, e)
		e.Subscriptions = nil
		return nil
	})
	if err != nil {
		s.t.Fatalf("claim: %v", err)
	}
	if h.ID == 0 && time.Since(began) > time.Second {
		return s.claimHandout(group, max)
	}
	return h
}

// fail settles a handout in which one subscription failed one event.
func (s *session) fail(h handout, event int64, subscription, rest string) {
	s.t.Helper()
	s.exec("select posthorn.settle($1, $2, $3::text::jsonb)", h.ID, h.Attempt,
		fmt.Sprintf(`[{"event": %d, "subscription": %q, "error": "no"%s}]`, event, subscription, rest))
}

// handOut claims up to max events at a time and settles them, until nothing is left.
// It returns them as "event subscription subscription", in order.
func (s *session) handOut(group string, max int) []string {
	s.t.Helper()
	var all []string
	for {
		h := s.claimHandout(group, max)
		if h.ID == 0 {
			return all
		}
		if len(h.Handed) == 0 || len(h.Handed) > max {
			s.t.Fatalf("%d events claimed, of at most %d", len(h.Handed), max)
		}
		for _, e := range h.Handed {
			if len(e.Subscriptions) == 0 {
				s.t.Fatalf("event %d was handed to no subscription", e.Event)
			}
			all = append(all, fmt.Sprint(e.Event, " ", strings.Join(e.Subscriptions, " ")))
		}
		s.settle(h.lease)
	}
}

// wantHanded checks all events that are handed out to the test's group until nothing
// is left.
func (s *session) wantHanded(want ...string) {
	s.t.Helper()
	got := s.handOut(group, 100)
	slices.Sort(got)
	slices.Sort(want)
	equal(s.t, "handed out", got, want)
}

func to(event int64, subscriptions ...string) string {
	return fmt.Sprint(event, " ", strings.Join(subscriptions, " "))
}

// stopped returns the stopped subscriptions of the test's group, with their errors.
func (s *session) stopped() []string {
	s.t.Helper()
	return column[string](s, "select name || ': ' || error from posthorn.subscriptions where group_id = $1 and stopped_at is not null order by name", group)
}

// seedInsert is the statement in seed 001, with our schema.
const seedInsert = `INSERT INTO posthorn.subscriptions (group_id, conditions_sql, params)
VALUES (
	'my-unique-group-id',
	's.params @> jsonb_build_object(''topic'', e.topic)',
	jsonb_build_object('topic', 'user.created')
);`

// seed 001.21: the seed's own statement makes the group too. seed 001.24
func TestSubscriptionBySeedsInsert(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(seedInsert)
	s.publishEvent("user.deleted", "{}")
	event := s.publishEvent("user.created", "{}")
	name := value[string](s, "select name from posthorn.subscriptions where group_id = 'my-unique-group-id'")
	equal(t, "handed out", s.handOut("my-unique-group-id", 10), []string{to(event, name)})
	equal(t, "groups", column[string](s, "select name from posthorn.groups"), []string{"my-unique-group-id"})
}

// seed 001.27: consumers that want the same events share one subscription, by value.
// seed 001.25, 001.26
func TestSubscriptionsAreUniqueByValue(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(seedInsert)
	if err := s.refused("23505", seedInsert); err.ConstraintName != "subscriptions_value" {
		t.Errorf("refused by %s", err.ConstraintName)
	}
	s.exec(strings.TrimSuffix(seedInsert, ";") + " on conflict do nothing")
	insert := "insert into posthorn.subscriptions (group_id, conditions_sql, params) values ($1, $2, $3::text::jsonb)"
	condition := "s.params @> jsonb_build_object('topic', e.topic)"
	s.exec(insert, "another", condition, `{"topic": "user.created"}`)
	s.refused("23505", insert, "another", condition, `{"topic" : "user.created"}`)
	s.exec(insert, "another", condition+" ", `{"topic": "user.created"}`)
	s.exec(insert, "another", nil, `{"type": "user.created"}`)
	s.refused("23505", insert, "another", nil, `{"type": "user.created"}`)
	s.exec(insert, "another", nil, `{"type": ["user.created"]}`)
	for i := range 500 { // with a hash of 32 bits some of a hundred thousand would collide; ours are compared as a whole
		s.exec(insert, "another", condition, fmt.Sprintf(`{"topic": "%d"}`, i))
	}
	equal(t, "subscriptions", value[int](s, "select count(*) from posthorn.subscriptions where group_id = 'another'"), 504)
	equal(t, "digests of 256 bits", value[bool](s, `select bool_and(octet_length(digest) = 32) from (
		select digest from posthorn.subscriptions union all select digest from posthorn.conditions) d`), true)

	// With names, two subscriptions may want the same events.
	s.subscribe("charge", `{"type": "order.placed"}`)
	s.subscribe("mail", `{"type": "order.placed"}`)
	event := s.publish()
	s.wantHanded(to(event, "charge", "mail"))
}

// seed 001.27: two subscriptions that have the same hash of 32 bits are different.
func TestSubscriptionsWhoseHashesCollide(t *testing.T) {
	t.Parallel()
	s := database(t)
	pair := column[string](s, `
		select t from (
			select t, count(*) over (partition by h) as n, h
			from (select 'topic-' || i as t, hashtext('{"topic": "topic-' || i || '"}') as h from generate_series(1, 300000) i) x
		) y where n = 2 order by h, t limit 2`)
	if len(pair) != 2 {
		t.Fatal("no two hashes collide: this tests nothing")
	}
	var want []string
	for _, topic := range pair {
		s.exec(`insert into posthorn.subscriptions (group_id, conditions_sql, params)
			values ($1, 's.params @> jsonb_build_object(''topic'', e.topic)', jsonb_build_object('topic', $2::text))`, group, topic)
	}
	for _, topic := range pair {
		event := s.publishEvent(topic, "{}")
		want = append(want, to(event, value[string](s, "select name from posthorn.subscriptions where params->>'topic' = $1", topic)))
	}
	s.wantHanded(want...)
}

// seed 001.22: e.topic and e.type are the same.
func TestTopicIsType(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribeSQL("a", "e.topic = e.type and e.topic = 'order.placed'", "{}")
	event := s.publish()
	s.wantHanded(to(event, "a"))
}

// Subscriptions can be changed and deleted as rows.
func TestSubscriptionsAreRows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribeSQL("a", "e.type = s.params->>'type'", `{"type": "one"}`)
	s.subscribe("b", `{"type": ["one", "two"]}`)
	one := s.publishEvent("one", "{}")
	s.wantHanded(to(one, "a", "b"))

	s.exec(`update posthorn.subscriptions set params = '{"type": "two"}' where name = 'a'`)
	s.exec(`update posthorn.subscriptions set params = '{"type": "one", "payload": {"x": 1}}' where name = 'b'`)
	one, two := s.publishEvent("one", `{"x": 1.0}`), s.publishEvent("two", "{}")
	s.publishEvent("one", "{}")
	s.wantHanded(to(one, "b"), to(two, "a"))

	s.exec(`update posthorn.subscriptions set conditions_sql = null, params = '{"type": "t*o"}' where name = 'a' and false`)
	s.refused("PH004", `update posthorn.subscriptions set conditions_sql = null, params = '{"type": "t*o"}' where name = 'a'`)
	s.exec(`update posthorn.subscriptions set conditions_sql = null, params = '{"type": "*.o"}' where name = 'a'`)
	s.exec(`update posthorn.subscriptions set conditions_sql = 'e.key is null' where name = 'b'`)
	event := s.publishEvent("t.o", "{}")
	s.wantHanded(to(event, "a", "b"))
	for _, change := range []string{"name = 'c'", "group_id = 'other'", "namespace = 'other'"} {
		s.refused("PH005", "update posthorn.subscriptions set "+change)
	}

	s.exec("delete from posthorn.subscriptions where name = 'b'")
	s.publishEvent("one", "{}")
	event = s.publishEvent("t.o", "{}")
	s.wantHanded(to(event, "a"))
	s.exec("delete from posthorn.subscriptions")
	s.publishEvent("t.o", "{}")
	s.wantHanded()
	equal(t, "left", value[int](s, "select (select count(*) from posthorn.matchers) + (select count(*) from posthorn.anchors)"), 0)
}

// The retries of a subscription are removed with it, and a lease that names it ends
// as usual.
func TestUnsubscribeDropsRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("a", "{}")
	s.subscribe("b", "{}")
	first, second, third := s.publish(), s.publish(), s.publish()
	h := s.claimHandout(group, 1)
	s.fail(h, first, "a", `, "retry_in": "1 hour"`)
	h = s.claimHandout(group, 1)
	s.fail(h, second, "a", `, "retry_in": "0"`)
	fresh, retry := s.claimHandout(group, 1), s.claimHandout(group, 1)
	if fresh.Events[0] == second { // retries and new events take turns
		fresh, retry = retry, fresh
	}
	equal(t, "retry", retry.Handed, []handed{{second, []string{"a"}}})
	equal(t, "owed", value[int](s, "select posthorn.unsubscribe('default', $1, 'a')", group), 2)
	s.fail(retry, second, "a", `, "retry_in": "0"`)
	s.fail(fresh, third, "a", `, "retry_in": "0"`)
	s.wantHanded()
	equal(t, "retries", value[int](s, "select count(*) from posthorn.retries"), 0)
	s.refused("PH001", "select posthorn.unsubscribe('default', $1, 'a')", group)
	s.refused("PH001", "select posthorn.unsubscribe('default', 'nobody', 'a')")
}

// A known condition compiles nothing: it adds no row of pg_proc and runs no DDL.
func TestKnownConditionCompilesNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`create function public.note_ddl() returns event_trigger language plpgsql security definer as 'begin perform nextval(''public.ddl''); end';
		create sequence public.ddl;
		create event trigger note_ddl on ddl_command_end execute function public.note_ddl()`)
	condition := "s.params @> jsonb_build_object('topic', e.topic)"
	s.subscribeSQL("a", condition, `{"topic": "a"}`)
	count := func() []int64 {
		return []int64{value[int64](s, "select count(*) from pg_proc"), value[int64](s, "select last_value from public.ddl")}
	}
	before := count()
	s.subscribeSQL("b", condition, `{"topic": "b"}`)
	s.subscribeSQL("a", condition, `{"topic": "c"}`)
	s.exec("insert into posthorn.subscriptions (group_id, conditions_sql, params) values ('other', $1, '{}')", condition)
	equal(t, "functions and DDL", count(), before)
	s.subscribeSQL("a", condition+" and true", `{"topic": "c"}`)
	if slices.Equal(count(), before) {
		t.Error("a new condition leaves no trace: this tests nothing")
	}
}

// seed 001.23, 001.28: thousands of subscriptions with one condition are found
// through the index on params, even if the tables were never analysed. For many
// events, one join finds all of them.
func TestSubscriptionsOfOneConditionAreFoundByIndex(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("alter table posthorn.subscriptions set (autovacuum_enabled = off)")
	s.exec(`insert into posthorn.subscriptions (group_id, conditions_sql, params)
		select $1, 's.params @> jsonb_build_object(''topic'', e.topic)', jsonb_build_object('topic', 't' || i) from generate_series(1, 5000) i`, group)
	plan := func(function string) string {
		s.exec("load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set client_min_messages = log")
		defer s.exec("reset client_min_messages; set auto_explain.log_min_duration = -1")
		var plans strings.Builder
		s.notices(func(message string) { plans.WriteString(message) })
		s.exec(`select count(*) from posthorn.` + function + `((select id from posthorn.groups), array[
			row(1, 't7', 't7', null, null, '{}', null, null, null)::posthorn.event], null, 'infinity')`)
		return plans.String()
	}
	for range 2 {
		if got := plan("condition_1"); !strings.Contains(got, "Bitmap Index Scan on subscriptions_params") {
			t.Errorf("few events are not looked up by params:\n%s", got)
		}
		if got := plan("condition_1_many"); !strings.Contains(got, "Hash Join") {
			t.Errorf("many events are not joined by hash:\n%s", got)
		}
		s.exec("analyze posthorn.subscriptions")
	}
	event := s.publishEvent("t77", "{}")
	name := value[string](s, "select name from posthorn.subscriptions where params->>'topic' = 't77'")
	s.wantHanded(to(event, name))
}

// seed 001.28: of a sparse group's window only matching events are handed out, up to
// max_events, and unwanted events are not searched again.
func TestSparseGroup(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribe("rare", `{"type": "rare"}`)
	s.subscribeSQL("sql", "e.type = 'rare'", "{}")
	var want []string
	for range 3 {
		s.exec("select posthorn.publish_batch('default', array_fill('common'::text, array[10000]), array_fill('{}'::json, array[10000]))")
		want = append(want, to(s.publishEvent("rare", "{}"), "rare", "sql"))
	}
	equal(t, "handed out", s.handOut(group, 1), want)
	equal(t, "leases", value[int](s, "select count(*) from posthorn.leases"), 0)
}

// A wide window holds more events than requested: the next claim hands out the rest.
func TestClaimNeverExceedsMaxEvents(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "stream", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `", "slots": 2}`)
			s.subscribe("a", `{"type": "order.placed"}`)
			s.exec("select posthorn.publish('default', 'other', key => 'a') from generate_series(1, 500)")
			var want, got []int64
			for range 40 {
				want = append(want, s.publishKey("a"))
			}
			for h := s.claimHandout(group, 3); h.ID != 0; h = s.claimHandout(group, 3) {
				if len(h.Events) > 3 {
					t.Fatalf("%d events claimed, of at most 3", len(h.Events))
				}
				equal(t, "deliveries", slices.Max(h.Deliveries), 1)
				got = append(got, h.Events...)
				s.settle(h.lease)
			}
			if order == "none" {
				slices.Sort(got) // the next claim gets the events that were cut off
			}
			wantEvents(t, got, want...)
		})
	}
}

// Due retries do not exceed the requested number either.
func TestClaimOfRetriesNeverExceedsMaxEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"delays": ["0"]}`)
	s.subscribe("a", `{"type": "order.placed"}`)
	events := s.publishMany(50)
	h := s.claimHandout(group, 100)
	var failures []failure
	for _, e := range events {
		failures = append(failures, failure{Event: e, RetryIn: "0"})
	}
	s.settle(h.lease, failures...)
	// New events come first now, and are unwanted: the next window is wider.
	s.exec("select posthorn.publish('default', 'other') from generate_series(1, 5)")
	var got []int64
	for h = s.claimHandout(group, 3); h.ID != 0; h = s.claimHandout(group, 3) {
		if len(h.Events) > 3 {
			t.Fatalf("%d events claimed, of at most 3", len(h.Events))
		}
		equal(t, "deliveries", slices.Max(h.Deliveries), 2)
		got = append(got, h.Events...)
		s.settle(h.lease)
	}
	slices.Sort(got)
	wantEvents(t, got, events...)
}

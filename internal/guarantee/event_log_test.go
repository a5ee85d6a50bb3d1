package guarantee

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// seed 000.11–15, 18: an appended event is published, and is in the log.
func TestAppendEventLog(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	const task = "6f2d3c1e-0000-4000-8000-000000000001"
	plain := value[int64](s, `select posthorn.append_event_log('default', 'user.created', '{"user": 7}', 'api-1')`)
	full := value[int64](s, `select posthorn.append_event_log('default', 'tick', '[]', 'scheduler', $1, '{"trace": "x", "producer": "other"}')`, task)
	none := value[int64](s, `select posthorn.append_event_log('default', 'tick', '{}', null, null, null)`)

	const row = `select concat_ws(' ', event_id, namespace, event_type, payload, producer_node_id, scheduled_task_id, metadata,
			emitted_at between posthorn.now() - interval '1 hour' and posthorn.now())
		from posthorn.event_log order by event_id`
	equal(t, "log", column[string](s, row), []string{
		fmt.Sprintf(`%d default user.created {"user": 7} api-1 {"producer": "api-1"} t`, plain),
		fmt.Sprintf(`%d default tick [] scheduler %s {"trace": "x", "producer": "scheduler", "scheduledTaskId": "%[2]s"} t`, full, task),
		fmt.Sprintf(`%d default tick {} {} t`, none),
	})
	wantEvents(t, s.drain(), plain, full, none)

	for _, sql := range []string{
		"select posthorn.append_event_log('default', '', '{}', 'p')",
		"select posthorn.append_event_log('default', 'e', null, 'p')",
		"select posthorn.append_event_log('default', 'e', '{}', '')",
		"select posthorn.append_event_log('default', 'e', '{}', 'p', metadata => '[]')",
	} {
		s.refused("PH004", sql)
	}
	s.refused("PH001", "select posthorn.append_event_log('nowhere', 'e', '{}', 'p')")
}

// seed 000.13: the log can be read with any metadata.
func TestEventLogOfOddMetadata(t *testing.T) {
	t.Parallel()
	s := database(t)
	for metadata, want := range map[string]string{
		`{"producer": "a", "scheduledTaskId": "no uuid"}`:              "a -",
		`{"scheduledTaskId": "6F2D3C1E-0000-4000-8000-00000000000A"}`:  "- 6f2d3c1e-0000-4000-8000-00000000000a",
		`{"scheduledTaskId": "6f2d3c1e-0000-4000-8000-000000000001 "}`: "- -",
		`{"scheduledTaskId": "6f2d3c1e-0000-4000-8000-00000000000g"}`:  "- -",
		`{"producer": 7, "scheduledTaskId": {"a": 1}}`:                 "7 -",
		`[]`:                               "- -",
		`"text"`:                           "- -",
		`null`:                             "- -",
		`{"a": "\ud800", "producer": "b"}`: "b -",
		`{"a": "\ud800\ud800\udc00", "producer": "b\udc00c"}`: "bc -",
		`{"producer": "b\u00fcro \ud83d\ude00"}`:              "büro 😀 -",
		`{"a": "\\ud800", "producer": "\\\ud800\\ud83d"}`:     `\\ud83d -`,
	} {
		id := value[int64](s, "select posthorn.publish('default', 'e', metadata => $1::text::json)", metadata)
		equal(t, metadata, value[string](s, `
			select coalesce(producer_node_id, '-') || ' ' || coalesce(scheduled_task_id::text, '-')
			from posthorn.event_log where event_id = $1`, id), want)
	}
}

// seed 000.15: conditions on the view's namespace, times and ids use the index.
func TestEventLogIsReadByIndex(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('n' || i) from generate_series(1, 20) i")
	s.exec(`select posthorn.publish('n' || (1 + i % 20), 'e' || (i % 7)) from generate_series(1, 20000) i`)
	s.exec("analyze posthorn.events; analyze posthorn.namespaces")
	plan := strings.Join(column[string](s, `
		explain select * from posthorn.event_log
		where namespace = 'n3' and event_type = 'e3' and emitted_at between now() - interval '1 hour' and now() and event_id > 10000`), "\n")
	if !strings.Contains(plan, "namespace_id = n.id) AND (id > 10000)") {
		t.Errorf("the index is not used:\n%s", plan)
	}
	if !strings.Contains(plan, "Subplans Removed") {
		t.Errorf("partitions of other times are read:\n%s", plan)
	}
}

// The index by type that docs/operations.md shows is created in every partition,
// including the ones that upkeep creates later, and event_log uses it.
//
// seed 000.15
func TestIndexByType(t *testing.T) {
	t.Parallel()
	s := database(t)
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s.exec(regexp.MustCompile(`(?s)create index events_type.*?;`).FindString(string(page)))
	s.exec("update posthorn.config set value = '1 year' where key = 'future_intervals_to_create'")
	made := len(column[string](s, "select partition from posthorn.maintain_events_table() where action = 'created'"))
	if made == 0 {
		t.Error("upkeep made no partition")
	}
	equal(t, "partitions without the index", column[string](s, `
		select p.inhrelid::regclass::text from pg_inherits p
		where p.inhparent = 'posthorn.events'::regclass and not exists (
			select from pg_index i join pg_inherits h on h.inhrelid = i.indexrelid
			where i.indrelid = p.inhrelid and h.inhparent = 'posthorn.events_type'::regclass)`), []string{})

	s.exec("select posthorn.publish('default', 'common.' || i % 7, '{}') from generate_series(1, 20000) i")
	s.exec("select posthorn.publish('default', 'rare', '{}')")
	s.exec("select brin_summarize_new_values(h.inhrelid) from pg_inherits h where h.inhparent = 'posthorn.events_type'::regclass")
	s.exec("analyze posthorn.events")
	const query = "select event_id from posthorn.event_log where namespace = 'default' and event_type = 'rare'"
	equal(t, "found", len(column[int64](s, query)), 1)
	plan := strings.Join(column[string](s, "explain (analyze, costs off, timing off, summary off) "+query), "\n")
	if !strings.Contains(plan, "Bitmap Index Scan on events_") || !strings.Contains(plan, "_type_idx") {
		t.Errorf("the index is not used:\n%s", plan)
	}
}

// seed 000.19–20
func TestQueueNames(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "queue", value[string](s, "select posthorn.queue_name_for_namespace('demo')"), "core_events_demo")
	equal(t, "queue", value[string](s, "select posthorn.queue_name_for_namespace('my-app')"), "core_events_my_app")
	equal(t, "queue", value[string](s, "select posthorn.dead_letter_queue_name_for_namespace('my-app')"), "core_events_my_app_dlq")
}

// seed 000.27, 55–57: a dead letter contains its whole event in the envelope.
func TestDeadLetterEnvelope(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec(`select posthorn.append_event_log('default', 'user.created', '{"user": null}', 'api-1', '6f2d3c1e-0000-4000-8000-000000000001')`)
	s.publish()
	l := s.claim(10)
	s.exec("select posthorn.settle($1, $2, $3)", l.ID, l.Attempt, `[
		{"event": 1, "permanent": true, "error": "no such user", "stack": "main.go:7", "subscription": "mail"},
		{"event": 2, "permanent": true, "reason": "No handler for event order.placed"}]`)
	const clock = `regexp_replace(envelope::text, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', 'TIME', 'g')`
	equal(t, "envelopes", column[string](s, "select id || ' ' || group_name || ' ' || subscription || "+clock+" from posthorn.dead_letter_envelopes('default')"), []string{
		`1 billing mail{ "originalEvent" : { "namespace" : "default", "eventType" : "user.created", "payload" : {"user": null}, "emittedAt" : "TIME", ` +
			`"producerNodeId" : "api-1", "messageId" : 1, "scheduledTaskId" : "6f2d3c1e-0000-4000-8000-000000000001", "redeliveryCount" : 1 }, ` +
			`"reason" : "Handler error", "failedAt" : "TIME", "error" : "no such user\nmain.go:7" }`,
		`2 billing { "originalEvent" : { "namespace" : "default", "eventType" : "order.placed", "payload" : {}, "emittedAt" : "TIME", ` +
			`"producerNodeId" : "", "messageId" : 2, "redeliveryCount" : 1 }, "reason" : "No handler for event order.placed", "failedAt" : "TIME" }`,
	})
	equal(t, "filtered", column[int64](s, `select id from posthorn.dead_letter_envelopes('default', $1, '{"type": "order.placed"}')`, group), []int64{2})
	equal(t, "times", value[bool](s, `
		select (envelope->'originalEvent'->>'emittedAt')::timestamptz = d.published_at and (envelope->>'failedAt')::timestamptz = d.failed_at
		from posthorn.dead_letter_envelopes('default') e join posthorn.dead_letters d using (id) limit 1`), true)
}

// seed 000.40: an event is released for later, without a counted delivery: another
// node may have a handler.
func TestReleasedForLater(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 1}`)
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, Released: true, RetryIn: "1 hour"})
	wantEvents(t, s.drain())
	equal(t, "due later", value[bool](s, "select due_at > posthorn.now() + interval '30 minutes' from posthorn.retries"), true)
	s.exec("update posthorn.retries set due_at = posthorn.now()")
	l := s.claim(1)
	equal(t, "deliveries", l.Deliveries, []int{1})
	s.settle(l, failure{Event: event, Released: true})
	wantEvents(t, s.drain(), event)
}

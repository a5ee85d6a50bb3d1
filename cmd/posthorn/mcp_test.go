package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// assistant is a client of posthorn mcp, made with the protocol's own library.
type assistant struct {
	*testworld.World
	session *mcp.ClientSession
}

func startAssistant(t *testing.T, args ...string) assistant {
	t.Helper()
	w := testworld.New(t)
	return assistant{w, connectAssistant(t, append([]string{"--database-url", w.URL}, args...)...)}
}

// connectAssistant starts posthorn mcp with arguments, until the test ends.
func connectAssistant(t *testing.T, args ...string) *mcp.ClientSession {
	t.Helper()
	cmd := exec.Command("posthorn", append([]string{"mcp"}, args...)...)
	stderr := &testworld.Buffer{}
	cmd.Stderr = stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	t.Cleanup(func() { _ = session.Close() }) // ends the process with its input
	return session
}

// names are the tools that are listed.
func (a assistant) names() string {
	a.T.Helper()
	tools, err := a.session.ListTools(a.T.Context(), nil)
	if err != nil {
		a.T.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	return " " + strings.Join(names, " ") + " "
}

// call calls a tool, and returns the text of its answer.
func (a assistant) call(name string, arguments map[string]any) (text string, failed bool) {
	a.T.Helper()
	answer, err := a.session.CallTool(a.T.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		a.T.Fatal(err)
	}
	for _, part := range answer.Content {
		text += part.(*mcp.TextContent).Text + "\n"
	}
	return text, answer.IsError
}

// is asks the database whether something holds.
func (a assistant) is(sql string) (holds bool) {
	a.T.Helper()
	if err := a.Pool().QueryRow(a.T.Context(), sql).Scan(&holds); err != nil {
		a.T.Fatal(err)
	}
	return holds
}

const failFirst = `with c as (select * from posthorn.claim('default', 'billing', 'n', 1))
	select posthorn.settle(lease, attempt, jsonb_build_array(jsonb_build_object('event', event_id, 'error', 'card declined', 'permanent', true))) from c`

var previewCode = regexp.MustCompile(`with confirm: "([0-9a-f]+)"`)

// An assistant names the database of each call. A preview holds for that database, and one that is away fails by itself.
func TestAssistantOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	orders, billing := testworld.New(t), testworld.New(t)
	missing, err := url.Parse(orders.URL)
	if err != nil {
		t.Fatal(err)
	}
	missing.Path += "_missing"
	a := assistant{orders, connectAssistant(t, "--allow-changes", "--database", "orders="+orders.URL, "--database", "billing="+billing.URL, "--database", "far="+missing.String())}
	tools, err := a.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		schema, _ := json.Marshal(tool.InputSchema)
		if !strings.Contains(string(schema), `"enum":["orders","billing","far"]`) || !regexp.MustCompile(`"required":\[[^]]*"database"`).Match(schema) {
			t.Errorf("%s does not want the database: %s", tool.Name, schema)
		}
	}
	for _, w := range []*testworld.World{orders, billing} {
		w.Exec("select posthorn.define_group('default', 'both')")
	}
	billing.Exec("select posthorn.define_group('default', 'invoices')")
	for database, want := range map[string]bool{"orders": false, "billing": true} {
		if text, failed := a.call("list-groups", map[string]any{"database": database}); failed || strings.Contains(text, "invoices") != want {
			t.Errorf("groups of %s: %s", database, text)
		}
	}
	for _, arguments := range []map[string]any{{}, {"database": "other"}} {
		if text, failed := a.call("list-groups", arguments); !failed || !strings.Contains(text, "give one of orders, billing, far") {
			t.Errorf("%v: %s", arguments, text)
		}
	}
	if text, failed := a.call("list-groups", map[string]any{"database": "far"}); !failed {
		t.Errorf("a database that is away: %s", text)
	}
	text, _ := a.call("pause-group", map[string]any{"database": "orders", "name": "both"})
	code := previewCode.FindStringSubmatch(text)
	if code == nil || !strings.Contains(text, "in database orders: ") {
		t.Fatalf("no preview of the database: %s", text)
	}
	confirmed := func(database string) {
		t.Helper()
		if text, failed := a.call("pause-group", map[string]any{"database": database, "name": "both", "confirm": code[1]}); failed {
			t.Fatal(text)
		}
	}
	const paused = "select exists (select from posthorn.groups where paused)"
	confirmed("billing")
	if (assistant{billing, nil}).is(paused) {
		t.Error("the code of another database's preview was accepted")
	}
	confirmed("orders")
	if !a.is(paused) {
		t.Error("the group is not paused")
	}
}

// An assistant finds a dead letter, sees what a redrive would do, and does it.
func TestAssistantRedrivesADeadLetter(t *testing.T) {
	t.Parallel()
	a := startAssistant(t, "--allow-changes")
	a.Exec("select posthorn.define_group('default', 'billing', '{}')")
	a.Exec("select posthorn.publish('default', 'order.placed', '{\"order\": 7}')")
	a.Exec(failFirst)

	text, failed := a.call("list-dead-letters", map[string]any{"group": "billing"})
	var letters []struct {
		ID    int64
		Error string
	}
	if err := json.Unmarshal([]byte(text), &letters); failed || err != nil || len(letters) != 1 || letters[0].Error != "card declined" {
		t.Fatalf("the list: %s", text)
	}
	which := map[string]any{"group": "billing", "error": "declined"}
	preview, failed := a.call("redrive-dead-letters", which)
	code := previewCode.FindStringSubmatch(preview)
	if failed || code == nil || !strings.Contains(preview, "redrive 1 dead letter") {
		t.Fatalf("the preview: %s", preview)
	}
	const redriven = "select not exists (select from posthorn.list_dead_letters('default'))"
	if a.is(redriven) {
		t.Fatal("the preview has redriven")
	}
	a.Exec("select posthorn.publish('default', 'order.placed')")
	a.Exec(failFirst)
	which["confirm"] = code[1]
	if again, _ := a.call("redrive-dead-letters", which); !strings.Contains(again, "another preview") || !strings.Contains(again, "redrive 2 dead letters") {
		t.Errorf("a redrive of more than was previewed: %s", again)
	} else {
		which["confirm"] = previewCode.FindStringSubmatch(again)[1]
	}
	if done, failed := a.call("redrive-dead-letters", which); failed || !strings.Contains(done, "redrove 2 dead letters") {
		t.Errorf("the redrive: %s", done)
	}
	if !a.is(redriven) {
		t.Error("nothing was redriven")
	}
	if !a.is("select actor = 'mcp' and action = 'redrive-dead-letters' from posthorn.list_actions('default', null, 1, null, '{}')") {
		t.Error("the audit log does not have it")
	}
}

// An assistant answers what became of an order: it finds the events by their key, one of them whole, and its outcome in
// every group.
func TestAssistantFollowsAnOrder(t *testing.T) {
	t.Parallel()
	a := startAssistant(t)
	a.Exec("select posthorn.define_group('default', g, '{}') from unnest('{billing,mail}'::text[]) g")
	a.Exec("select posthorn.publish('default', 'order.placed', json_build_object('note', repeat('long ', 100)), key => 'o-17')")
	a.Exec(failFirst)
	a.Exec("select posthorn.settle(lease, attempt) from posthorn.claim('default', 'mail', 'n', 1)")
	a.Exec("select posthorn.publish('default', 'order.paid', key => 'o-17') union all select posthorn.publish('default', 'order.paid', key => 'o-18')")

	type event struct {
		ID      int64
		Type    string
		Key     string
		Payload struct{ Note string }
	}
	var found struct {
		Items []event
		Next  string
	}
	var types []string
	for cursor := ""; ; cursor = found.Next {
		found.Next = ""
		text, failed := a.call("search-events", map[string]any{"key": "o-17", "order": "oldest", "limit": 1, "cursor": cursor})
		if err := json.Unmarshal([]byte(text), &found); failed || err != nil || len(found.Items) > 1 || strings.Contains(text, strings.Repeat("long ", 60)) {
			t.Fatalf("the search: %s", text)
		}
		for _, e := range found.Items {
			types = append(types, e.Key+" "+e.Type)
		}
		if found.Next == "" {
			break
		}
	}
	if got := strings.Join(types, ", "); got != "o-17 order.placed, o-17 order.paid" {
		t.Fatalf("found %s", got)
	}
	text, failed := a.call("get-event", map[string]any{"id": 1})
	var whole event
	if err := json.Unmarshal([]byte(text), &whole); failed || err != nil || whole.Payload.Note != strings.Repeat("long ", 100) {
		t.Errorf("the event: %s", text)
	}
	text, failed = a.call("get-event-outcomes", map[string]any{"id": 1})
	var outcomes []struct{ Group, State, Error string }
	if err := json.Unmarshal([]byte(text), &outcomes); failed || err != nil {
		t.Fatalf("the outcomes: %s", text)
	}
	slices.SortFunc(outcomes, func(x, y struct{ Group, State, Error string }) int { return strings.Compare(x.Group, y.Group) })
	if got := fmt.Sprint(outcomes); got != "[{billing DEAD card declined} {mail COMPLETED }]" {
		t.Errorf("the outcomes: %s", got)
	}
	if text, failed := a.call("search-events", map[string]any{"cursor": "x"}); !failed || !strings.Contains(text, "Give the field next") {
		t.Errorf("another cursor: %s", text)
	}
}

// An assistant publishes and enqueues after a preview, and both are in the audit log.
func TestAssistantPublishesAndEnqueues(t *testing.T) {
	t.Parallel()
	a := startAssistant(t, "--allow-changes")
	for _, change := range []struct {
		tool   string
		given  map[string]any
		says   string
		result string // whether it was done as it was asked for
		action string
	}{
		{
			"publish-event",
			map[string]any{"type": "order.placed", "key": "o-17", "payload": map[string]any{"total": 12}, "tags": []string{"web"}, "metadata": map[string]any{"why": "a person asked"}},
			"published event 1",
			"select count(*) = 1 from posthorn.events where type = 'order.placed' and key = 'o-17' and payload->>'total' = '12' and tags = '{web}' and metadata->>'why' = 'a person asked'",
			"publish-events order.placed",
		},
		{
			"enqueue-job",
			map[string]any{"title": "send invoice", "tags": []string{"mail"}, "payload": map[string]any{"order": "o-17"}, "retry_delays": []string{"1 minute"}, "max_retries": 0},
			"job 1 is enqueued",
			"select count(*) = 1 from posthorn.jobs where title = 'send invoice' and payload->>'order' = 'o-17' and tags = '{mail}' and max_retries = 0",
			"enqueue-job send invoice",
		},
	} {
		preview, failed := a.call(change.tool, change.given)
		code := previewCode.FindStringSubmatch(preview)
		if failed || code == nil || !strings.Contains(preview, "o-17") {
			t.Fatalf("the preview of %s: %s", change.tool, preview)
		}
		if a.is(change.result) {
			t.Errorf("the preview of %s has done it", change.tool)
		}
		change.given["confirm"] = code[1]
		if text, failed := a.call(change.tool, change.given); failed || !strings.Contains(text, change.says) {
			t.Errorf("%s: %s", change.tool, text)
		}
		if !a.is(change.result) {
			t.Errorf("%s has not done it", change.tool)
		}
		if !a.is("select actor = 'mcp' and action || ' ' || subject = '" + change.action + "' and done = 1 from posthorn.list_actions('default', null, 1, null, '{}')") {
			t.Errorf("the audit log does not have %s", change.action)
		}
	}
}

// Without --allow-changes, an assistant can only look.
func TestAssistantOnlyLooks(t *testing.T) {
	t.Parallel()
	a := startAssistant(t)
	names := a.names()
	for _, name := range []string{"list-dead-letters", "get-job", "list-webhook-deliveries", "preview-seek-group", "search-events", "get-event", "get-event-outcomes"} {
		if !strings.Contains(names, " "+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"redrive-dead-letters", "pause-group", "create-token", "publish-event", "enqueue-job"} {
		if strings.Contains(names, " "+name+" ") {
			t.Errorf("%s is offered", name)
		}
	}
	a.Exec("select posthorn.define_group('default', 'billing', '{}')")
	_, err := a.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pause-group", Arguments: map[string]any{"name": "billing"}})
	if err == nil || !strings.Contains(err.Error(), "--allow-changes") {
		t.Errorf("pausing a group: %v", err)
	}
}

// A list has no cursor: its answer does not say where the next page begins. That of a search does.
func TestAssistantHasNoCursors(t *testing.T) {
	t.Parallel()
	tools, err := startAssistant(t).session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := 0
	for _, tool := range tools.Tools {
		inputs, _ := tool.InputSchema.(map[string]any)["properties"].(map[string]any) // none: nil
		if inputs["limit"] != nil {
			limits++
		}
		if (inputs["cursor"] != nil) != (tool.Name == "search-events") {
			t.Errorf("%s has a cursor: %v", tool.Name, inputs["cursor"] != nil)
		}
	}
	if limits == 0 {
		t.Error("no list has a limit; the schemas have another form")
	}
}

// Secrets stay out of conversations, also with --allow-changes.
func TestAssistantSeesNoSecrets(t *testing.T) {
	t.Parallel()
	a := startAssistant(t, "--allow-changes")
	names := a.names()
	for _, name := range []string{"create-token", "create-webhook", "rotate-webhook-secret"} {
		if strings.Contains(names, " "+name+" ") {
			t.Errorf("%s is offered", name)
		}
	}
	if !strings.Contains(names, " pause-group ") {
		t.Error("pause-group is missing")
	}
}

// A secret is no input, and of the URL of a webhook, which may have one, the conversation has the host.
func TestAssistantTakesNoSecrets(t *testing.T) {
	t.Parallel()
	a := startAssistant(t, "--allow-changes")
	a.Exec(`select posthorn.create_webhook('default', 'chat', '{"url": "https://chat.example:8443/T07/sesame?key=word"}')`)
	tools, err := a.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		inputs, _ := tool.InputSchema.(map[string]any)["properties"].(map[string]any)
		for name := range inputs {
			if name == "headers" || strings.Contains(name, "secret") {
				t.Errorf("%s takes %s", tool.Name, name)
			}
		}
	}
	for _, given := range []map[string]any{{"headers": map[string]any{"Authorization": "sesame"}}, {"secret": "whsec_c2VzYW1l"}} {
		given["name"] = "chat"
		if text, failed := a.call("change-webhook", given); !failed || !strings.Contains(text, "this conversation is kept") || strings.Contains(text, "sesame") {
			t.Errorf("a secret: %s", text)
		}
	}
	confirmed := map[string]any{"name": "chat", "batch": 2}
	preview, _ := a.call("change-webhook", confirmed)
	code := previewCode.FindStringSubmatch(preview)
	if code == nil {
		t.Fatalf("the preview: %s", preview)
	}
	confirmed["confirm"] = code[1]
	for tool, given := range map[string]map[string]any{
		"list-webhooks": nil, "get-webhook": {"name": "chat"}, "delete-webhook": {"name": "chat"}, "change-webhook": confirmed,
	} {
		if text, failed := a.call(tool, given); failed || !strings.Contains(text, "https://chat.example:8443/…") || strings.Contains(text, "sesame") || strings.Contains(text, "word") {
			t.Errorf("%s: %s", tool, text)
		}
	}
}

// Inputs that a tool does not allow are refused with a remedy.
func TestAssistantIsTold(t *testing.T) {
	t.Parallel()
	a := startAssistant(t, "--allow-changes")
	for _, refused := range []struct {
		tool      string
		arguments map[string]any
		says      string
	}{
		{"get-group", nil, "name is missing"},
		{"get-group", map[string]any{"name": "billing"}, "billing"},
		{"list-dead-letters", map[string]any{"grup": "billing"}, "no input grup"},
		{"list-dead-letters", map[string]any{"limit": 0}, "limit is out of range: 0. Give a whole number from 1 to 1000."},
		{"list-dead-letters", map[string]any{"limit": "many"}, "limit is not valid"},
		{"list-dead-letters", map[string]any{"cursor": "7"}, "no input cursor"},
		{"put-schedule", map[string]any{"name": "n", "cron_expression": "@daily", "event_type": "e", "catch_up": "some"}, "It is one of skip, once, all."},
		{"redrive-dead-letters", nil, "no dead letters are selected"},
	} {
		if text, failed := a.call(refused.tool, refused.arguments); !failed || !strings.Contains(text, refused.says) {
			t.Errorf("%s %v: %s", refused.tool, refused.arguments, text)
		}
	}
	a.Exec("select posthorn.define_group('default', 'billing', '{}')")
	pause := map[string]any{"name": "billing"}
	preview, _ := a.call("pause-group", pause)
	pause["confirm"] = previewCode.FindStringSubmatch(preview)[1]
	a.call("pause-group", pause)
	if text, _ := a.call("get-group", map[string]any{"name": "billing"}); !strings.Contains(text, `"paused":true`) {
		t.Errorf("the group: %s", text)
	}
}

// A call that its client gives up stops in the database, and has no answer.
func TestAssistantCancels(t *testing.T) {
	t.Parallel()
	a := startAssistant(t)
	tx, err := a.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "lock table posthorn.groups in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: "list-groups"})
		ended <- err
	}()
	const waits = `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
	await.True(t, "the call waits for the lock", func() bool { return a.is(waits) })
	giveUp()
	if err := await.Value(t, "the end of the call", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	await.True(t, "nothing waits for the lock", func() bool { return !a.is(waits) })
	if err := a.session.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A message that is too large is refused, and the session goes on.
func TestAssistantSaysTooMuch(t *testing.T) {
	t.Parallel()
	a := startAssistant(t)
	much := strings.Repeat("x", 5<<20)
	_, err := a.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get-group", Arguments: map[string]any{"name": much}})
	if err == nil || !strings.Contains(err.Error(), "larger than 4 MiB: give less in one call") {
		t.Errorf("a call with 5 MiB: %v", err)
	}
	if text, failed := a.call("list-groups", nil); failed || text == "" {
		t.Errorf("the call after it: %s", text)
	}
}

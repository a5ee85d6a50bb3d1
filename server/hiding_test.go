package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
	pages "github.com/posthorn/posthorn/server/page"
)

// hush is in every text of a thing that is about the restricted stream: in its name, and in
// addresses, keys, payloads and errors.
const hush = "xq7"

// nobody is the number of nothing.
const nobody = 999_999_999

// secrets are all texts of the restricted stream and of things that are about it. Somewhere
// on each face a token that names the stream sees them.
var secrets = []string{
	"xq7stream", "xq7sealed", "xq7type", "xq7key", "xq7tag", "xq7payload", "xq7error", "xq7group", "xq7sub", "xq7shared", "xq7condition",
	"xq7schedule", "xq7hook", "xq7url", "xq7header", "xq7disabled", "xq7excerpt", "xq7relay", "xq7import", "xq7handler", "xq7filter",
	"xq7failing", "xq7open",
}

// unseen has the names of things that are about the restricted stream, by the tag of the
// routes that have such a name in their path.
var unseen = map[string][]map[string]string{
	"groups":        {{"name": "xq7group"}, {"name": "xq7relay"}},
	"subscriptions": {{"group": "xq7group", "name": "xq7sub"}, {"group": "shared", "name": "xq7shared"}},
	"webhooks":      {{"name": "xq7hook"}, {"name": "xq7disabled"}},
	"schedules":     {{"name": "xq7schedule"}},
	"projections":   {{"name": "xq7relay"}},
	"relays":        {{"name": "xq7relay"}},
	"imports":       {{"name": "xq7import"}},
	"archives":      nil, // they are of all streams
	"streams":       {{"name": "xq7stream"}, {"name": "xq7sealed"}},
	"namespaces":    nil, // they are of no stream
	"nodes":         nil,
	"jobs":          nil,
	"job limits":    nil,
}

// bodies are those of requests, by the id of the operation.
var bodies = map[string]string{
	"change-webhook": `{"url":"https://spy.example"}`, "rotate-webhook-secret": `{}`, "redeliver-webhook": `{"events":[EVENT]}`,
	"create-webhook": `{"name":"crm","url":"https://spy.example"}`, "put-schedule": `{"cron_expression":"@daily","event_type":"a"}`,
	"claim-events": `{}`, "define-group": `{}`, "seek-group": `{"to":"beginning"}`, "put-subscription": `{"filter":{"type":"a"}}`,
	"redrive-dead-letters": `{"all":true}`, "purge-dead-letters": `{"all":true}`, "discard-dead-letters": `{"all":true}`, "recover-dead-letters": `{"all":true}`,
	"redrive-edited-dead-letter": `{"payload":{}}`, "settle-lease": `{"attempt":1}`, "extend-lease": `{"attempt":1}`, "release-lease": `{"attempt":1}`,
	"publish-events": `{"type":"a"}`, "set-stream-policy": `{"security_level":"open"}`, "set-job-limit": `{"max_running":1}`, "define-namespace": `{}`, "close-namespace": `{"moved_to":"db2"}`, "keep-namespace": `{"only":true}`,
	"snooze-job": `{"worker_id":"w"}`, "change-job": `{"priority":1}`, "reset-job": `{}`, "cancel-job": `{}`, "enqueue-job": `{"title":"a","payload":{}}`,
	"retry-jobs": `{"status":"FAILED"}`, "cancel-jobs": `{"status":"PENDING"}`, "delete-jobs": `{"status":"PENDING"}`,
	"create-token": `{"name":"a","scopes":["admin"]}`,
	"start-job":    `{"worker_id":"w"}`, "heartbeat-job": `{"worker_id":"w"}`, "complete-job": `{"worker_id":"w"}`, "fail-job": `{"worker_id":"w","error_message":"e"}`,
	"save-job-step": `{"worker_id":"w","name":"s"}`, "sleep-job": `{"worker_id":"w","name":"s","sleep_for":"1m"}`,
	"await-event": `{"worker_id":"w","name":"s","type":"t","key":"k","timeout":"1m"}`,
}

// hushed is a server whose database has things of all kinds that are about the restricted
// stream, with the ids of some.
type hushed struct {
	*served
	event, delayed, letter, lease int64
	message                       int64  // to a webhook alone
	elsewhere                     int64  // a token of another namespace
	named, others                 string // tokens with all scopes; one names the stream
}

func hush7(t *testing.T) *hushed {
	t.Helper()
	s := &hushed{served: serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})}
	s.exec(t, `select posthorn.set_stream_policy('default', 'xq7stream', 'restricted'),
		posthorn.set_stream_policy('default', 'xq7sealed', 'confidential', kms_key_id => 'xq7keeper')`)
	s.named = s.issue(t, "default", allScopes, "xq7stream", "xq7sealed")
	s.others = s.issue(t, "default", allScopes)
	s.exec(t, `select posthorn.define_namespace('elsewhere')`)
	s.issue(t, "elsewhere", allScopes, "xq7stream")
	s.issue(t, "", allScopes, "xq7stream")
	s.elsewhere = s.number(t, `select max(id) - 1 from posthorn.api_tokens`)
	for _, sql := range []string{
		`insert into posthorn.stream_keys (namespace_id, stream_name, version, keeper, key, created_at)
			select id, 'xq7sealed', 1, 'xq7keeper', 'wrapped', posthorn.now() - interval '90 days' from posthorn.namespaces where namespace = 'default'`,
		`update posthorn.stream_policies set active_key_version = 1 where stream_name = 'xq7sealed'`,
		// Groups and subscriptions.
		`select posthorn.subscribe('default', 'xq7group', 'xq7sub', '{"stream": "xq7stream", "key": "xq7filter"}')`,
		`select posthorn.subscribe('default', 'shared', 'xq7shared', '{"stream": ["xq7stream", "orders"]}'),
			posthorn.subscribe('default', 'shared', 'open', '{"stream": "orders"}')`,
		`select posthorn.subscribe('default', 'conditions', 'xq7condition', '{"conditions_sql": "e.stream = ''xq7stream''"}'),
			posthorn.subscribe('default', 'conditions', 'all', '{"conditions_sql": "true"}')`,
		`update posthorn.subscriptions set stopped_at = posthorn.now(), error = 'xq7error in a condition' where name in ('xq7condition', 'all')`,
		`select posthorn.define_group('default', 'reader', '{"start": "beginning", "attempts": 1}')`,
		`select posthorn.register_node('default', 'node-1', 'web'),
			posthorn.set_node_handlers('default', 'node-1', 'xq7group', '[{"name": "xq7handler", "patterns": ["xq7type"]}]'),
			posthorn.set_node_handlers('default', 'node-1', 'shared', '[{"name": "xq7shared", "patterns": []}]')`,
		// Events.
		`select posthorn.publish('default', 'xq7type', '{"a": "xq7payload"}', stream => 'xq7stream', key => 'xq7key', tags => '{xq7tag}') from generate_series(1, 4)`,
		`select posthorn.publish('default', 'xq7type', '{"a": "xq7payload"}', stream => 'xq7stream', key => 'xq7key', deliver_at => posthorn.now() + interval '1 day')`,
		`select posthorn.publish('default', 'order.placed', stream => 'orders')`,
		// Schedules.
		`select posthorn.schedule('default', 'xq7schedule', '@every 1h', 'xq7type', '{"a": "xq7payload"}', stream => 'xq7stream', key => 'xq7key')`,
		`select posthorn.schedule('default', 'nightly', '@every 30d', 'report.due')`,
		`update posthorn.scheduled_tasks set failures = 3, last_error = 'xq7error of a schedule' where name = 'xq7schedule'`,
		// Relays, imports and archives: of the stream alone, and of all.
		`select posthorn.define_relay('default', 'xq7relay', '{"streams": ["xq7stream"]}'), posthorn.define_relay('default', 'to-redis', '{"streams": ["xq7stream", ">"]}')`,
		`update posthorn.leads set error = 'xq7error of a broker', failed_at = posthorn.now() where kind = 'relay'`,
		`select posthorn.define_import('default', 'xq7import', 'nats://broker:4222', 'nats', '{xq7stream}'),
			posthorn.define_import('default', 'from-nats', 'nats://broker:4222', 'nats', '{xq7stream,>}')`,
		`insert into posthorn.import_streams (import_id, stream, error, failed_at, trimmed_at)
			select id, 'xq7stream', 'xq7error of a stream', posthorn.now(), posthorn.now() from posthorn.imports`,
		`select posthorn.define_archive('default', 'cold', 'file:///var/archive')`,
		`insert into posthorn.archive_streams (archive_id, stream_id, failures, error)
			select a.id, s.id, 1, 'xq7error of an archive' from posthorn.archives a, posthorn.stream_names s where s.name = 'xq7stream'`,
		`insert into posthorn.import_dead_letters (import_id, stream, event_id, print, log, log_namespace, type, key, tags, payload, metadata, published_at, reason)
			select id, 'xq7stream', 1, 1, gen_random_uuid(), 'xq7there', 'xq7type', 'xq7key', '{}', '{"a": "xq7payload"}', '{}', posthorn.now(), 'xq7reason' from posthorn.imports`,
		// A failover that has lost events of the stream.
		`insert into posthorn.moves (next_id, reason, last_id, timeline) values (100, 'promotion', 10, 2)`,
		`insert into posthorn.lost_events (id, namespace_id, next_id, stream, type, key, tags, payload, metadata, published_at, found_by)
			select 11, id, 100, 'xq7stream', 'xq7type', 'xq7key', '{xq7tag}', '{"a": "xq7payload"}', '{}', posthorn.now(), 'relay xq7relay' from posthorn.namespaces where namespace = 'default'`,
		`insert into posthorn.lost_looks (next_id, group_id, entries, error) select 100, group_id, 7, 'xq7error of a stream' from posthorn.relays`,
		// A projection that an event of the stream stops.
		`select posthorn.define_projection('default', 'totals')`,
		`select posthorn.fail_projection(lease, attempt, (select min(id) from posthorn.events), 'xq7error of a projection') from posthorn.claim('default', 'totals', 'w', 1)`,
	} {
		s.exec(t, sql)
	}
	s.hushWebhooks(t)
	s.hushFailures(t)
	s.hushActions(t)
	s.ph.Group("xq7group", posthorn.GroupConfig{}).Handle("xq7handler", ">", func(context.Context, posthorn.Event) error { return nil })
	posthorntest.Advance(t, s.ph, 2*time.Hour)
	s.exec(t, `update posthorn.leases set until = posthorn.now() + interval '1 day' where until is not null`)
	return s
}

// hushWebhooks makes webhooks of the stream, one of which fails and one is disabled, and
// one that has had an event of the stream before that was restricted.
func (s *hushed) hushWebhooks(t *testing.T) {
	t.Helper()
	for _, name := range []string{"xq7hook", "xq7disabled"} {
		s.call(t, "POST", "/v1/webhooks", `{"name":"`+name+`","url":"https://xq7url.example","filter":{"stream":["orders","xq7stream"]},"headers":{"xq7header":"a"}}`, s.named).want(t, 201)
	}
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example"}`, s.others).want(t, 201)
	s.call(t, "POST", "/v1/webhooks/xq7hook/test", nil, s.named).want(t, 200)
	s.call(t, "POST", "/v1/webhooks/xq7disabled/disable?reason=xq7disabled", nil, s.named).want(t, 204)
	s.exec(t, `update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = 'xq7failing' where name = 'xq7hook'`)
	s.exec(t, `insert into posthorn.webhook_attempts (event_id, webhook_id, attempt, duration_ms, status, outcome, request_id, error, excerpt)
		select e.id, w.id, 1, 20, 500, 'retry', 'msg_1', 'xq7error of an endpoint', 'xq7excerpt' from posthorn.webhooks w, posthorn.events e
		where w.name <> 'crm' or e.type = 'xq7type'`)
}

// hushFailures makes retries, dead letters and a lease of the stream; also of an open
// event in things that are about the stream.
func (s *hushed) hushFailures(t *testing.T) {
	t.Helper()
	lease := s.claim(t, "reader", `{"max_events":3,"lease_seconds":80000}`, s.named)
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", lease.Lease), map[string]any{"attempt": lease.Attempt, "failures": []map[string]any{
		{"event": lease.Events[0].ID, "error": "xq7error of a handler", "permanent": true},
		{"event": lease.Events[1].ID, "error": "xq7error again", "retry_in_seconds": 1e6},
		{"event": lease.Events[2].ID, "error": "xq7error", "permanent": true},
	}}, s.named).want(t, 204)
	s.lease = s.claim(t, "reader", `{"max_events":1,"lease_seconds":80000}`, s.named).Lease
	s.exec(t, `insert into posthorn.retries (group_id, event_id, attempts, due_at, error, failed_at)
		select g.id, e.id, 1, posthorn.now() + interval '1 day', 'xq7error of a retry', posthorn.now()
		from posthorn.groups g, posthorn.events e where g.name = 'reader' and e.type = 'xq7type' on conflict do nothing`)
	s.exec(t, `insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, error, failed_at)
		select g.id, e.id, 'xq7shared', 1, posthorn.now() + interval '1 day', 'xq7error of a subscription', posthorn.now()
		from posthorn.groups g, posthorn.events e where g.name = 'shared' and e.type = 'order.placed'`)
	for group, subscription := range map[string]string{"shared": "xq7shared", "webhooks": "xq7hook", "xq7group": "xq7sub"} {
		s.exec(t, `insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason, error, failed_at)
			select g.namespace_id, g.id, $2, e.id, e.stream_id, e.type, '{}', e.payload, e.metadata, e.created_at, 1, 'xq7error', 'xq7open', posthorn.now()
			from posthorn.groups g, posthorn.events e where g.name = $1 and e.type = 'order.placed'`, group, subscription)
	}
	s.exec(t, `insert into posthorn.leases (group_id, namespace_id, node, until, ids)
		select g.id, g.namespace_id, 'xq7worker', posthorn.now() + interval '1 day', '{1}' from posthorn.groups g where g.name = 'xq7group'`)
	s.event = s.number(t, `select min(id) from posthorn.events where type = 'xq7type'`)
	s.message = s.number(t, `select max(id) from posthorn.events where type = 'posthorn.webhook.test'`)
	s.delayed = s.number(t, `select min(id) from posthorn.delayed`)
	s.letter = s.number(t, `select min(id) from posthorn.dead_letters`)
}

// hushActions leaves entries in the audit log.
func (s *hushed) hushActions(t *testing.T) {
	t.Helper()
	s.call(t, "POST", "/v1/dead-letters/discard", `{"key":"xq7key","error":"xq7error of nobody"}`, s.named).want(t, 200)
	s.call(t, "POST", "/v1/schedules/xq7schedule/pause", nil, s.named).want(t, 204)
	s.call(t, "POST", "/v1/schedules/xq7schedule/resume", nil, s.named).want(t, 204)
	s.call(t, "POST", "/v1/groups/xq7group/pause", nil, s.named).want(t, 204)
	s.call(t, "POST", "/v1/groups/xq7group/resume", nil, s.named).want(t, 204)
	s.call(t, "PUT", "/v1/subscriptions/xq7group/xq7sub2", `{"filter":{"stream":"xq7stream"}}`, s.named).want(t, 200)
	s.call(t, "DELETE", "/v1/subscriptions/xq7group/xq7sub2", nil, s.named).want(t, 200)
	operator := s.ph.Admin().By("operator")
	for _, err := range []error{
		operator.SetStreamPolicy(t.Context(), "xq7stream", admin.StreamPolicy{SecurityLevel: "restricted"}),
		operator.RotateStreamKey(t.Context(), "xq7sealed"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := operator.Redrive(t.Context(), admin.DeadLetterFilter{Key: "xq7key of nobody"}); err != nil {
		t.Fatal(err)
	}
	b := s.visit(t)
	b.signIn(strings.TrimPrefix(s.named, "Authorization: Bearer "))
	page := b.get("/ui/default/event/publish")
	b.post(page, "/ui/default/event/publish", url.Values{"type": {"xq7type"}, "stream": {"xq7stream"}, "payload": {"{}"}}).wantPage(t, 200)
}

// path fills the parameters of a route.
func (s *hushed) path(route string, names map[string]string, id int64) string {
	for name, value := range names {
		route = strings.ReplaceAll(route, "{"+name+"}", value)
	}
	return strings.NewReplacer("{id}", strconv.FormatInt(id, 10), "{lease}", strconv.FormatInt(id, 10), "{name}", "none", "{group}", "none", "{tag}", "none").Replace(route)
}

// request is a request of a route, and the same for something that does not exist.
type request struct {
	path, missing string
	names         []string // that it has itself
	makes         bool     // a thing that is not there yet
}

// topic is the tag of an operation, in either spelling.
func topic(operation *huma.Operation) string {
	return strings.TrimSuffix(operation.Tags[0], ", compatible")
}

// requests are those of a route: for each thing of the restricted stream that it can name.
func (s *hushed) requests(t *testing.T, method, route string, operation *huma.Operation) []request {
	t.Helper()
	tag := topic(operation)
	required := "limit=1000"
	switch {
	case route == "/v1/groups/{name}/seek" && method == http.MethodGet:
		required = "to=beginning"
	case route == "/v1/subscriptions" || route == "/v1/dead-letters" || route == "/v1/dead-letters/reasons":
		return append(queries(route, "group", "xq7group", "xq7relay"), request{path: route + "?group=shared"}, request{path: route + "?group=conditions"})
	case route == "/v1/events":
		return append(queries(route, "stream", "xq7stream"), request{path: route + "?limit=1000"}, queries(route, "key", "xq7key")[0])
	case route == "/v1/stream":
		return nil // see TestNoStreamShowsRestrictedEvents
	case tag == "failovers":
		return []request{{path: s.path(route, nil, 1)}} // there for everybody, without the events of the stream
	case !strings.Contains(route, "{name}") && !strings.Contains(route, "{id}") && !strings.Contains(route, "{lease}"):
		if slices.ContainsFunc(operation.Parameters, func(p *huma.Param) bool { return p.Name == "limit" }) {
			return []request{{path: route + "?" + required}}
		}
		return []request{{path: s.path(route, nil, 1)}}
	}
	query := ""
	if required == "to=beginning" {
		query = "?" + required
	}
	if strings.Contains(route, "{name}") {
		things, known := unseen[tag]
		if !known {
			t.Errorf("%s %s: the test does not know the names of %s; add them to unseen", method, route, tag)
		}
		var all []request
		for _, names := range things {
			missing := map[string]string{}
			for parameter, name := range names {
				if missing[parameter] = name; strings.Contains(name, hush) {
					missing[parameter] = "none"
				}
			}
			r := request{path: s.path(route, names, 1) + query, missing: s.path(route, missing, 1) + query, makes: method == http.MethodPut}
			for _, name := range names {
				r.names = append(r.names, name)
			}
			all = append(all, r)
		}
		return all
	}
	ids := map[string][]int64{"events": {s.event, s.delayed}, "dead letters": {s.letter, s.letter + 1}, "groups": {s.lease}, "jobs": {s.event}, "nodes": {1}, "tokens": {s.elsewhere}}[tag]
	if ids == nil {
		t.Errorf("%s %s: the test does not know the ids of %s", method, route, tag)
	}
	var all []request
	for _, id := range ids {
		all = append(all, request{path: s.path(route, nil, id), missing: s.path(route, nil, nobody), names: []string{strconv.FormatInt(id, 10)}})
	}
	return all
}

func queries(route, parameter string, names ...string) (all []request) {
	for _, name := range names {
		all = append(all, request{path: route + "?" + parameter + "=" + name, missing: route + "?" + parameter + "=none", names: []string{name}})
	}
	return all
}

// body is that of a request for an operation.
func (s *hushed) body(t *testing.T, operation *huma.Operation) any {
	t.Helper()
	if operation.RequestBody == nil {
		return nil
	}
	body, known := bodies[strings.TrimPrefix(operation.OperationID, "compatible-")]
	if !known {
		t.Errorf("%s: the test does not know its body; add it to bodies", operation.OperationID)
	}
	return strings.ReplaceAll(body, "EVENT", strconv.FormatInt(s.event, 10))
}

// check fails if an answer has a text of the restricted stream, apart from those of the
// request itself.
func (a answered) check(t *testing.T, what string, names ...string) {
	t.Helper()
	text := fmt.Sprint(a.header) + a.body
	if !strings.Contains(text, hush) { // found a hundred times as fast as by the pattern
		return
	}
	for _, found := range nearHush.FindAllString(unnamed(names, text), 3) {
		t.Errorf("%s: status %d tells %q", what, a.status, found)
	}
}

var (
	nearHush = regexp.MustCompile(`.{0,60}` + hush + `.{0,60}`)
	newToken = regexp.MustCompile(`ph_[A-Za-z0-9_-]+`)
)

// unnamed replaces the names of a request in its answer.
func unnamed(names []string, text string) string {
	text = newToken.ReplaceAllString(text, "a new token") // of letters by chance
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int { return len(b) - len(a) })
	for _, name := range append(names, strconv.Itoa(nobody)) {
		if name != "" && strings.Contains(text, name) {
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).ReplaceAllString(text, "none")
		}
	}
	return text
}

// A token that does not name a restricted stream learns nothing of the stream, and of
// things that are about it, from any route: they are not there, as if they did not exist.
func TestNoRouteShowsRestrictedThings(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	tokens := map[string]string{"all scopes": s.others}
	for _, one := range allScopes {
		tokens[string(one)] = s.issue(t, "default", []scope{one})
	}
	s.server.Drain() // so that no request waits
	for route, operation := range operations(s.server) {
		method, path, _ := strings.Cut(route, " ")
		body := s.body(t, operation)
		for _, r := range s.requests(t, method, path, operation) {
			for scopes, token := range tokens {
				what := fmt.Sprintf("%s %s with %s", method, r.path, scopes)
				got := s.call(t, method, r.path, body, token)
				got.check(t, what, r.names...)
				if r.missing == "" || r.makes && got.status == http.StatusForbidden {
					continue
				}
				if r.makes {
					t.Errorf("%s: status %d: %s", what, got.status, got.body)
					continue
				}
				want := s.call(t, method, r.missing, body, token)
				if got.status != want.status || unnamed(r.names, got.body) != unnamed(r.names, want.body) {
					t.Errorf("%s: %d %s\nfor nothing: %d %s", what, got.status, got.body, want.status, want.body)
				}
			}
		}
	}
}

// A thing may not have the name of one that is hidden, and the answer does not say why.
func TestNamesOfRestrictedThings(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	for _, r := range []struct{ method, path, body, name string }{
		{"POST", "/v1/webhooks", `{"name":"xq7hook","url":"https://a.example"}`, "xq7hook"},
		{"PUT", "/v1/schedules/xq7schedule", `{"cron_expression":"@daily","event_type":"a"}`, "xq7schedule"},
		{"PUT", "/v1/groups/xq7group", `{}`, "xq7group"},
		{"PUT", "/v1/groups/xq7relay", `{}`, "xq7relay"},
		{"PUT", "/v1/subscriptions/xq7group/new", `{}`, "new"},
		{"PUT", "/v1/subscriptions/shared/xq7shared", `{"filter":{"stream":"orders"}}`, "xq7shared"},
	} {
		p := s.call(t, r.method, r.path, r.body, s.others).wantProblem(t, 403, "")
		equal(t, r.method+" "+r.path, p.Detail+". "+p.Hint, "the name '"+r.name+"' cannot be used. Choose another name.")
	}
}

// A token makes no group and no subscription that would hand out events which it may not read: it could neither use nor
// remove it.
func TestWhatATokenMakesItCanRemove(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	for _, r := range []struct{ path, body string }{
		{"/v1/groups/mine", `{}`},
		{"/v1/subscriptions/mine/all", `{}`},
		{"/v1/subscriptions/mine/pattern", `{"filter":{"type":"a"}}`},
		{"/v1/subscriptions/mine/pattern", `{"filter":{"stream":["orders",">"]}}`},
		{"/v1/subscriptions/mine/condition", `{"conditions_sql":"true"}`},
	} {
		s.call(t, "PUT", r.path, r.body, s.others).wantProblem(t, 403, "")
	}
	equal(t, "groups", s.number(t, "select count(*) from posthorn.groups where name = 'mine'"), 0)
	s.call(t, "PUT", "/v1/subscriptions/mine/orders", `{"filter":{"stream":"orders"}}`, s.others).want(t, 200)
	s.call(t, "PUT", "/v1/subscriptions/mine/more", `{"filter":{"type":"a"}}`, s.others).wantProblem(t, 403, "would hand out events of restricted streams")
	s.call(t, "PUT", "/v1/groups/mine", `{"attempts":3}`, s.others).want(t, 200)
	s.call(t, "POST", "/v1/groups/mine/claim", `{}`, s.others).want(t, 200)
	s.call(t, "DELETE", "/v1/subscriptions/mine/orders", nil, s.others).want(t, 200)
	s.call(t, "DELETE", "/v1/groups/mine", nil, s.others).want(t, 200)
	s.call(t, "PUT", "/v1/groups/mine", `{}`, s.named).want(t, 200)
}

// A condition of a webhook is evaluated on events of restricted streams, although the webhook does not get them. A token that
// does not name the stream writes none, and does not see the error of another's, which may show values of an event.
func TestConditionsOfWebhooksShowNothing(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	condition := `{"name":"spy","url":"https://a.example","conditions_sql":"(e.payload->>'salary')::int > 0"}`
	s.call(t, "POST", "/v1/webhooks", condition, s.others).wantProblem(t, 403, "restricted streams")
	s.call(t, "PATCH", "/v1/webhooks/crm", `{"conditions_sql":"true"}`, s.others).wantProblem(t, 403, "restricted streams")
	s.call(t, "PATCH", "/v1/webhooks/crm", `{"filter":{"type":"order.*"}}`, s.others).want(t, 200)
	s.call(t, "POST", "/v1/webhooks", condition, s.named).want(t, 201)
	s.exec(t, "update posthorn.subscriptions set stopped_at = posthorn.now(), error = 'invalid input syntax: xq7salary' where name = 'spy'")
	for _, path := range []string{"/v1/webhooks", "/v1/webhooks/spy"} {
		if body := s.call(t, "GET", path, nil, s.named).want(t, 200).body; !strings.Contains(body, "xq7salary") {
			t.Errorf("%s shows no error: %s", path, body)
		}
		if body := s.call(t, "GET", path, nil, s.others).want(t, 200).body; strings.Contains(body, "xq7salary") || !strings.Contains(body, "withheld") {
			t.Errorf("%s shows the error: %s", path, body)
		}
	}
}

// A caller that does not name the stream does not delete an import that reads it beside others: the next import
// of that name would publish its events again, and a replacement may hold them.
func TestThingsThatReadRestrictedStreamsStay(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	s.exec(t, "select posthorn.begin_replacement('default', 'totals')")
	s.call(t, "DELETE", "/v1/imports/from-nats", nil, s.others).wantProblem(t, 403, "restricted streams")
	s.call(t, "POST", "/v1/projections/totals/abandon", nil, s.others).wantProblem(t, 403, "restricted streams")
	s.call(t, "DELETE", "/v1/imports/from-nats", nil, s.named).want(t, 204)
	s.call(t, "POST", "/v1/projections/totals/abandon", nil, s.named).want(t, 204)
}

// page is the address of a page or an action with parameters that name things.
func pageQuery(path string, names url.Values) string {
	address := "/ui/default"
	if path != "" {
		address += "/" + path
	}
	return address + "?" + names.Encode()
}

// things are parameters of pages: for each thing that is about the stream.
func (s *hushed) things() (all []url.Values) {
	all = append(all, url.Values{})
	for _, name := range []string{"xq7stream", "xq7group", "xq7relay", "xq7import", "xq7hook", "xq7disabled", "xq7schedule", "shared", "reader", "conditions", "webhooks", "to-redis", "from-nats", "cold", "totals", "crm"} {
		all = append(all, url.Values{"name": {name}, "group": {name}, "stream": {name}, "q": {name}, "to": {"beginning"}, "at": {"2026-01-01"}, "id": {"999999999"}})
	}
	for _, id := range []int64{s.event, s.delayed, s.message, s.letter, s.letter + 1} {
		text := strconv.FormatInt(id, 10)
		all = append(all, url.Values{"id": {text}, "like": {text}, "q": {text}, "event": {text}, "last": {"999999999"}, "payload": {"{}"}})
	}
	for id := range 20 { // of the audit log
		all = append(all, url.Values{"id": {strconv.Itoa(id + 1)}})
	}
	return all
}

// isAbout tells whether a page may differ for some parameters.
func isAbout(screen pages.Screen, names url.Values) bool {
	switch {
	case len(names) == 0:
		return true
	case len(names) == 1: // the number of an entry of the audit log, of a token, or of a failover
		return screen.Path == "action" || screen.Path == "token/revoke" || screen.Path == "failover"
	}
	return screen.Under != screen.Path || slices.Contains([]string{"find", "dead-letters", "groups", "events"}, screen.Path)
}

// No page, no action and no live page shows a thing of a restricted stream to a person
// whose token does not name it.
func TestNoPageShowsRestrictedThings(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	named := s.visit(t) // whose pages are kept for a moment
	named.signIn(strings.TrimPrefix(s.named, "Authorization: Bearer "))
	named.get("/").wantPage(t, 200, "xq7hook", "xq7schedule")
	named.firstMessage(t, "/ui/default")
	b := s.visit(t)
	b.signIn(strings.TrimPrefix(s.others, "Authorization: Bearer "))
	for _, screen := range s.server.pages.Screens() {
		for _, names := range s.things() {
			if !isAbout(screen, names) {
				continue
			}
			b.get(pageQuery(screen.Path, names)).check(t, "page "+screen.Path+"?"+names.Encode(), names.Get("name"))
		}
		if screen.Live {
			b.firstMessage(t, pageQuery(screen.Path, nil)).check(t, "live page "+screen.Path)
		}
	}
	form := b.get("/ui/default/event/publish")
	for _, action := range s.server.pages.Actions() {
		for _, names := range s.things() {
			name := names.Get("name")
			if makesGroups[action.Path] && s.number(t, fmt.Sprintf("select count(*) from posthorn.groups where name = '%s'", name)) == 0 {
				continue // it would make a group of the caller's own
			}
			if strings.Contains(name, hush) || names.Has("event") {
				b.post(form, pageQuery(action.Path, nil), names).check(t, "action "+action.Path+"?"+names.Encode(), name)
			}
		}
	}
	for _, path := range []string{"", "audit", "webhooks", "schedules", "groups", "dead-letters"} {
		b.get(pageQuery(path, nil)).check(t, "page "+path+" after all actions")
	}
	if n := s.number(t, `select count(*) from posthorn.webhook_status where name like 'xq7%' and state <> 'active'`); n != 2 {
		t.Errorf("%d webhooks fail or are disabled, want 2", n)
	}
}

// makesGroups are the actions that make a group of the name that the caller chooses.
var makesGroups = map[string]bool{"group/define": true, "subscription/put": true}

// firstMessage is what a live page sends first.
func (b *visitor) firstMessage(t *testing.T, path string) answered {
	t.Helper()
	return b.s.untilLine(t, b.client, path, "", "Accept: text/event-stream")
}

// untilLine reads a stream up to a line that contains a text.
func (s *served) untilLine(t *testing.T, client *http.Client, path, last string, headers ...string) answered {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%s: status %d, %s", path, response.StatusCode, response.Header.Get("Content-Type"))
	}
	var all strings.Builder
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if last == "" && lines.Text() == "" || last != "" && strings.Contains(lines.Text(), last) {
			return answered{response.StatusCode, response.Header, all.String()}
		}
	}
	t.Fatalf("%s ended: %v: %s", path, lines.Err(), all.String())
	return answered{}
}

// A stream of events shows none of a restricted stream, also none of those that Posthorn
// publishes itself about a webhook of the stream.
func TestNoStreamShowsRestrictedEvents(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	s.exec(t, `select posthorn.publish('default', 'the.end')`)
	for _, query := range []string{"from=beginning", "from=beginning&format=cloudevents", "from=beginning&named=true"} {
		s.untilLine(t, s.client, "/v1/stream?"+query, "the.end", s.others).check(t, "stream "+query)
		seen := s.untilLine(t, s.client, "/v1/stream?"+query, "the.end", s.named)
		for _, want := range []string{"xq7payload", "posthorn.webhook.disabled"} {
			if strings.Contains(seen.body, want) {
				continue
			}
			t.Errorf("%s: a token that names the stream does not see %s: %s", query, want, seen.body)
		}
	}
}

// A token that names the stream sees all of it, over HTTP and on the pages.
func TestNamedTokenSeesRestrictedThings(t *testing.T) {
	t.Parallel()
	s := hush7(t)
	var api, shown strings.Builder
	for route, operation := range operations(s.server) {
		if method, path, _ := strings.Cut(route, " "); method == http.MethodGet && topic(operation) != "jobs" {
			for _, r := range s.requests(t, method, path, operation) {
				api.WriteString(s.call(t, method, r.path, nil, s.named).body)
			}
		}
	}
	b := s.visit(t)
	b.signIn(strings.TrimPrefix(s.named, "Authorization: Bearer "))
	for _, screen := range s.server.pages.Screens() {
		for _, names := range s.things() {
			if !isAbout(screen, names) {
				continue
			}
			page := b.get(pageQuery(screen.Path, names)).body
			for _, values := range names {
				page = strings.ReplaceAll(page, "="+values[0], "=") // links to this page
			}
			shown.WriteString(page)
		}
	}
	for _, secret := range secrets {
		switch secret {
		case "xq7tag", "xq7excerpt", "xq7failing", "xq7header", "xq7import", "xq7handler", "xq7condition", "xq7filter": // see below
		default:
			if !strings.Contains(api.String(), secret) {
				t.Errorf("no route shows %s", secret)
			}
		}
		if !strings.Contains(shown.String(), secret) && secret != "xq7header" && secret != "xq7failing" {
			t.Errorf("no page shows %s", secret)
		}
	}
	for _, secret := range []string{"xq7tag", "xq7excerpt", "xq7failing", "xq7header", "xq7handler", "xq7condition", "xq7filter"} {
		if !strings.Contains(api.String(), secret) {
			t.Errorf("no route shows %s", secret)
		}
	}
}

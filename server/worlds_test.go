package server

import (
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A world is a server whose database has the same open things as that of another one. One
// of both also has things of restricted and confidential streams, which the tokens of the
// test do not name. To these tokens the worlds are the same, but for what docs/access.md
// says: see told.
type world struct {
	*served
	tokens map[string]string // by their scopes
}

// openThings are in both worlds. Events of hidden streams come first, and groups begin
// behind them, so that no group is further behind for them.
var openThings = []string{
	`select posthorn.subscribe('default', 'orders', 'all', '{"stream": "orders"}'), posthorn.subscribe('default', 'orders', 'paid', '{"stream": "orders", "type": "order.paid"}')`,
	`select posthorn.subscribe('default', 'shared', 'open', '{"stream": "orders"}')`,
	`select posthorn.subscribe('default', 'conditions', 'all', '{"conditions_sql": "true"}')`,
	`select posthorn.define_group('default', 'reader', '{"attempts": 1}')`,
	`select posthorn.define_group('default', 'idle')`,
	`select posthorn.register_node('default', 'node-1', 'web'), posthorn.set_node_handlers('default', 'node-1', 'orders', '[{"name": "all", "patterns": ["order.>"]}]')`,
	`select posthorn.schedule('default', 'nightly', '@every 30d', 'report.due'), posthorn.schedule('default', 'weekly', '@every 7d', 'report.due', stream => 'orders')`,
	`update posthorn.scheduled_tasks set failures = 3, last_error = 'no room' where name = 'weekly'`,
	`select posthorn.define_relay('default', 'to-redis', '{"streams": ["orders", ">"]}')`,
	`select posthorn.define_import('default', 'from-nats', 'nats://broker:4222', 'nats', '{orders,>}')`,
	`select posthorn.define_archive('default', 'cold', 'file:///var/archive')`,
	`select posthorn.define_projection('default', 'totals')`,
	// These begin with the first event: behind the hidden ones, too.
	`update posthorn.cursors c set base = posthorn.snapshot(), base_seq = pg_sequence_last_value('posthorn.event_id')
		from posthorn.groups g where g.id = c.group_id and g.name in ('to-redis', 'cold', 'totals')`,
	`update posthorn.cluster set maintained_at = posthorn.now()`,
	`update posthorn.stream_names set created_at = posthorn.now()`,
	`select posthorn.enqueue('default', 'resize', '{"a": 1}', tags => '{images}') from generate_series(1, 3)`,
	`select posthorn.claim_jobs('default', 'worker-1', '{images}', 1)`,
	`select posthorn.set_job_limit('default', 'images', max_running => 5)`,
	`select posthorn.publish('default', 'order.placed', '{"n": 1}', stream => 'orders', key => 'o-1', tags => '{a}')`,
	`select posthorn.publish('default', 'order.paid', '{"n": 2}', stream => 'orders', key => 'o-1')`,
	`select posthorn.publish('default', 'user.made', '{"n": 3}', key => 'u-1')`,
	`select posthorn.publish('default', 'later', '{}', deliver_at => posthorn.now() + interval '1 hour')`,
	`with c as materialized (select * from posthorn.claim('default', 'reader', 'w', 2))
		select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'error', 'no route', 'permanent', true))::jsonb) from c group by lease, attempt`,
	`with c as materialized (select * from posthorn.claim('default', 'orders', 'w', 1)) select posthorn.settle(lease, attempt,
		json_agg(json_build_object('event', event_id, 'error', 'busy', 'retry_in', '1000 seconds'))::jsonb) from c group by lease, attempt`,
	`select posthorn.claim('default', 'reader', 'w', 1)`,
}

// hiddenEvents are published to streams of the namespace, or in the other world to another
// namespace: numbers of events are given out once for all of them.
const hiddenEvents = `select posthorn.publish($1, 'xq7type', '{"a": "xq7payload"}', stream => 'xq7stream', key => 'xq7key', tags => '{xq7tag}') from generate_series(1, 4)`

// hiddenThings are in one world alone.
var hiddenThings = []string{
	`select posthorn.set_stream_policy('default', 'xq7sealed', 'confidential', kms_key_id => 'xq7keeper')`,
	`insert into posthorn.stream_keys (namespace_id, stream_name, version, keeper, key, created_at)
		select id, 'xq7sealed', 1, 'xq7keeper', 'wrapped', posthorn.now() - interval '90 days' from posthorn.namespaces where namespace = 'default'`,
	`update posthorn.stream_policies set active_key_version = 1 where stream_name = 'xq7sealed'`,
	`select posthorn.subscribe('default', 'xq7group', 'all', '{"stream": "xq7stream"}')`, // the name of a visible one, too
	`select posthorn.subscribe('default', 'shared', 'xq7shared', '{"stream": ["xq7stream", "orders"]}')`,
	`select posthorn.subscribe('default', 'conditions', 'xq7condition', '{"conditions_sql": "e.stream = ''xq7stream''"}')`,
	`update posthorn.subscriptions set stopped_at = posthorn.now(), error = 'xq7error in a condition' where name in ('xq7shared', 'xq7condition')`,
	`select posthorn.set_node_handlers('default', 'node-1', 'xq7group', '[{"name": "xq7handler", "patterns": ["xq7type"]}]')`,
	`select posthorn.schedule('default', 'xq7schedule', '@every 1h', 'xq7type', '{"a": "xq7payload"}', stream => 'xq7stream', key => 'xq7key')`,
	`update posthorn.scheduled_tasks set failures = 9, last_error = 'xq7error of a schedule' where name = 'xq7schedule'`,
	`select posthorn.define_relay('default', 'xq7relay', '{"streams": ["xq7stream"]}')`,
	`update posthorn.leads l set error = 'xq7error of a broker', failed_at = posthorn.now() from posthorn.groups g where g.id = l.id and g.name = 'xq7relay' and l.kind = 'relay'`,
	`select posthorn.define_import('default', 'xq7import', 'nats://broker:4222', 'nats', '{xq7stream}')`,
	`insert into posthorn.import_streams (import_id, stream, error, failed_at, trimmed_at)
		select id, 'xq7stream', 'xq7error of a stream', posthorn.now(), posthorn.now() from posthorn.imports where name = 'xq7import'`,
	`insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason, error, failed_at)
		select g.namespace_id, g.id, 'all', e.id, e.stream_id, e.type, '{}', e.payload, e.metadata, e.created_at, 1, 'xq7error', 'xq7open', posthorn.now()
		from posthorn.groups g, posthorn.events e where g.name = 'xq7group' and e.type in ('xq7type', 'order.placed')`,
	`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, error, failed_at)
		select g.id, e.id, 'all', 1, posthorn.now() + interval '1 day', 'xq7error of a retry', posthorn.now()
		from posthorn.groups g, posthorn.events e where g.name = 'xq7group' and e.type in ('xq7type', 'order.paid')`,
}

func makeWorld(t *testing.T, at time.Time, hidden bool) *world {
	t.Helper()
	w := &world{served: serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}), tokens: map[string]string{}}
	w.exec(t, fmt.Sprintf("create or replace function posthorn.now() returns timestamptz language sql volatile return timestamptz '%s'", at.Format(time.RFC3339)))
	w.exec(t, "select posthorn.define_namespace('elsewhere')")
	named := w.issue(t, "default", allScopes)
	if hidden {
		w.exec(t, "select posthorn.set_stream_policy('default', 'xq7stream', 'restricted')")
		w.exec(t, hiddenEvents, "default")
		w.exec(t, "update posthorn.api_tokens set streams = '{xq7stream,xq7sealed}'")
	} else {
		w.exec(t, hiddenEvents, "elsewhere")
	}
	w.tokens["read"] = w.issue(t, "default", []scope{scopeRead})
	w.tokens["admin"] = w.issue(t, "default", []scope{scopeRead, scopeAdmin})
	w.exec(t, "update posthorn.api_tokens set last_used_at = posthorn.now()") // as the server does later
	for _, sql := range openThings {
		w.exec(t, sql)
	}
	w.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example"}`, named).want(t, 201)
	w.call(t, "POST", "/v1/webhooks", `{"name":"shop","url":"https://shop.example","filter":{"stream":"orders"}}`, named).want(t, 201)
	w.call(t, "POST", "/v1/webhooks/crm/disable?reason=moved", nil, named).want(t, 204)
	w.call(t, "POST", "/v1/groups/idle/pause", nil, named).want(t, 204)
	if !hidden {
		return w
	}
	for _, sql := range hiddenThings {
		w.exec(t, sql)
	}
	w.forget()
	for _, name := range []string{"xq7hook", "xq7disabled"} {
		w.call(t, "POST", "/v1/webhooks", `{"name":"`+name+`","url":"https://xq7url.example","filter":{"stream":["orders","xq7stream"]}}`, named).want(t, 201)
	}
	// Without the event that disabling publishes, which would be one more of all streams.
	w.exec(t, "update posthorn.subscriptions set stopped_at = posthorn.now(), error = 'xq7disabled' where name = 'xq7disabled'")
	w.exec(t, `update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = 'xq7failing' where name = 'xq7hook'`)
	w.call(t, "POST", "/v1/groups/xq7group/pause", nil, named).want(t, 204)
	w.call(t, "PUT", "/v1/groups/xq7new", `{}`, named).want(t, 200) // of no stream yet
	w.call(t, "PUT", "/v1/subscriptions/xq7new/xq7sub", `{"filter":{"stream":"xq7stream"}}`, named).want(t, 200)
	w.forget()
	return w
}

// replacement is a pattern, and the text that takes its place.
type replacement struct{ pattern, instead string }

// chance is what differs between two databases with the same things.
var chance = []replacement{
	{`ph_[A-Za-z0-9_-]+`, "a token"},
	{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "a uuid"},
	{`name="form" value="[0-9a-f]+"`, "the form token"},
	{`http://127\.0\.0\.1:\d+`, "the server"},
	{`(\bDate|X-Request-Id|Set-Cookie|Content-Length):\[[^]]*\]`, ""},
	{`(?m)^(# \w+ )?(go_|process_|posthorn_http_|posthorn_log_held)[^\n]*\n`, ""}, // of the server
	{`\beyJ[A-Za-z0-9_-]+`, "a cursor"},                                           // with numbers of transactions
	{`data-now="[^"]*"|<span class="soft">Checked <time[^>]*>[^<]*`, "the server's time"},
	{`(?m)^retry: \d+$`, "the pause before a client connects again"},
	{`"request_id":"[^"]*"`, ""},
}

// told are the differences that docs/access.md names: numbers of all streams, and hints for missing things.
var told = []replacement{
	{`"(log_bytes|bytes|size)":\d+`, "a size"},
	{`"(again|skipped)":\d+`, "a number of events"},
	{`("status":404,"detail":"[^"]*"),"hint":"[^"]*"`, "$1"},
	{`(does not exist in namespace default</bdi></strong></p><p><bdi>)[^<]*`, "$1"},
}

// differences are chance and told, with their patterns compiled once.
var differences = sync.OnceValue(func() (all []func(text string) string) {
	for _, r := range slices.Concat(chance, told) {
		pattern := regexp.MustCompile(r.pattern)
		all = append(all, func(text string) string { return pattern.ReplaceAllString(text, r.instead) })
	}
	return all
})

func (a answered) text() string { return fmt.Sprintf("%d %v\n%s", a.status, a.header, a.body) }

// known is a text without the differences that there may be.
func known(text string) string {
	for _, replace := range differences() {
		text = replace(text)
	}
	return text
}

// same reports whether two texts are the same line by line. The patterns are slow, and most lines are the same without
// them. A line that patterns take away makes the numbers of lines differ: then the whole texts have to be compared.
func same(a, b string) bool {
	for {
		x, restOfA, moreOfA := strings.Cut(a, "\n")
		y, restOfB, moreOfB := strings.Cut(b, "\n")
		switch {
		case moreOfA != moreOfB, x != y && known(x) != known(y):
			return false
		case !moreOfA:
			return true
		}
		a, b = restOfA, restOfB
	}
}

// compare fails the test where two answers differ.
func compare(t *testing.T, what string, with, without answered) {
	t.Helper()
	if same(with.text(), without.text()) {
		return
	}
	got, want := known(with.text()), known(without.text())
	if got == want {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	near := func(s string) string { return s[max(0, min(i, len(s))-120):min(len(s), i+200)] }
	t.Errorf("%s:\n   with hidden things: …%s…\nwithout hidden things: …%s…", what, near(got), near(want))
}

// names are those of open and of hidden things, which the requests for both worlds have.
var names = []string{
	"orders", "shared", "conditions", "reader", "idle", "nightly", "weekly", "to-redis", "from-nats", "cold", "totals", "images", "crm", "shop", "webhooks", "all", "open", "node-1",
	"xq7stream", "xq7sealed", "xq7group", "xq7new", "xq7relay", "xq7import", "xq7schedule", "xq7hook", "xq7disabled", "xq7shared", "xq7sub", "none",
}

// addresses are those of a route with each name or number.
func addresses(route string, most int) (all []string) {
	switch {
	case strings.Contains(route, "{group}"):
		for _, group := range []string{"orders", "shared", "conditions", "xq7group", "xq7new", "none"} {
			all = append(all, addresses(strings.Replace(route, "{group}", group, 1), most)...)
		}
		return all
	case strings.Contains(route, "{name}") || strings.Contains(route, "{tag}"):
		for _, name := range names {
			all = append(all, strings.NewReplacer("{name}", name, "{tag}", name).Replace(route))
		}
	case strings.Contains(route, "{"):
		for id := range most {
			all = append(all, regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(route, strconv.Itoa(id)))
		}
	default:
		all = append(all, route)
		if route == "/v1/events" || route == "/v1/dead-letters" || route == "/v1/dead-letters/reasons" || route == "/v1/subscriptions" {
			for _, name := range append(slices.Clone(names), "o-1", "xq7key") {
				all = append(all, route+"?group="+name, route+"?stream="+name, route+"?key="+name)
			}
		}
	}
	if strings.HasSuffix(route, "/seek") {
		for i := range all {
			all[i] += "?to=beginning"
		}
	}
	return all
}

// What a token may not read changes nothing that it is told, but for the numbers that docs/access.md names: every route
// that reads, and every page that links lead to, is the same in a database without hidden things.
func TestHiddenThingsChangeNothing(t *testing.T) {
	t.Parallel()
	at := time.Now().Truncate(time.Second)
	with, without := makeWorld(t, at, true), makeWorld(t, at, false)
	for _, scopes := range []string{"read", "admin"} {
		end := func(w *world) answered {
			w.exec(t, "select posthorn.publish('default', 'the.end')")
			return w.untilLine(t, w.client, "/v1/stream?from=beginning", "the.end", w.tokens[scopes])
		}
		compare(t, "the stream of events for "+scopes, end(with), end(without))
	}
	with.server.Drain() // so that no request waits
	without.server.Drain()
	most := int(with.number(t, "select max(id) from posthorn.events")) + 3
	for _, scopes := range []string{"read", "admin"} {
		with.walkRoutes(t, scopes, without, most)
		with.walkPages(t, scopes, without, most)
	}
}

func (w *world) walkRoutes(t *testing.T, scopes string, without *world, most int) {
	t.Helper()
	for _, route := range slices.Sorted(maps.Keys(operations(w.server))) {
		method, path, _ := strings.Cut(route, " ")
		if method != http.MethodGet || path == "/v1/stream" {
			continue
		}
		for _, address := range addresses(path, most) {
			compare(t, "GET "+address+" for "+scopes, w.call(t, method, address, nil, w.tokens[scopes]), without.call(t, method, address, nil, without.tokens[scopes]))
		}
	}
}

var link = regexp.MustCompile(`(?:href|action)="(/ui/[^"#]*)`)

// walkPages visits each page with each name, and all pages that links lead to.
func (w *world) walkPages(t *testing.T, scopes string, without *world, most int) {
	t.Helper()
	a, b := w.visit(t), without.visit(t)
	a.signIn(strings.TrimPrefix(w.tokens[scopes], "Authorization: Bearer "))
	b.signIn(strings.TrimPrefix(without.tokens[scopes], "Authorization: Bearer "))
	var queue []string
	for _, screen := range w.server.pages.Screens() {
		queue = append(queue, pageQuery(screen.Path, nil))
		if !isAbout(screen, url.Values{"name": {""}, "id": {""}}) {
			continue
		}
		for _, name := range names {
			if strings.HasPrefix(name, hush) { // links lead to the others
				queue = append(queue, pageQuery(screen.Path, url.Values{"name": {name}, "group": {name}, "stream": {name}, "q": {name}, "to": {"beginning"}}))
			}
		}
		for id := range most {
			if id < 6 || slices.Contains([]string{"event", "dead-letter", "action"}, screen.Path) {
				queue = append(queue, pageQuery(screen.Path, url.Values{"id": {strconv.Itoa(id)}, "q": {strconv.Itoa(id)}}))
			}
		}
	}
	slices.Sort(queue)
	seen := map[string]bool{}
	for len(queue) > 0 && len(seen) < 5000 {
		address := queue[0]
		queue = queue[1:]
		if seen[address] || strings.Contains(address, "/ui/assets/") {
			continue
		}
		seen[address] = true
		x, y := a.get(address), b.get(address)
		compare(t, "page "+address+" for "+scopes, x, y)
		for _, found := range link.FindAllStringSubmatch(x.body+y.body, -1) {
			queue = append(queue, html.UnescapeString(found[1]))
		}
	}
	t.Logf("%d pages for %s", len(seen), scopes)
}

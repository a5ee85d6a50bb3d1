package server

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/token"
	"github.com/posthorn/posthorn/posthorntest"
)

// issue creates a token for a namespace, or for all namespaces if it is empty, and returns
// the header Authorization with it.
func (s *served) issue(t testing.TB, namespace string, scopes []scope, streams ...string) string {
	t.Helper()
	names := make([]string, len(scopes))
	for i := range scopes {
		names[i] = string(scopes[i])
	}
	made, err := admin.New(s.ph.Pool(), namespace).CreateToken(t.Context(), admin.NewToken{
		Name: strings.Join(names, " "), AllNamespaces: namespace == "", Scopes: names, Streams: streams,
	})
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + made.Secret
}

func (s *served) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := s.ph.Pool().Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// runningClaims returns how many statements that claim jobs run at this moment.
func (s *served) runningClaims(t testing.TB) (n int) {
	t.Helper()
	err := s.ph.Pool().QueryRow(t.Context(), `select count(*) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and query ~ 'claim_jobs'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// operations returns all registered operations by "METHOD /path".
func operations(s *Server) map[string]*huma.Operation {
	all := map[string]*huma.Operation{}
	for path, item := range s.api.OpenAPI().Paths {
		for method, operation := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
			http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if operation != nil {
				all[method+" "+path] = operation
			}
		}
	}
	return all
}

// public has the routes that need no token.
var public = map[string]bool{"GET /healthz": true, "GET /readyz": true, "GET /openapi.json": true, "GET /docs": true}

// Each route accepts tokens that have its scope, and no others.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})
	s.server.Drain() // so that no request waits
	ask := func(method, path, header string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		answer := httptest.NewRecorder()
		s.server.ServeHTTP(answer, r)
		return answer
	}
	tokens := map[scope]string{}
	for _, one := range allScopes {
		tokens[one] = s.issue(t, "default", []scope{one})
	}
	for route, operation := range operations(s.server) {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{id}", "99", "{", "", "}", "").Replace(path)
		needed, _ := operation.Extensions["x-scope"].(string)
		if public[route] {
			if status := ask(method, path, "").Code; status == 401 || status == 403 {
				t.Errorf("%s is not for everybody: status %d", route, status)
			}
			continue
		}
		if status := ask(method, path, "").Code; status != 401 {
			t.Errorf("%s lets everybody in: status %d", route, status)
		}
		if _, known := tokens[scope(needed)]; !known {
			t.Errorf("%s has no scope of those that there are: %q", route, needed)
			continue
		}
		for has, header := range tokens {
			refused := strings.Contains(ask(method, path, header).Body.String(), "lacks the scope")
			if want := string(has) != needed; refused != want {
				t.Errorf("%s with the scope %s: refused is %v, want %v", route, has, refused, want)
			}
		}
	}
}

// Every route goes through register or handle, which check the scope. A handler that is
// given to the mux directly must be wrapped in requireRaw.
func TestEveryRouteChecksTheScope(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && nameOf(call) == "HandleFunc" || ok && nameOf(call) == "Handle" {
				inner, _ := call.Args[len(call.Args)-1].(*ast.CallExpr)
				page, _ := call.Args[len(call.Args)-1].(*ast.SelectorExpr) // which checks scopes itself
				if nameOf(inner) != "requireRaw" && (page == nil || page.Sel.Name != "pages") {
					t.Errorf("%s: a route that is not wrapped in requireRaw", name)
				}
			}
			return true
		})
	}
}

// nameOf returns the name of the method that is called.
func nameOf(call *ast.CallExpr) string {
	if call == nil {
		return ""
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	return method.Sel.Name
}

func TestTokensOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_namespace('other')")
	here := s.issue(t, "default", allScopes)
	everywhere := s.issue(t, "", allScopes)
	s.call(t, "POST", "/v1/events?namespace=other", `{"type":"a"}`, everywhere).want(t, 201)
	s.call(t, "GET", "/v1/events/1?namespace=other", nil, everywhere).want(t, 200)
	s.call(t, "GET", "/v1/events/1", nil, everywhere).wantProblem(t, 404, "event 1")
	s.call(t, "GET", "/v1/events/1?namespace=nowhere", nil, everywhere).wantProblem(t, 404, "nowhere")

	s.call(t, "GET", "/v1/events/1", nil, here).wantProblem(t, 404, "event 1 does not exist")
	s.call(t, "GET", "/v1/events/1?namespace=default", nil, here).wantProblem(t, 404, "event 1 does not exist")
	known := s.call(t, "GET", "/v1/events/1?namespace=other", nil, here).wantProblem(t, 404, "namespace other does not exist")
	unknown := s.call(t, "GET", "/v1/events/1?namespace=nowhere", nil, here).wantProblem(t, 404, "namespace nowhere does not exist")
	equal(t, "what it says of both", strings.ReplaceAll(known.Detail, "other", "nowhere"), unknown.Detail)

	var seen list[admin.Namespace]
	s.call(t, "GET", "/v1/namespaces", nil, here).want(t, 200, &seen)
	equal(t, "namespaces", len(seen.Items), 1)
	s.call(t, "GET", "/v1/namespaces", nil, everywhere).want(t, 200, &seen)
	equal(t, "namespaces", len(seen.Items), 2)
	s.call(t, "PUT", "/v1/namespaces/other", nil, here).wantProblem(t, 403, "its own namespace")
	s.call(t, "PUT", "/v1/namespaces/third", nil, everywhere).want(t, 204)
}

// A token works in its own namespace, not in that of the server.
func TestTokenDecidesTheNamespace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_namespace('other')")
	there := s.issue(t, "other", allScopes)
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, there).want(t, 201)
	s.call(t, "GET", "/v1/events/1", nil, there).want(t, 200)
	s.call(t, "GET", "/v1/events/1", nil, s.issue(t, "default", allScopes)).wantProblem(t, 404, "")
}

func TestBadTokensAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	good := strings.TrimPrefix(s.issue(t, "default", allScopes), "Authorization: Bearer ")
	s.call(t, "GET", "/v1/namespaces", nil, "Authorization: bearer  "+good).want(t, 200)
	const form = "it is malformed"
	for name, test := range map[string]struct{ header, told string }{
		"of nobody":    {"Bearer " + token.New().Secret, "does not exist in this database"},
		"changed":      {"Bearer " + changed(good), form},
		"cut":          {"Bearer " + good[:30], form},
		"without kind": {good, form},
		"basic":        {"Basic " + good, form},
		"nothing":      {"Bearer ", form},
		"twice":        {"Bearer " + good + " " + good, form},
	} {
		denied := s.call(t, "GET", "/v1/namespaces", nil, "Authorization: "+test.header)
		denied.wantProblem(t, 401, test.told)
		if denied.status != 401 || denied.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: status %d, %v", name, denied.status, denied.header)
		}
	}
}

func changed(secret string) string {
	if secret[20] == 'x' {
		return secret[:20] + "y" + secret[21:]
	}
	return secret[:20] + "x" + secret[21:]
}

// A token that is revoked or expires is refused although the server has cached it.
func TestCachedTokensBecomeInvalid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ end, told string }{
		"revoked":   {"select posthorn.revoke_token(1)", "not valid: it was revoked"},
		"expired":   {"update posthorn.api_tokens set expires_at = posthorn.now()", "not valid: it has expired"},
		"forgotten": {"delete from posthorn.api_tokens where id = 1", "not valid: it does not exist in this database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			header := s.issue(t, "default", allScopes)
			s.issue(t, "default", allScopes) // so that tokens stay required
			s.call(t, "GET", "/v1/namespaces", nil, header).want(t, 200)
			s.exec(t, test.end)
			s.forget()
			s.call(t, "GET", "/v1/namespaces", nil, header).wantProblem(t, 401, test.told)
			s.call(t, "GET", "/v1/namespaces", nil).wantProblem(t, 401, "required") // tokens stay required
		})
	}
}

// While the database does not answer, requests with tokens are refused.
func TestNoAccessWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ph.Close()
	s.call(t, "GET", "/v1/namespaces", nil).wantProblem(t, 503, "database")
	s.call(t, "GET", "/v1/namespaces", nil, "Authorization: Bearer "+token.New().Secret).wantProblem(t, 503, "database")
}

// seed 003.28–30: only tokens that name a restricted stream have access to it.
func TestRestrictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes, "audit")
	const paid = `{"type":"paid","stream":"payroll"}`
	s.call(t, "POST", "/v1/events", paid, others).wantProblem(t, 403, "payroll")
	s.call(t, "POST", "/v1/events", `[{"type":"a"},`+paid+`]`, others).wantProblem(t, 403, "payroll")
	s.call(t, "POST", "/v1/events", `{"type":"a"}`, others).want(t, 201)
	s.call(t, "POST", "/v1/events", paid, named).want(t, 201)
	s.call(t, "GET", "/v1/events/2", nil, named).want(t, 200)
	hidden := s.call(t, "GET", "/v1/events/2", nil, others).wantProblem(t, 404, "event 2 does not exist")
	missing := s.call(t, "GET", "/v1/events/3", nil, others).wantProblem(t, 404, "event 3 does not exist")
	equal(t, "hint", hidden.Hint, missing.Hint)
	var found list[eventView]
	s.call(t, "GET", "/v1/events", nil, others).want(t, 200, &found)
	equal(t, "found without the stream", len(found.Items), 1)
	s.call(t, "GET", "/v1/events?stream=payroll", nil, others).want(t, 200, &found)
	equal(t, "found in the stream", len(found.Items), 0)
	s.call(t, "GET", "/v1/events", nil, named).want(t, 200, &found)
	equal(t, "found with the stream", len(found.Items), 2)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'open')")
	s.forget()
	s.call(t, "GET", "/v1/events/2", nil, others).want(t, 200)
}

// A token without access to a restricted stream cannot use a dedup_key or Idempotency-Key
// in a way that blocks publishers of that stream.
func TestDedupKeysOfRestrictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes)
	s.call(t, "POST", "/v1/events", `[{"type":"a","dedup_key":"paid/7"},{"type":"a","dedup_key":"idempotency:run-1"}]`, others).want(t, 201)
	publish := func(body string, headers ...string) answered {
		t.Helper()
		return s.call(t, "POST", "/v1/events", body, append(headers, named)...)
	}
	paid := publish(`{"type":"paid","stream":"payroll","dedup_key":"paid/7"}`).want(t, 201)
	run := publish(`{"type":"paid","stream":"payroll"}`, "Idempotency-Key: run-1").want(t, 201)
	equal(t, "the same again", publish(`{"type":"paid","stream":"payroll","dedup_key":"paid/7"}`).body, paid.body)
	again := publish(`{"type":"paid","stream":"payroll"}`, "Idempotency-Key: run-1")
	equal(t, "the same request again", again.body, run.body)
	equal(t, "replayed", again.header.Get("Idempotency-Replayed"), "true")
	var found list[eventView]
	s.call(t, "GET", "/v1/events?stream=payroll", nil, named).want(t, 200, &found)
	equal(t, "events of the restricted stream", len(found.Items), 2)
	open := s.call(t, "POST", "/v1/events", `{"type":"b","stream":"open","dedup_key":"paid/7"}`, others).want(t, 201)
	equal(t, "a key of other streams", open.body, `{"ids":[1]}`+"\n")
}

// A denied request is logged without the secret of its token, at every level.
func TestDenialsAreLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	var log testworld.Buffer
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	secrets := []string{}
	for _, header := range []string{
		s.issue(t, "default", []scope{scopeRead}), "Authorization: Bearer " + token.New().Secret,
		"Authorization: Basic c2VzYW1lOnNlc2FtZQ", "Authorization: Bearer sesame",
	} {
		secret := header[strings.LastIndex(header, " ")+1:]
		secrets = append(secrets, secret)
		s.call(t, "PUT", "/v1/namespaces/x", nil, header)
		s.call(t, "GET", "/v1/namespaces?token="+secret, nil, header)
		s.call(t, "GET", "/v1/namespaces?namespace=nowhere", nil, header)
		if strings.HasPrefix(secret, "ph_") {
			s.call(t, "PUT", "/v1/namespaces/"+secret, nil, header)
			s.call(t, "GET", "/v1/namespaces/"+secret[:40], nil, header) // not a route
			s.call(t, "GET", "/"+secret, nil, header)
			secrets = append(secrets, secret[12:30])
		}
	}
	logged := log.String()
	if n := strings.Count(logged, "request denied"); n < 10 {
		t.Errorf("%d denials are logged, want 10 or more:\n%s", n, logged)
	}
	for _, secret := range secrets {
		if strings.Contains(logged, secret) {
			t.Errorf("the log has %s", secret)
		}
	}
	if !strings.Contains(logged, `"caller":"read (ph_`) {
		t.Errorf("the log does not say who was denied:\n%s", logged)
	}
}

// While no token is required, web pages of other origins must not have access through the
// browser of a user.
func TestOpenServerIsNotForWebPages(t *testing.T) {
	t.Parallel()
	s := serveClient(t, posthorntest.Open(t), "", Options{Local: true, CORSOrigins: []string{"https://app.example.com"}})
	for header, want := range map[string]int{
		"Host: localhost:8080":             200,
		"Host: [::1]:8080":                 200,
		"Host: evil.example.com":           403,
		"Host: 127.0.0.1.evil.example.com": 403,
		"Origin: https://evil.example.com": 403,
		"Origin: null":                     403,
		"Origin: https://app.example.com":  200,
		"Origin: " + s.url:                 200,
		"Sec-Fetch-Site: cross-site":       403,
		"Sec-Fetch-Site: same-site":        403,
		"Sec-Fetch-Site: same-origin":      200,
		"Sec-Fetch-Site: none":             200,
	} {
		if got := s.callAs(t, header); got != want {
			t.Errorf("%s: status %d, want %d", header, got, want)
		}
	}
}

// callAs sends a request with a header that may be Host.
func (s *served) callAs(t *testing.T, header string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/namespaces", nil)
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	if name == "Host" {
		r.Host = value
	}
	answer, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// A claim is refused if the group may hand out events that the token may not read, and no
// event is lost.
func TestClaimOfRestrictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes)
	s.exec(t, "select posthorn.define_group('default', 'all'), posthorn.define_group('default', 'orders')")
	s.exec(t, `select posthorn.subscribe('default', 'orders', 'ship', '{"stream": "orders"}')`)
	s.call(t, "POST", "/v1/groups/all/claim", `{}`, others).wantProblem(t, 403, "restricted") // also without events
	s.exec(t, "select posthorn.publish('default', 'paid', stream => 'payroll'), posthorn.publish('default', 'placed', stream => 'orders')")
	s.call(t, "POST", "/v1/groups/all/claim", `{"wait":60}`, others).wantProblem(t, 403, "restricted")
	taken := s.claim(t, "all", `{}`, named)
	equal(t, "claimed with the stream", len(taken.Events), 2)
	own := s.claim(t, "orders", `{}`, others)
	equal(t, "claimed of other streams", len(own.Events), 1)
	for verb, rest := range map[string]string{"extend": `, "lease_seconds": 60`, "release": "", "settle": ""} {
		body := fmt.Sprintf(`{"attempt": %d%s}`, taken.Attempt, rest)
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/%s", taken.Lease, verb), body, others).wantProblem(t, 409, "not held")
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/%s", taken.Lease+1000, verb), body, others).wantProblem(t, 409, "not held")
	}
	for _, l := range []struct {
		claimed
		header string
	}{{taken, named}, {own, others}} {
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", l.Lease), fmt.Sprintf(`{"attempt": %d}`, l.Attempt), l.header).want(t, 204)
	}
	s.call(t, "POST", "/v1/groups/none/claim", `{}`, others).wantProblem(t, 404, "none")
}

// A message to a subscription need not match its filter. If it is of a restricted stream,
// the claim releases it.
func TestClaimReleasesRestrictedEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes)
	s.exec(t, "select posthorn.define_group('default', 'orders')")
	s.exec(t, `select posthorn.subscribe('default', 'orders', 'ship', '{"stream": "orders"}')`)
	s.exec(t, "select posthorn.publish_to('default', 'orders', 'ship', 'paid', stream => 'payroll')")
	s.call(t, "POST", "/v1/groups/orders/claim", `{}`, others).wantProblem(t, 403, "restricted")
	got := s.claim(t, "orders", `{}`, named)
	equal(t, "events", len(got.Events), 1)
	equal(t, "deliveries", got.Events[0].Delivery, 1)
}

// Tokens cannot lose events that they may not read: events that a group hands out, and
// events that it holds although they do not match its subscriptions.
func TestTokensDoNotLoseRestrictedEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes)
	for group, setup := range map[string]string{
		"whole":   "select posthorn.define_group('default', 'whole')",
		"asking":  `select posthorn.subscribe('default', 'asking', 's', '{"stream": ["orders", "payroll"]}')`,
		"sent":    `select posthorn.subscribe('default', 'sent', 's', '{"stream": "orders"}'); select posthorn.publish_to('default', 'sent', 's', 'paid', stream => 'payroll')`,
		"narrow":  `select posthorn.subscribe('default', 'narrow', 's', '{"stream": "orders"}')`,
		"letters": `select posthorn.subscribe('default', 'letters', 's', '{"stream": "payroll"}')`,
	} {
		if _, err := s.ph.Pool().Exec(t.Context(), setup, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", group, err)
		}
	}
	s.exec(t, "select posthorn.publish('default', 'paid', stream => 'payroll')")
	failed := s.claim(t, "letters", `{}`, named)
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", failed.Lease),
		fmt.Sprintf(`{"attempt":1,"failures":[{"event":%d,"permanent":true}]}`, failed.Events[0].ID), named).want(t, 204)
	s.call(t, "PUT", "/v1/subscriptions/letters/s", `{"filter":{"stream":"orders"}}`, named).want(t, 200)

	const orders = `{"filter":{"stream":"orders"}}`
	changes := []struct{ method, path, body string }{
		{"POST", "/v1/groups/%s/seek", `{"to":"end"}`},
		{"PUT", "/v1/groups/%s", `{"attempts":1}`},
		{"PUT", "/v1/subscriptions/%s/s", orders},
		{"PUT", "/v1/subscriptions/%s/another", orders},
		{"DELETE", "/v1/subscriptions/%s/s", ""},
		{"DELETE", "/v1/groups/%s", ""},
	}
	// Events that a group holds are lost only by deleting the group, and a direct message only
	// by deleting its subscription.
	allowed := map[string][]int{"letters": {0, 1, 2, 3, 4}, "sent": {0, 1, 3}}
	for _, group := range []string{"whole", "asking", "sent", "letters"} {
		for i, change := range changes {
			if slices.Contains(allowed[group], i) {
				continue
			}
			if status := s.call(t, change.method, fmt.Sprintf(change.path, group), change.body, others).status; status != 403 && status != 404 {
				t.Errorf("%s %s of group %s: status %d, want 403 or 404", change.method, change.path, group, status)
			}
		}
	}
	direct := s.claim(t, "sent", `{}`, named)
	equal(t, "direct messages", len(direct.Events), 1)
	for _, verb := range []string{"extend", "release", "settle"} {
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/%s", direct.Lease, verb), `{"attempt":1}`, others).wantProblem(t, 409, "not held")
	}
	equal(t, "events of the whole group", len(s.claim(t, "whole", `{}`, named).Events), 1)
	equal(t, "events of the group that asks for them", len(s.claim(t, "asking", `{}`, named).Events), 1)

	s.call(t, "PUT", "/v1/groups/new", `{"attempts":1}`, others).wantProblem(t, 403, "would hand out events of restricted streams")
	s.call(t, "PUT", "/v1/subscriptions/fresh/s", orders, others).want(t, 200)
	for _, change := range changes {
		if status := s.call(t, change.method, fmt.Sprintf(change.path, "narrow"), change.body, others).status; status >= 300 {
			t.Errorf("%s %s of a group that has nothing of the stream: %d", change.method, change.path, status)
		}
	}
	for _, change := range changes[4:] {
		s.call(t, change.method, fmt.Sprintf(change.path, "asking"), nil, named).want(t, 200)
	}
}

// A request that waits while its token is revoked receives no event.
func TestRevokedWhileWaiting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	header := s.issue(t, "default", allScopes)
	s.exec(t, "select posthorn.define_group('default', 'g')")
	answer := make(chan answered, 1)
	go func() { answer <- s.call(t, "POST", "/v1/groups/g/claim", `{"wait":60}`, header) }()
	s.waiting(t, 1)
	s.exec(t, "select posthorn.revoke_token(1)")
	s.forget()
	s.server.groupQueues.WakeAll()
	await.Value(t, "the answer", answer).wantProblem(t, 401, "not valid")
}

// A request that waits without a token receives no event after the first token was created.
func TestFirstTokenWhileWaiting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_group('default', 'g')")
	answer := make(chan answered, 1)
	go func() { answer <- s.call(t, "POST", "/v1/groups/g/claim", `{"wait":60}`) }()
	s.waiting(t, 1)
	s.issue(t, "default", allScopes)
	s.forget()
	s.server.groupQueues.WakeAll()
	await.Value(t, "the answer", answer).wantProblem(t, 401, "required")
}

// Dead letters, outcomes and schedules of a restricted stream are hidden from other tokens
// too.
func TestRestrictedStreamsElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", allScopes, "payroll")
	others := s.issue(t, "default", allScopes)

	s.exec(t, "select posthorn.define_group('default', 'g')")
	s.exec(t, "select posthorn.publish('default', 'paid', stream => 'payroll'), posthorn.publish('default', 'placed')")
	got := s.claim(t, "g", `{}`, named)
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", got.Lease),
		`{"attempt":1,"failures":[{"event":1,"permanent":true},{"event":2,"permanent":true}]}`, named).want(t, 204)
	var letters list[admin.DeadLetter]
	s.call(t, "GET", "/v1/dead-letters", nil, named).want(t, 200, &letters)
	equal(t, "dead letters", len(letters.Items), 2)
	s.call(t, "GET", "/v1/dead-letters", nil, others).want(t, 200, &letters)
	equal(t, "dead letters without the stream", len(letters.Items), 1)
	s.call(t, "GET", "/v1/dead-letters/1", nil, named).want(t, 200)
	s.call(t, "GET", "/v1/events/1/outcomes", nil, named).want(t, 200)
	s.call(t, "GET", "/v1/events/1/outcomes", nil, others).wantProblem(t, 404, "")
	for header, want := range map[string]bool{named: true, others: false} {
		if body := s.call(t, "GET", "/v1/streams", nil, header).want(t, 200).body; strings.Contains(body, "payroll") != want {
			t.Errorf("the stream is listed: %t, want %t: %s", !want, want, body)
		}
	}
	s.call(t, "GET", "/v1/dead-letters/1", nil, others).wantProblem(t, 404, "there is no dead letter 1")
	s.call(t, "DELETE", "/v1/dead-letters/1", nil, others).wantProblem(t, 404, "there is no dead letter 1")
	s.call(t, "POST", "/v1/dead-letters/purge", `{"all":true}`, others).want(t, 200)
	s.call(t, "GET", "/v1/dead-letters", nil, named).want(t, 200, &letters)
	equal(t, "dead letters that others left", len(letters.Items), 1)

	const daily = `{"cron_expression":"@daily","event_type":"paid","stream":"payroll"}`
	s.call(t, "PUT", "/v1/schedules/pay", daily, others).wantProblem(t, 403, "payroll")
	s.call(t, "PUT", "/v1/schedules/pay", daily, named).want(t, 200)
	s.call(t, "PUT", "/v1/schedules/pay", `{"cron_expression":"@daily","event_type":"a"}`, others).wantProblem(t, 403, "cannot be used")
	var schedules list[admin.ScheduleStatus]
	s.call(t, "GET", "/v1/schedules", nil, others).want(t, 200, &schedules)
	equal(t, "schedules", len(schedules.Items), 0)
	for _, route := range []string{"GET /v1/schedules/pay", "DELETE /v1/schedules/pay", "POST /v1/schedules/pay/run", "POST /v1/schedules/pay/pause"} {
		method, path, _ := strings.Cut(route, " ")
		s.call(t, method, path, nil, others).wantProblem(t, 404, "does not exist")
	}
	s.call(t, "POST", "/v1/schedules/pay/run", nil, named).want(t, 200)
}

// Metrics are available in the server's namespace only.
func TestMetricsAreOfOneNamespace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_namespace('other')")
	here, there := s.issue(t, "default", allScopes), s.issue(t, "other", allScopes)
	s.call(t, "GET", "/metrics", nil, here).want(t, 200)
	s.call(t, "GET", "/metrics", nil, there).wantProblem(t, 403, "no metrics of namespace other")
}

// A request that waits for jobs while its token is revoked receives none: a job that is
// enqueued afterwards stays pending.
func TestRevokedWhileWaitingForJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	worker := s.issue(t, "default", []scope{scopeJobsWork})
	creator := s.issue(t, "default", []scope{scopeJobsCreate, scopeRead})
	const subscribe = "/events/subscribe?tags=mail&worker_id=w:1"
	answer := make(chan answered, 1)
	unlock := testpg.Lock(t, s.ph.Pool(), "ready_jobs")
	go func() { answer <- s.call(t, "GET", subscribe+"&wait=60", nil, worker) }()
	await.True(t, "the first look for jobs has begun", func() bool { return s.runningClaims(t) == 1 })
	unlock()
	// The token was valid for this claim, and may still be cached for the next one.
	await.True(t, "the first look for jobs is over", func() bool { return s.runningClaims(t) == 0 })
	s.exec(t, "select posthorn.revoke_token(1)")
	// Requests share a look-up of the token that began before it was revoked.
	await.True(t, "the token is refused", func() bool {
		s.forget()
		return s.call(t, "GET", subscribe, nil, worker).status == 401
	})
	await.True(t, "no look that began before is under way", func() bool { return s.runningClaims(t) == 0 })
	var job struct {
		ID     int64
		Status string
	}
	s.call(t, "POST", "/events", `{"title":"Mail","tags":"mail","payload":{}}`, creator).want(t, 201, &job)
	await.Value(t, "the answer", answer).wantProblem(t, 401, "not valid")
	s.call(t, "GET", fmt.Sprintf("/events/%d", job.ID), nil, creator).want(t, 200, &job)
	equal(t, "status", job.Status, "PENDING")
}

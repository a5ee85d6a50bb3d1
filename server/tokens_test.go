package server

import (
	"bytes"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// A token is made, listed, used and revoked.
func TestTokensOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true})
	root := s.issue(t, "", allScopes)
	var made op.MadeToken
	s.call(t, "POST", "/v1/tokens", `{"name":"ci","scopes":["read"],"expires_in":"90d"}`, root).want(t, 201, &made)
	equal(t, "namespace", *made.Namespace, "default")
	equal(t, "expires", made.ExpiresAt.IsZero(), false)
	bearer := "Authorization: Bearer " + made.Token
	s.call(t, "GET", "/v1/groups", nil, bearer).want(t, 200)
	s.call(t, "GET", "/v1/tokens", nil, bearer).wantProblem(t, 403, "scope admin")
	var all list[admin.TokenStatus]
	shown := s.call(t, "GET", "/v1/tokens", nil, root).want(t, 200, &all)
	equal(t, "tokens", len(all.Items), 2)
	equal(t, "prefix", all.Items[1].Prefix, made.Prefix)
	if strings.Contains(shown.body, made.Token) {
		t.Errorf("the list shows the token: %s", shown.body)
	}
	var revoked admin.TokenStatus
	for range 2 {
		s.call(t, "POST", "/v1/tokens/2/revoke", nil, root).want(t, 200, &revoked)
		equal(t, "state", revoked.State, "revoked")
	}
	s.forget()
	s.call(t, "GET", "/v1/groups", nil, bearer).wantProblem(t, 401, "revoked")
	for _, body := range []string{
		`{}`, `{"name":"ci"}`, `{"name":"","scopes":["read"]}`, `{"name":"ci","scopes":[]}`, `{"name":"ci","scopes":["root"]}`,
		`{"name":"ci","scopes":["read"],"expires_in":"soon"}`, `{"name":"ci","scopes":["read"],"expires_in":"-1h"}`,
		`{"name":"ci","scopes":["read"],"streams":["\n"]}`, `{"name":"ci","scopes":["read"],"expires_in":"99999999999999999999d"}`,
	} {
		s.call(t, "POST", "/v1/tokens", body, root).wantProblem(t, 400, "")
	}
	s.call(t, "POST", "/v1/tokens?namespace=nowhere", `{"name":"ci","scopes":["read"]}`, root).wantProblem(t, 404, "nowhere")
	s.call(t, "POST", "/v1/tokens/77/revoke", nil, root).wantProblem(t, 404, "77")
	equal(t, "recorded", s.number(t, "select count(*) from posthorn.audit where action in ('create-token', 'revoke-token')"), 3)
	equal(t, "recorded with the token", s.number(t, "select count(*) from posthorn.audit a where strpos(a::text, '"+made.Token+"') > 0"), 0)
}

// No token makes one that may do more than it may itself, whichever face it uses.
func TestTokensMakeNoStrongerOnes(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})
	s.exec(t, "select posthorn.define_namespace('other'), posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	operator, reader := s.issue(t, "default", []scope{scopeAdmin, scopeRead}, "audit"), s.issue(t, "default", []scope{scopeRead})
	b := s.visit(t)
	b.signIn(strings.TrimPrefix(operator, "Authorization: Bearer "))
	form := b.get("/ui/default/token/create").wantPage(t, 200, `value="jobs:create"`)
	for body, refused := range map[string]string{
		`{"name":"a","scopes":["read","publish"]}`:                     "the token lacks the scope publish",
		`{"name":"a","scopes":["all"]}`:                                "the token lacks the scope consume",
		`{"name":"a","scopes":["read"],"streams":["payroll"]}`:         "does not name the stream 'payroll'",
		`{"name":"a","scopes":["read"],"streams":["none"]}`:            "does not name the stream 'none'",
		`{"name":"a","scopes":["read"],"all_namespaces":true}`:         "in one namespace",
		`{"name":"a","scopes":["read"],"streams":["audit","payroll"]}`: "does not name the stream 'payroll'",
	} {
		s.call(t, "POST", "/v1/tokens", body, operator).wantProblem(t, 403, refused)
		s.call(t, "POST", "/v1/tokens", body, reader).wantProblem(t, 403, "scope admin")
		b.post(form, "/ui/default/token/create", fieldsOf(t, body)).wantPage(t, 403, strings.ReplaceAll(refused, "'", "&#39;"))
	}
	s.call(t, "POST", "/v1/tokens?namespace=other", `{"name":"a","scopes":["read"]}`, operator).wantProblem(t, 404, "other")
	s.call(t, "GET", "/v1/tokens?all_namespaces=true", nil, operator).wantProblem(t, 403, "one namespace")
	equal(t, "tokens", s.number(t, "select count(*) from posthorn.api_tokens"), 2)
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["read","admin"],"streams":["audit"]}`, operator).want(t, 201)
	// A token that ends makes none that stays.
	s.exec(t, "update posthorn.api_tokens set expires_at = posthorn.now() + interval '1 day' where id = 1")
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["read"]}`, operator).wantProblem(t, 403, "valid for longer")
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["read"],"expires_in":"25h"}`, operator).wantProblem(t, 403, "valid for longer")
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["read"],"expires_in":"1h"}`, operator).want(t, 201)
	// A token that was revoked is still in the server's cache; it makes none.
	s.exec(t, "select posthorn.revoke_token(1)")
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["read"],"expires_in":"1h"}`, operator).wantProblem(t, 403, "not valid any more")
}

// fieldsOf makes the fields of a form of a body.
func fieldsOf(t *testing.T, body string) url.Values {
	t.Helper()
	var fields map[string]any
	(answered{status: 200, body: body}).want(t, 200, &fields)
	form := url.Values{}
	for name, value := range fields {
		switch v := value.(type) {
		case string:
			form.Set(name, v)
		case bool:
			form.Set(name, "true")
		case []any:
			for _, one := range v {
				form.Add(name, one.(string))
			}
		}
	}
	return form
}

// While there is no token, nobody makes the first one over HTTP: all others would be locked
// out.
func TestFirstTokenIsNotMadeOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/tokens", `{"name":"a","scopes":["all"],"all_namespaces":true}`).wantProblem(t, 403, "posthorn tokens create")
	b := s.visit(t)
	form := b.get("/ui/default/token/create").wantPage(t, 200)
	b.get("/ui/default/tokens").wantPage(t, 200, "There is no token").wantNone(t, "token/create")
	b.post(form, "/ui/default/token/create", url.Values{"name": {"a"}, "scopes": {"all"}}).wantPage(t, 403, "not made over HTTP")
	s.call(t, "GET", "/v1/groups", nil).want(t, 200)
}

// A token sees and revokes those of its own namespace: others do not exist, and those of
// every namespace may do more.
func TestTokensElsewhereAreNotListedOrRevoked(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})
	s.exec(t, "select posthorn.define_namespace('other'), posthorn.set_stream_policy('other', 'payroll', 'restricted')")
	here, there := s.issue(t, "default", allScopes), s.issue(t, "other", allScopes, "payroll")
	everywhere := s.issue(t, "", allScopes, "payroll", "mail")
	if got := s.call(t, "GET", "/v1/tokens", nil, here).want(t, 200); strings.Contains(got.body, "payroll") || !strings.Contains(got.body, `"id":3`) || strings.Contains(got.body, `"id":2`) {
		t.Errorf("tokens of the namespace are %s", got.body)
	}
	hidden := s.call(t, "POST", "/v1/tokens/2/revoke", nil, here).wantProblem(t, 404, "'2'")
	missing := s.call(t, "POST", "/v1/tokens/77/revoke", nil, here).wantProblem(t, 404, "'77'")
	equal(t, "answer", strings.ReplaceAll(hidden.Detail+hidden.Hint, "2", "77"), missing.Detail+missing.Hint)
	s.call(t, "POST", "/v1/tokens/3/revoke", nil, here).wantProblem(t, 403, "one namespace")
	s.call(t, "POST", "/v1/tokens/2/revoke", nil, everywhere).wantProblem(t, 404, "'2'")
	if got := s.call(t, "GET", "/v1/tokens?all_namespaces=true", nil, everywhere).want(t, 200); !strings.Contains(got.body, "payroll") {
		t.Errorf("tokens of all namespaces are %s", got.body)
	}
	s.call(t, "POST", "/v1/tokens/1/revoke", nil, everywhere).want(t, 200)
	s.call(t, "POST", "/v1/tokens/2/revoke", nil, there).want(t, 200)
	equal(t, "revoked", s.number(t, "select sum(id) from posthorn.api_tokens where revoked_at is not null"), 3)
}

// The page shows a new token in the answer to the form: it is in no address, cookie or log,
// and nothing shows it again.
func TestPageShowsANewTokenOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := serve(t, Options{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	b := s.visit(t)
	b.signIn(s.token(t, "read", "admin"))
	b.get("/ui/default/tokens").wantPage(t, 200, "Make a token…")
	form := b.get("/ui/default/token/create").wantPage(t, 200, "What it may do", `type="checkbox" value="jobs:work"`)
	answer := b.post(form, "/ui/default/token/create", url.Values{"name": {"<i>ci"}, "scopes": {"admin", "read"}, "expires_in": {"7d"}, "back": {"/ui/default/tokens"}})
	answer.wantPage(t, 200, "for namespace default; it is shown only this once.").wantNone(t, "<i>ci")
	secret := regexp.MustCompile(`ph_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}`).FindString(answer.body)
	if secret == "" {
		t.Fatalf("the page does not show the token: %s", answer.body)
	}
	for name, values := range answer.header {
		if strings.Contains(strings.Join(values, " "), secret) {
			t.Errorf("header %s has the token", name)
		}
	}
	for _, path := range []string{"tokens", "audit", "token/create", ""} {
		b.get("/ui/default/"+path).wantNone(t, secret)
	}
	s.forget()
	s.call(t, "GET", "/v1/groups", nil, "Authorization: Bearer "+secret).want(t, 200)
	s.call(t, "GET", "/v1/jobs", nil, "Authorization: Bearer "+secret)
	equal(t, "made", s.number(t, "select count(*) from posthorn.list_tokens() where name = '<i>ci' and scopes = '{admin,read}' and namespace = 'default' and expires_at < posthorn.now() + interval '7 days'"), 1)
	s.server.Drain()
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "token/create") {
		t.Errorf("the log has the token, or nothing of the request: %s", log.String())
	}
}

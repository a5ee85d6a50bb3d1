package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

type createdWebhook struct {
	admin.Webhook
	Secret    string
	PublicKey string `json:"public_key"`
}

func TestWebhookLifeOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var made createdWebhook
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example/hooks?token=7","filter":{"type":"order.*"},
		"headers":{"Authorization":"Bearer hidden"},"batch":10,"gzip":true,"delays":["1 second"],"disable_after":"never"}`).want(t, 201, &made)
	equal(t, "secret is made", strings.HasPrefix(made.Secret, "whsec_"), true)
	equal(t, "public key", made.PublicKey, "")
	equal(t, "filter", string(made.Filter), `{"type":"order.*"}`)
	equal(t, "headers", made.Headers, []string{"Authorization"})
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example/"}`).wantProblem(t, 409, "crm")

	var shown admin.Webhook
	answer := s.call(t, "GET", "/v1/webhooks/crm", nil).want(t, 200, &shown)
	equal(t, "batch", shown.Batch, 10)
	equal(t, "gzip", shown.Gzip, true)
	for _, secret := range []string{"whsec_", "hidden"} {
		if strings.Contains(answer.body, secret) {
			t.Errorf("%s is shown: %s", secret, answer.body)
		}
	}
	s.call(t, "PATCH", "/v1/webhooks/crm", `{"url":"https://new.example/","headers":{}}`).want(t, 200, &shown)
	equal(t, "url", shown.URL, "https://new.example/")
	equal(t, "filter after another change", string(shown.Filter), `{"type":"order.*"}`)
	equal(t, "headers after they were removed", len(shown.Headers), 0)
	s.call(t, "PATCH", "/v1/webhooks/crm", `{"filter":{}}`).want(t, 200, &shown)
	equal(t, "filter that asks for everything", string(shown.Filter), `{}`)

	s.call(t, "POST", "/v1/webhooks/crm/disable?reason=holidays", nil).want(t, 204)
	s.call(t, "GET", "/v1/webhooks/crm", nil).want(t, 200, &shown)
	equal(t, "reason", shown.DisabledReason, "holidays")
	s.call(t, "POST", "/v1/webhooks/crm/test", nil).wantProblem(t, 409, "disabled")
	s.call(t, "POST", "/v1/webhooks/crm/enable", nil).want(t, 204)
	var id struct{ ID int64 }
	s.call(t, "POST", "/v1/webhooks/crm/test", nil).want(t, 200, &id)
	var published struct{ IDs []int64 }
	s.call(t, "POST", "/v1/events", `{"type":"order.placed"}`).want(t, 201, &published)
	var count struct{ Count, Owed int64 }
	s.call(t, "POST", "/v1/webhooks/crm/redeliver", fmt.Sprintf(`{"events":[%d]}`, published.IDs[0])).want(t, 200, &count)
	equal(t, "events that are sent again", count.Count, 1)

	var all list[admin.Webhook]
	s.call(t, "GET", "/v1/webhooks", nil).want(t, 200, &all)
	equal(t, "webhooks", len(all.Items), 1)
	s.call(t, "DELETE", "/v1/webhooks/crm", nil).want(t, 200, &count)
	equal(t, "events that were owed", count.Owed, 2) // the test, and the one that is sent again
	s.call(t, "GET", "/v1/webhooks/crm", nil).wantProblem(t, 404, "crm")
}

func TestWebhookSecretsOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var made createdWebhook
	pair := s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example/","secret":"ed25519"}`).want(t, 201, &made)
	equal(t, "public key", strings.HasPrefix(made.PublicKey, "whpk_"), true)
	if strings.Contains(pair.body, "whsk_") {
		t.Errorf("the private key is shown: %s", pair.body)
	}
	secrets := func() int {
		var shown admin.Webhook
		s.call(t, "GET", "/v1/webhooks/crm", nil).want(t, 200, &shown)
		return len(shown.Secrets)
	}
	var key op.WebhookKey
	s.call(t, "POST", "/v1/webhooks/crm/rotate", `{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","keep_old":"2 days"}`).want(t, 200, &key)
	equal(t, "secret", key.Secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	equal(t, "secrets", secrets(), 2)
	s.call(t, "POST", "/v1/webhooks/crm/rotate", `{"keep_old":0}`).want(t, 200, &key)
	equal(t, "secrets when the old one ends", secrets(), 1)
	s.call(t, "POST", "/v1/webhooks/crm/rotate", nil).want(t, 200, &key)
	equal(t, "secrets after that", secrets(), 2)
	s.call(t, "POST", "/v1/webhooks/crm/rotate", `{"secret":"whsec_short"}`).wantProblem(t, 400, "")
	s.call(t, "POST", "/v1/webhooks/other/rotate", nil).wantProblem(t, 404, "other")
}

func TestWebhookDeliveriesOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example/"}`).want(t, 201)
	s.exec(t, `insert into posthorn.webhook_attempts (event_id, webhook_id, attempt, duration_ms, status, outcome, request_id, error, excerpt)
		select n, w.id, 1, 20, 500, case when n = 2 then 'delivered' else 'retry' end, 'msg_' || n, 'the endpoint answered 500', 'sorry'
		from posthorn.webhooks w, generate_series(1, 3) n order by n`)
	var found list[admin.WebhookAttempt]
	s.call(t, "GET", "/v1/webhooks/crm/deliveries?limit=2", nil).want(t, 200, &found)
	equal(t, "first page", []int64{found.Items[0].EventID, found.Items[1].EventID}, []int64{3, 2})
	equal(t, "excerpt", found.Items[0].Excerpt, "sorry")
	s.call(t, "GET", "/v1/webhooks/crm/deliveries?limit=2&cursor="+found.Next, nil).want(t, 200, &found)
	equal(t, "second page", len(found.Items), 1)
	equal(t, "next", found.Next, "")
	s.call(t, "GET", "/v1/webhooks/crm/deliveries?failed=true", nil).want(t, 200, &found)
	equal(t, "failed", len(found.Items), 2)
	s.call(t, "GET", "/v1/webhooks/crm/deliveries?event=2", nil).want(t, 200, &found)
	equal(t, "of an event", len(found.Items), 1)
	s.call(t, "GET", "/v1/webhooks/other/deliveries", nil).wantProblem(t, 404, "other")
}

func TestWebhookErrorsOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, mention := range map[string]string{
		`{}`:                             "",
		`{"name":"crm"}`:                 "url",
		`{"name":"crm","url":"ftp://x"}`: "url",
		`{"name":"crm","url":"https://u:hidden@x/"}`:                              "password",
		`{"name":"crm","url":"https://x","headers":{"Host":"y"}}`:                 "Host",
		`{"name":"crm","url":"https://x","filter":{"conditions_sql":"true"}}`:     "conditions_sql",
		`{"name":"crm","url":"https://x","filter":{},"conditions_sql":"true"}`:    "both",
		`{"name":"crm","url":"https://x","batch":1000}`:                           "",
		`{"name":"crm","url":"https://x","filter":{"stream":{"a":1}}}`:            "",
		`{"name":"crm","url":"https://x","timeout":"long"}`:                       "timeout",
		`{"name":"crm","url":"https://x","unknown":1}`:                            "",
		`{"name":"crm","url":"https://x","conditions_sql":"1/0 = 1; drop table"}`: "",
	} {
		p := s.call(t, "POST", "/v1/webhooks", body).wantProblem(t, 400, mention)
		if strings.Contains(fmt.Sprint(p), "hidden") {
			t.Errorf("%s: %+v", body, p)
		}
	}
	s.call(t, "POST", "/v1/webhooks/crm/redeliver", `{"events":[1]}`).wantProblem(t, 404, "crm")
}

// A token that does not name a restricted stream can neither have its events sent to an
// endpoint, nor change or see a webhook that gets them.
func TestWebhooksOfRestrictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named := s.issue(t, "default", []scope{scopeAdmin, scopeRead}, "payroll")
	others := s.issue(t, "default", []scope{scopeAdmin, scopeRead})
	for _, stream := range []string{`"payroll"`, `["orders","payroll"]`} {
		s.call(t, "POST", "/v1/webhooks", `{"name":"spy","url":"https://x","filter":{"stream":`+stream+`}}`, others).wantProblem(t, 403, "payroll")
	}
	s.call(t, "POST", "/v1/webhooks", `{"name":"bank","url":"https://bank.example","filter":{"stream":["payroll"]}}`, named).want(t, 201)
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example","filter":{"stream":">"}}`, others).want(t, 201)
	s.call(t, "PATCH", "/v1/webhooks/crm", `{"filter":{"stream":"payroll"}}`, others).wantProblem(t, 403, "payroll")

	for _, call := range []struct{ method, path, body string }{
		{http.MethodGet, "", ""},
		{http.MethodPatch, "", `{"url":"https://spy.example"}`},
		{http.MethodDelete, "", ""},
		{http.MethodPost, "/enable", ""},
		{http.MethodPost, "/disable", ""},
		{http.MethodPost, "/test", ""},
		{http.MethodPost, "/rotate", "{}"},
		{http.MethodPost, "/redeliver", `{"events":[1]}`},
		{http.MethodGet, "/deliveries", ""},
	} {
		missing := s.call(t, call.method, "/v1/webhooks/none"+call.path, call.body, others).wantProblem(t, 404, "none")
		hidden := s.call(t, call.method, "/v1/webhooks/bank"+call.path, call.body, others).wantProblem(t, 404, "bank")
		equal(t, call.method+call.path, strings.ReplaceAll(hidden.Detail, "bank", "none"), missing.Detail)
		equal(t, "hint", hidden.Hint, missing.Hint)
	}
	names := func(token string) (found []string) {
		var all list[admin.Webhook]
		s.call(t, "GET", "/v1/webhooks", nil, token).want(t, 200, &all)
		for _, w := range all.Items {
			found = append(found, w.Name)
		}
		return found
	}
	equal(t, "webhooks for a token that names the stream", names(named), []string{"bank", "crm"})
	equal(t, "webhooks for others", names(others), []string{"crm"})
	s.call(t, "PATCH", "/v1/webhooks/bank", `{"url":"https://new.example"}`, named).want(t, 200)

	b := s.visit(t)
	b.signIn(s.token(t, "read", "admin"))
	b.get("/ui/default/webhooks").wantPage(t, 200, "crm").wantNone(t, "bank")
	page := b.get("/ui/default/webhook?name=crm").wantPage(t, 200, "crm")
	b.get("/ui/default/webhook?name=bank").wantPage(t, 404, "bank")
	b.post(page, "/ui/default/webhook/disable", url.Values{"name": {"bank"}}).wantPage(t, 404, "bank")
}

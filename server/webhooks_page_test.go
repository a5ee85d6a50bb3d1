package server

import (
	"bytes"
	"html"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
)

var (
	filledInput  = regexp.MustCompile(`<input id="f-[^"]*" name="([^"]*)" value="([^"]*)"`)
	filledBox    = regexp.MustCompile(`(?s)<textarea id="f-[^"]*"[^>]* name="([^"]*)"[^>]*>(.*?)</textarea>`)
	filledChoice = regexp.MustCompile(`(?s)<select id="f-[^"]*" name="([^"]*)">.*?</select>`)
	chosenOption = regexp.MustCompile(`<option selected>([^<]*)</option>`)
)

// filled returns the fields of a form as a browser would send them.
func (a answered) filled() url.Values {
	fields := url.Values{}
	for _, found := range append(filledInput.FindAllStringSubmatch(a.body, -1), filledBox.FindAllStringSubmatch(a.body, -1)...) {
		fields.Set(found[1], html.UnescapeString(found[2]))
	}
	for _, found := range filledChoice.FindAllStringSubmatch(a.body, -1) {
		fields.Set(found[1], "")
		if option := chosenOption.FindStringSubmatch(found[0]); option != nil {
			fields.Set(found[1], option[1])
		}
	}
	return fields
}

// A webhook is made with a form, which shows its secret once, and changed with another one.
// That one has the settings as they are, but for the values of headers, so that sending it
// back changes nothing.
func TestWebhookForms(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := serve(t, Options{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	b := s.visit(t)
	b.signIn(s.token(t, "read", "admin"))
	b.get("/ui/default/webhooks").wantPage(t, 200, "Make a webhook…")
	form := b.get("/ui/default/webhook/create").wantPage(t, 200, "Headers. Sent with each request")
	fields := form.filled()
	for name, value := range map[string]string{
		"name": "crm", "url": "https://crm.example/<b>", "headers": `{"Authorization": "Bearer sesame"}`, "batch": "10", "gzip": "true", "order": "key",
		"rate": "2.5", "timeout": "5 seconds", "delays": "1 second, 1 hour", "disable_after": "never", "filter": `{"type": ["order.*"], "payload": {"n": 12345678901234567890}}`,
	} {
		if !fields.Has(name) {
			t.Errorf("the form lacks %s", name)
		}
		fields.Set(name, value)
	}
	made := b.post(form, "/ui/default/webhook/create", fields).wantPage(t, 200, "The secret of webhook crm is shown only this once")
	first := s.onlyOnce(t, b, made)
	want, err := s.ph.Admin().Webhook(t.Context(), "crm")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "settings", []any{want.Batch, want.Gzip, want.Order, want.Rate, want.TimeoutSeconds, want.Delays, want.DisableAfter, want.Headers},
		[]any{10, true, "key", 2.5, 5.0, []string{"00:00:01", "01:00:00"}, "", []string{"Authorization"}})

	form = b.get("/ui/default/webhook/change?name=crm").wantPage(t, 200, "12345678901234567890", "https://crm.example/&lt;b&gt;")
	form.wantNone(t, "sesame", first)
	for name, value := range map[string]string{
		"body": "cloudevents", "batch": "10", "gzip": "true", "order": "key", "concurrency": "10", "rate": "2.5", "timeout": "5 seconds",
		"delays": "00:00:01,01:00:00", "disable_after": "never", "headers": "", "conditions_sql": "",
	} {
		equal(t, name+" in the form", form.filled().Get(name), value)
	}
	change := func(fields url.Values) {
		t.Helper()
		b.post(form, "/ui/default/webhook/change", fields).wantPage(t, 200, "Webhook crm is changed.", "<h1>Webhook ")
		got, err := s.ph.Admin().Webhook(t.Context(), "crm")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "webhook", got, want)
	}
	generation := func() int64 { return s.number(t, "select generation from posthorn.webhooks") }
	before := generation()
	change(form.filled())
	equal(t, "generation after a change of nothing", generation(), before)
	fields = form.filled()
	fields.Set("gzip", "false")
	fields.Set("headers", "{}")
	fields.Set("rate", "0")
	want.Gzip, want.Headers, want.Rate = false, nil, 0
	change(fields)
	// A condition may have lines, and comments that end with one.
	fields.Del("filter")
	fields.Set("conditions_sql", "e.type = 'a' -- not b\nor e.type = 'c'")
	want.Filter, want.Condition, want.Params = nil, "e.type = 'a' -- not b\nor e.type = 'c'", []byte("{}")
	change(fields)
	form = b.get("/ui/default/webhook/change?name=crm").wantPage(t, 200, `<textarea id="f-conditions_sql"`)
	change(form.filled())
	for name, value := range map[string]string{"batch": "1000", "rate": "-1", "headers": `{"X": "sesame"`, "filter": "[]", "timeout": "long", "url": "ftp://x"} {
		fields := form.filled()
		fields.Set(name, value)
		b.post(form, "/ui/default/webhook/change", fields).wantPage(t, 400).wantNone(t, "sesame")
	}

	form = b.get("/ui/default/webhook/rotate?name=crm").wantPage(t, 200, "Keep old")
	if second := s.onlyOnce(t, b, b.post(form, "/ui/default/webhook/rotate", url.Values{"name": {"crm"}, "keep_old": {"2d"}})); second == first {
		t.Error("the secret is the same")
	}
	pair := b.post(form, "/ui/default/webhook/rotate", url.Values{"name": {"crm"}, "secret": {"ed25519"}, "keep_old": {"0"}})
	pair.wantPage(t, 200, "checks signatures with this public key", "whpk_").wantNone(t, "whsk_", "whsec_")
	b.get("/ui/default/webhook?name=crm").wantPage(t, 200, "ed25519").wantNone(t, "hmac")

	b.get("/ui/default/webhook/delete?name=crm").wantPage(t, 200, "Delete webhook crm (https://crm.example/&lt;b&gt;) with the 0 events that it is owed?")
	b.post(form, "/ui/default/webhook/delete", url.Values{"name": {"crm"}}).wantPage(t, 200, "Deleted webhook crm", "There is no webhook")
	if strings.Contains(log.String(), "sesame") || strings.Contains(log.String(), "whs") {
		t.Errorf("the log has a secret: %s", log.String())
	}
}

// onlyOnce returns the secret of a webhook that an answer shows. No header of the answer has
// it, and no other page.
func (s *served) onlyOnce(t *testing.T, b *visitor, answer answered) string {
	t.Helper()
	shown := regexp.MustCompile(`<code>(whsec_[^<]*)</code>`).FindStringSubmatch(answer.body)
	if shown == nil {
		t.Fatalf("no secret is shown: %s", answer.body)
	}
	secret := html.UnescapeString(shown[1])
	for name, values := range answer.header {
		if strings.Contains(strings.Join(values, " "), secret) {
			t.Errorf("header %s has the secret", name)
		}
	}
	for _, path := range []string{"webhooks", "webhook?name=crm", "webhook/change?name=crm", "webhook/rotate?name=crm", "audit"} {
		b.get("/ui/default/"+path).wantPage(t, 200).wantNone(t, shown[1])
	}
	equal(t, "entries with the secret", s.number(t, "select count(*) from posthorn.audit a where strpos(a::text, '"+secret+"') > 0"), 0)
	return secret
}

// Forms of a webhook of a restricted stream are not there for a token that does not name it.
func TestWebhookFormsOfRestrictedStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)})
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	_, err := s.ph.Admin().CreateWebhook(t.Context(), "bank", admin.WebhookSettings{
		URL: "https://bank.example", Filter: &admin.Subscription{Filter: []byte(`{"stream": "payroll"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := s.visit(t)
	b.signIn(s.token(t, "read", "admin"))
	form := b.get("/ui/default/webhook/create").wantPage(t, 200)
	b.get("/ui/default/webhook/change?name=bank").wantPage(t, 404).wantNone(t, "bank.example", "payroll")
	b.get("/ui/default/webhook/delete?name=bank").wantPage(t, 404).wantNone(t, "bank.example")
	b.post(form, "/ui/default/webhook/create", url.Values{"name": {"spy"}, "url": {"https://spy.example"}, "filter": {`{"stream": "payroll"}`}}).wantPage(t, 403)
	for _, action := range []string{"change", "rotate", "disable", "enable", "test", "delete"} {
		b.post(form, "/ui/default/webhook/"+action, url.Values{"name": {"bank"}, "url": {"https://spy.example"}}).wantPage(t, 404, "bank").wantNone(t, "whsec_")
	}
	b.post(form, "/ui/default/webhook/redeliver", url.Values{"name": {"bank"}, "event": {"1"}}).wantPage(t, 404)
	equal(t, "webhooks", s.number(t, "select count(*) from posthorn.webhook_status where name = 'bank' and state = 'active' and url = 'https://bank.example'"), 1)
}

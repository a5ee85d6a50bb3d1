package admin_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestWebhookIsMadeAndChanged(t *testing.T) {
	t.Parallel()
	a := posthorntest.Open(t, posthorn.Config{}).Admin()
	ctx := t.Context()
	rate, gzip := 2.5, true
	secret, err := a.CreateWebhook(ctx, "crm", admin.WebhookSettings{
		URL: "https://example.com/hooks?shop=7", Filter: &admin.Subscription{Filter: json.RawMessage(`{"type": "order.*"}`)},
		Headers: map[string]string{"Authorization": "Bearer hidden"}, Body: "payload", Batch: 10, Gzip: &gzip, Order: "key", Concurrency: 3,
		Rate: &rate, Timeout: "2 seconds", Delays: []string{"1 second", "1 hour"}, DisableAfter: "never",
	})
	if err != nil || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("secret %q, %v", secret, err)
	}
	want := admin.Webhook{
		Name: "crm", URL: "https://example.com/hooks?shop=7", Filter: json.RawMessage(`{"type": "order.*"}`),
		Body: "payload", Batch: 10, Gzip: true, Order: "key", Concurrency: 3, Rate: 2.5, TimeoutSeconds: 2, Delays: []string{"00:00:01", "01:00:00"},
		Headers: []string{"Authorization"}, Secrets: []admin.WebhookSecret{{Kind: "hmac"}}, State: "active",
	}
	check := func() {
		t.Helper()
		got, err := a.Webhook(ctx, "crm")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.Webhook{}, "ID", "CreatedAt"), cmpopts.IgnoreFields(admin.WebhookSecret{}, "CreatedAt")); diff != "" {
			t.Errorf("webhook (-want +got):\n%s", diff)
		}
	}
	check()

	if _, err := a.CreateWebhook(ctx, "crm", admin.WebhookSettings{URL: "https://example.com"}); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("made twice: %v", err)
	}
	none := 0.0
	if err := a.ChangeWebhook(ctx, "crm", admin.WebhookSettings{
		URL: "http://example.com/", Headers: map[string]string{}, Rate: &none, DisableAfter: "1 day",
		Filter: &admin.Subscription{Condition: "e.type = s.params->>'type'", Params: json.RawMessage(`{"type": "a"}`)},
	}); err != nil {
		t.Fatal(err)
	}
	want.URL, want.Headers, want.Rate, want.DisableAfter, want.Filter = "http://example.com/", nil, 0, "1 day", nil
	want.Condition, want.Params = "e.type = s.params->>'type'", json.RawMessage(`{"type": "a"}`)
	check()
	if err := a.ChangeWebhook(ctx, "other", admin.WebhookSettings{}); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("changing one that does not exist: %v", err)
	}

	if owed, err := a.DeleteWebhook(ctx, "crm"); err != nil || owed != 0 {
		t.Errorf("deleted: %d owed, %v", owed, err)
	}
	if _, err := a.Webhook(ctx, "crm"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestWebhookSecretsAreRotated(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	ctx := t.Context()
	secret, err := a.CreateWebhook(ctx, "crm", admin.WebhookSettings{URL: "https://example.com", Secret: "ed25519"})
	if err != nil {
		t.Fatal(err)
	}
	private, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsk_"))
	if err != nil || len(private) != ed25519.PrivateKeySize {
		t.Fatalf("%d bytes of private key, %v", len(private), err)
	}
	secrets := func() []admin.WebhookSecret {
		t.Helper()
		w, err := a.Webhook(ctx, "crm")
		if err != nil {
			t.Fatal(err)
		}
		return w.Secrets
	}
	public := "whpk_" + base64.StdEncoding.EncodeToString(private[32:])
	if s := secrets(); len(s) != 1 || s[0].Kind != "ed25519" || s[0].PublicKey != public {
		t.Fatalf("got %+v, want the public key %s", s, public)
	}
	given := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if got, err := a.RotateWebhookSecret(ctx, "crm", given, time.Hour); err != nil || got != given {
		t.Fatalf("rotated to %q, %v", got, err)
	}
	if s := secrets(); len(s) != 2 || s[0].Kind != "hmac" || !s[0].ExpiresAt.IsZero() || s[1].ExpiresAt.IsZero() {
		t.Errorf("both are to be valid, the old one for an hour: %+v", s)
	}
	posthorntest.Advance(t, ph, 2*time.Hour)
	if s := secrets(); len(s) != 1 || s[0].Kind != "hmac" {
		t.Errorf("after the hour: %+v", s)
	}
	if _, err := a.RotateWebhookSecret(ctx, "crm", "", -1); err != nil {
		t.Fatal(err)
	}
	if s := secrets(); len(s) != 1 {
		t.Errorf("the old one ends now: %+v", s)
	}
	var shown string
	if err := ph.Pool().QueryRow(ctx, `
		select string_agg(x::text, ' ') from (
			select to_jsonb(w) as x from posthorn.webhook_status w union all select to_jsonb(k) from posthorn.webhook_keys k) y`).Scan(&shown); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(shown, "whsec_") || strings.Contains(shown, "whsk_") {
		t.Errorf("a secret is shown: %s", shown)
	}
}

func TestWrongWebhooksAreRefused(t *testing.T) {
	t.Parallel()
	a := posthorntest.Open(t, posthorn.Config{}).Admin()
	ok := "https://example.com"
	for name, s := range map[string]admin.WebhookSettings{
		"no url":                 {},
		"other scheme":           {URL: "ftp://example.com"},
		"no host":                {URL: "https:///hooks"},
		"password":               {URL: "https://user:password@example.com"},
		"port":                   {URL: "https://example.com:99999/"},
		"port zero":              {URL: "https://example.com:0"},
		"port of an address":     {URL: "https://[2001:db8::1]:65536/"},
		"fragment":               {URL: "https://example.com/#a"},
		"line break":             {URL: "https://example.com/\nHost: x"},
		"header of its own":      {URL: ok, Headers: map[string]string{"webhook-id": "x"}},
		"header with a break":    {URL: ok, Headers: map[string]string{"X-A": "a\r\nb"}},
		"header with no name":    {URL: ok, Headers: map[string]string{"": "a"}},
		"header twice":           {URL: ok, Headers: map[string]string{"X-A": "a", "x-a": "b"}},
		"short secret":           {URL: ok, Secret: "whsec_YWFh"},
		"secret of another kind": {URL: ok, Secret: "hush"},
		"unknown body":           {URL: ok, Body: "xml"},
		"unknown order":          {URL: ok, Order: "total"},
		"no period":              {URL: ok, Timeout: "soon"},
		"long timeout":           {URL: ok, Timeout: "1 hour"},
		"unknown field":          {URL: ok, Filter: &admin.Subscription{Filter: json.RawMessage(`{"colour": "red"}`)}},
		"expiry":                 {URL: ok, Filter: &admin.Subscription{ExpireAfter: time.Hour}},
		"broken condition":       {URL: ok, Filter: &admin.Subscription{Condition: "e.nothing = 1"}},
	} {
		if _, err := a.CreateWebhook(t.Context(), "w", s); !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q)", name, err, posthorn.Hint(err))
		}
		if all, err := a.Webhooks(t.Context()); err != nil || len(all) > 0 {
			t.Fatalf("%s left %d webhooks, %v", name, len(all), err)
		}
	}
}

// Consumers may subscribe and unsubscribe, but not change webhooks in that way.
func TestWebhooksAreNoSubscriptionsForConsumers(t *testing.T) {
	t.Parallel()
	a := posthorntest.Open(t, posthorn.Config{}).Admin()
	if _, err := a.CreateWebhook(t.Context(), "crm", admin.WebhookSettings{URL: "https://example.com"}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]admin.Subscription{
		"a filter":    {Filter: json.RawMessage(`{"stream": "salaries"}`)},
		"a condition": {Condition: "true"},
	} {
		for _, webhook := range []string{"crm", "new"} {
			if _, err := a.Subscribe(t.Context(), "webhooks", webhook, s); !errors.Is(err, posthorn.ErrRefused) {
				t.Errorf("subscribed %s with %s: %v", webhook, name, err)
			}
		}
	}
	if _, err := a.Unsubscribe(t.Context(), "webhooks", "crm"); !errors.Is(err, posthorn.ErrRefused) {
		t.Errorf("unsubscribed: %v", err)
	}
}

// The numbers of a webhook are those of the requests in the period, by interval, and say so
// when they are those of the newest requests only.
func TestWebhookRates(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	for _, name := range []string{"crm", "other"} {
		if _, err := a.CreateWebhook(ctx, name, admin.WebhookSettings{URL: "https://example.com"}); err != nil {
			t.Fatal(err)
		}
	}
	// One request a minute in the last two hours: the tenth of each ten fails, and takes long.
	if _, err := ph.Pool().Exec(ctx, `insert into posthorn.webhook_attempts (at, event_id, webhook_id, attempt, duration_ms, status, outcome, request_id)
		select posthorn.now() - (120 - i) * interval '1 minute', i, w.id, 1, case when i % 10 = 0 then 1000 else 20 end, 200, case when i % 10 = 0 then 'retry' else 'delivered' end, 'r'
		from posthorn.webhooks w, generate_series(1, 120) i order by i`); err != nil {
		t.Fatal(err)
	}
	rates, err := a.WebhookRates(ctx, "crm", time.Hour, 60)
	if err != nil || len(rates) < 60 || len(rates) > 62 {
		t.Fatalf("%d rates: %+v, %v", len(rates), rates, err)
	}
	whole := rates[0]
	if !whole.At.IsZero() || whole.Deliveries < 59 || whole.Deliveries > 61 || whole.Failed != 6 || whole.P50 != 20 || whole.P95 != 1000 || !whole.LookedBack.IsZero() {
		t.Errorf("of the hour: %+v", whole)
	}
	for _, r := range rates[1:] {
		if r.Deliveries != 1 || r.Failed == 1 != (r.P50 == 1000) {
			t.Errorf("of a minute: %+v", r)
		}
	}
	var deliveries, minutes int
	err = ph.Pool().QueryRow(ctx, "select deliveries, floor(extract(epoch from posthorn.now() - looked_back) / 60)::int from posthorn.webhook_rates('default', 'crm', max_looks => 10) where at is null").Scan(&deliveries, &minutes)
	if err != nil || deliveries != 10 || minutes < 8 || minutes > 10 {
		t.Errorf("of the newest ten: %d since %d minutes, %v", deliveries, minutes, err)
	}
}

// The events that a webhook got have their types and payloads, also when they were sent to it
// alone.
func TestWebhookBodies(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	if _, err := a.CreateWebhook(ctx, "crm", admin.WebhookSettings{URL: "https://example.com"}); err != nil {
		t.Fatal(err)
	}
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Payload: map[string]int{"order": 7}}, posthorn.Message{Type: "pay", Stream: "payroll"})
	test, err := a.TestWebhook(ctx, "crm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ph.Pool().Exec(ctx, "delete from posthorn.retries"); err != nil { // as after the delivery
		t.Fatal(err)
	}
	bodies, err := a.Hiding([]string{"payroll"}).WebhookBodies(ctx, "crm", []int64{1, 2, test, 999})
	if err != nil || len(bodies) != 2 || bodies[0].Type != "order.placed" || !strings.Contains(bodies[0].Beginning, `7}`) || bodies[1].Type != "posthorn.webhook.test" {
		t.Errorf("%+v, %v", bodies, err)
	}
}

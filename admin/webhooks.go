package admin

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Webhook is an endpoint that gets events over HTTP, and its state. It does not contain the
// secrets and the values of the headers.
type Webhook struct {
	ID             int             `json:"id"`
	Name           string          `json:"name"`
	URL            string          `json:"url"`
	Filter         json.RawMessage `json:"filter,omitempty"` // none: there is a condition
	Condition      string          `json:"conditions_sql,omitempty"`
	Params         json.RawMessage `json:"params,omitempty"` // of the condition
	Body           string          `json:"body"`             // cloudevents or payload
	Batch          int             `json:"batch"`            // the maximum of events in one request; 1: each by itself, without an array
	Gzip           bool            `json:"gzip,omitempty"`   // bodies above 1 KiB are compressed
	Order          string          `json:"order"`            // none or key
	Concurrency    int             `json:"concurrency"`      // the maximum of requests at once
	Rate           float64         `json:"rate,omitempty"`   // the maximum of requests a second; 0: no limit
	TimeoutSeconds float64         `json:"timeout_seconds"`
	Delays         []string        `json:"delays"`                  // before each further attempt; up to a fifth is added at random
	DisableAfter   string          `json:"disable_after,omitempty"` // of failures only; "": never

	Headers []string        `json:"headers,omitempty"` // their names
	Secrets []WebhookSecret `json:"secrets"`           // newest first

	// State is active, failing, catching up or disabled. A webhook that catches up
	// gets the events that it missed while it was disabled.
	State          string    `json:"state"`
	DisabledAt     time.Time `json:"disabled_at,omitzero"`
	DisabledReason string    `json:"disabled_reason,omitempty"`
	FailingSince   time.Time `json:"failing_since,omitzero"` // the first failure since the last success
	LastError      string    `json:"last_error,omitempty"`   // of the last failure
	Owed           int64     `json:"owed"`                   // events that wait or are retried; counted up to 1,000
	OwedOrMore     bool      `json:"owed_or_more,omitempty"` // there may be more than were counted
	OldestOwed     time.Time `json:"oldest_owed,omitzero"`   // when the oldest of these events was published
	DeadLetters    int64     `json:"dead_letters"`           // counted up to 1,000

	DeadLettersOrMore bool `json:"dead_letters_or_more,omitempty"` // there may be more than were counted

	Owner     string    `json:"owner,omitempty"` // the process that sends; "": no process does
	CreatedAt time.Time `json:"created_at"`
}

// WebhookSecret describes a secret with which a webhook signs. It does not contain the
// secret.
type WebhookSecret struct {
	Kind      string    `json:"kind"`                 // hmac or ed25519
	PublicKey string    `json:"public_key,omitempty"` // whpk_…, of ed25519: receivers check signatures with this key
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // of an old secret, after a rotation
}

var webhooks = kind[Webhook]{"webhook", `
	select w.id, w.name, w.url, case when w.conditions_sql is null then w.filter end as filter, w.conditions_sql,
		case when w.conditions_sql is not null then w.filter end as params, w.body, w.batch, w.gzip, w."order", w.concurrency, w.rate,
		extract(epoch from w.timeout)::float8 as timeout_seconds, w.delays::text[] as delays, w.disable_after::text as disable_after,
		(select array_agg(k.header order by k.header) from posthorn.webhook_keys k
			where k.namespace = w.namespace and k.name = w.name and k.kind = 'header') as headers,
		(select coalesce(jsonb_agg(jsonb_strip_nulls(to_jsonb(k)) order by k.created_at desc), '[]') from posthorn.webhook_keys k
			where k.namespace = w.namespace and k.name = w.name and k.kind <> 'header') as secrets,
		w.state, w.disabled_at, ` + seenReason + ` as disabled_reason, w.failing_since, w.last_error, w.owed, w.oldest_owed, w.dead_letters, w.owner, w.created_at, w.owed_or_more, w.dead_letters_or_more
	from posthorn.webhook_status w
	where w.namespace = $1::text and w.name = coalesce($2::text, w.name) and ` + seen("webhook", "w.name", "$3") + `
	order by w.name`, "Create it first, or look for it in another namespace."}

// seenReason is why a webhook is disabled, unless that is an error of its condition about an event of a hidden stream.
const seenReason = `case when w.disabled_reason is not null and exists (select from posthorn.hidden_things($1::text, $3::text[]) h
		where h.kind = 'webhook' and h.name = w.name) then '` + withheld + `' else w.disabled_reason end`

// Webhooks returns the webhooks of the namespace, by name.
func (a *Admin) Webhooks(ctx context.Context) ([]Webhook, error) {
	all, err := webhooks.all(ctx, a)
	for i := range all {
		a.shorten(&all[i])
	}
	return all, err
}

// Webhook returns one webhook.
func (a *Admin) Webhook(ctx context.Context, name string) (Webhook, error) {
	w, err := webhooks.named(ctx, a, name)
	a.shorten(&w)
	return w, err
}

// HostsOnly returns an Admin that shows no more than the host of a webhook's URL. The path, the query and the user are
// often secrets: anyone who knows the URL of a chat may write there.
func (a *Admin) HostsOnly() *Admin {
	other := *a
	other.hostsOnly = true
	return &other
}

// shorten leaves the scheme and the host of a URL, and says that there is more.
func (a *Admin) shorten(w *Webhook) {
	if !a.hostsOnly {
		return
	}
	to, err := url.Parse(w.URL)
	if err != nil {
		w.URL = "…"
		return
	}
	if host := to.Scheme + "://" + to.Host; host != w.URL {
		w.URL = host + "/…"
	}
}

// WebhookSettings are the settings of a webhook. A setting that is left out stays as it is,
// or has its default in a new webhook. Periods are texts that Postgres reads.
type WebhookSettings struct {
	URL          string            `json:"url,omitempty" example:"https://example.com/hooks" doc:"Where to send; required for a new webhook"`
	Filter       *Subscription     `json:"-"`
	Headers      map[string]string `json:"headers,omitzero" secret:"true" maxProperties:"20" doc:"Sent with each request; they replace all that there were. Their values are never shown"`
	Body         string            `json:"body,omitempty" enum:"cloudevents,payload" doc:"A CloudEvent with the payload as its data, or the payload alone. Default: cloudevents"`
	Batch        int               `json:"batch,omitempty" minimum:"1" maximum:"100" doc:"Events of one request, at most, as an array. Default: 1, and no array"`
	Gzip         *bool             `json:"gzip,omitempty" doc:"Whether bodies above 1 KiB are compressed: the receiver must unpack them. Default: false"`
	Order        string            `json:"order,omitempty" enum:"none,key" doc:"Whether events of one key come one after another. Default: none"`
	Concurrency  int               `json:"concurrency,omitempty" minimum:"1" maximum:"100" doc:"Requests at once, at most. Default: 10"`
	Rate         *float64          `json:"rate,omitempty" minimum:"0" doc:"Requests a second, at most; 0, the default, for no limit"`
	Timeout      string            `json:"timeout,omitempty" example:"15 seconds" doc:"Of one request, with the answer. Default: 15 seconds"`
	Delays       []string          `json:"delays,omitempty" maxItems:"30" doc:"Before each further attempt; up to a fifth is added at random. Default: nine, over three days"`
	DisableAfter string            `json:"disable_after,omitempty" example:"3 days" doc:"How long every request may fail until the webhook is disabled; or never. Default: 3 days"`
	Secret       string            `json:"secret,omitempty" secret:"true" page:"-" doc:"Of a new webhook: whsec_…, whsk_…, or ed25519 to have a pair of keys made. Default: a new whsec_…"`
}

// document returns the settings in the form that create_webhook and change_webhook read.
func (s WebhookSettings) document() (string, error) {
	type plain WebhookSettings
	if s.Secret == "ed25519" {
		secret, err := newKeyPair()
		if err != nil {
			return "", err
		}
		s.Secret = secret
	}
	fields := struct {
		plain
		Filter json.RawMessage `json:"filter,omitempty"`
	}{plain: plain(s)}
	if s.Filter != nil {
		filter, err := s.Filter.document()
		if err != nil {
			return "", err
		}
		fields.Filter = json.RawMessage(filter)
	}
	document, err := json.Marshal(fields)
	return string(document), err
}

// newKeyPair makes a private key of ed25519, whose second half is the public key.
func newKeyPair() (string, error) {
	_, private, err := ed25519.GenerateKey(nil)
	return "whsk_" + base64.StdEncoding.EncodeToString(private), err
}

// CreateWebhook makes a webhook and returns its secret, with which the receiver checks
// signatures. The secret is not shown again. CreateWebhook fails with posthorn.ErrConflict
// if a webhook of that name exists.
func (a *Admin) CreateWebhook(ctx context.Context, name string, settings WebhookSettings) (secret string, err error) {
	document, err := settings.document()
	if err != nil {
		return "", pg.Translate("create webhook", err)
	}
	if err := a.checkWebhookFilter(ctx, settings.Filter); err != nil {
		return "", err
	}
	return changed[string](ctx, a, aWebhook(name).made(), entry{"create-webhook", name, settings.shown()},
		"select posthorn.create_webhook($1::text, $2::text, $3::jsonb)", a.namespace, name, document)
}

// checkWebhookFilter refuses a filter that names a hidden stream, and a condition where
// [Admin.Subscribe] does. A filter that names no stream is right: a webhook gets no events
// of restricted streams that its filter does not name.
func (a *Admin) checkWebhookFilter(ctx context.Context, s *Subscription) error {
	if s == nil {
		return nil
	}
	if err := a.checkCondition(*s); err != nil {
		return err
	}
	if err := a.checkFilter(ctx, s); err != nil {
		return err
	}
	if s.Condition != "" && len(a.hidden) > 0 {
		return pg.Refused("a condition in SQL reads events of restricted streams that the token does not name, and its error would show them",
			"Use a filter, or a token that names those streams.")
	}
	return nil
}

// shown returns the settings that the audit log shows.
func (s WebhookSettings) shown() any {
	return struct {
		URL string `json:"url,omitempty"`
	}{s.URL}
}

// ChangeWebhook changes settings of a webhook. It does not change those that are left out.
func (a *Admin) ChangeWebhook(ctx context.Context, name string, settings WebhookSettings) error {
	document, err := settings.document()
	if err != nil {
		return pg.Translate("change webhook", err)
	}
	if err := a.checkWebhookFilter(ctx, settings.Filter); err != nil {
		return err
	}
	return a.change(ctx, aWebhook(name), entry{"change-webhook", name, settings.shown()},
		"select posthorn.change_webhook($1::text, $2::text, $3::jsonb)", a.namespace, name, document)
}

// DeleteWebhook deletes a webhook with the events that wait for it, and returns their
// number. Its dead letters stay.
func (a *Admin) DeleteWebhook(ctx context.Context, name string) (owed int64, err error) {
	return changed[int64](ctx, a, aWebhook(name), entry{"delete-webhook", name, nil}, "select posthorn.delete_webhook($1::text, $2::text)", a.namespace, name)
}

// DisableWebhook sends no requests to a webhook until [Admin.EnableWebhook]. Events that
// wait for it stay, and it gets the events that it misses, if they are still in the log.
// Reason is for people, and may be empty.
func (a *Admin) DisableWebhook(ctx context.Context, name, reason string) error {
	return a.change(ctx, aWebhook(name), entry{"disable-webhook", name, nil}, "select posthorn.disable_webhook($1::text, $2::text, $3::text)",
		a.namespace, name, pg.Optional(reason))
}

// EnableWebhook lets a webhook go on with the events that wait for it and those that it has
// missed. A webhook that fails is retried at once.
func (a *Admin) EnableWebhook(ctx context.Context, name string) error {
	return a.change(ctx, aWebhook(name), entry{"enable-webhook", name, nil}, "select posthorn.enable_webhook($1::text, $2::text)", a.namespace, name)
}

// RotateWebhookSecret gives a webhook a new secret and returns it. Secret is a secret of the
// receiver; ed25519 makes a pair of keys, and "" a secret for HMAC. Requests are signed with
// the old secret too until keepOld has passed: 0 is a day, and with a negative period the
// old secret ends now.
func (a *Admin) RotateWebhookSecret(ctx context.Context, name, secret string, keepOld time.Duration) (string, error) {
	if secret == "ed25519" {
		var err error
		if secret, err = newKeyPair(); err != nil {
			return "", pg.Translate("rotate webhook secret", err)
		}
	}
	if keepOld == 0 {
		keepOld = 24 * time.Hour
	}
	return changed[string](ctx, a, aWebhook(name), entry{"rotate-webhook-secret", name, nil},
		"select posthorn.rotate_webhook_secret($1::text, $2::text, $3::text, $4::text::interval)",
		a.namespace, name, pg.Optional(secret), pg.Period(max(keepOld, 0)))
}

// TestWebhook sends an event of type posthorn.webhook.test to one webhook, even if its
// filter does not match, and returns the event's id. [Admin.WebhookAttempts] shows the
// requests.
func (a *Admin) TestWebhook(ctx context.Context, name string) (event int64, err error) {
	_, err = a.recorded(ctx, aWebhook(name), entry{"test-webhook", name, nil}, func(db DB) (n int64, err error) {
		event, err = pg.Value[int64](ctx, db, "test webhook", "select posthorn.test_webhook($1::text, $2::text)", a.namespace, name)
		return 1, err
	})
	return event, err
}

// RedeliverWebhook sends events to a webhook at once, even if it has had them or its filter
// does not match, and returns their number. It redrives dead letters of the webhook.
func (a *Admin) RedeliverWebhook(ctx context.Context, name string, events ...int64) (int64, error) {
	return changed[int64](ctx, a, aWebhook(name), entry{"redeliver-webhook", name, map[string]any{"events": events}},
		"select posthorn.redeliver_webhook($1::text, $2::text, $3::bigint[], $4::text[])", a.namespace, name, append([]int64{}, events...), list(a.hidden))
}

// WebhookAttemptFilter selects attempts. Webhook or EventID is required.
type WebhookAttemptFilter struct {
	Webhook string `json:"webhook,omitempty"`
	EventID int64  `json:"event,omitempty"`
	Failed  bool   `json:"failed,omitempty"` // only those that failed
	Before  int64  `json:"before,omitempty"` // those with lower ids: the next page
	Limit   int    `json:"limit,omitempty"`  // Default: 100; at most 1000
}

// WebhookAttempt is an entry of the delivery log: a request for one event. It is kept for
// webhook_attempts_retention_period.
type WebhookAttempt struct {
	ID         int64     `json:"id"`
	Webhook    string    `json:"webhook"`
	EventID    int64     `json:"event_id"`
	Attempt    int       `json:"attempt"` // 1 is the first
	At         time.Time `json:"at"`
	DurationMS int       `json:"duration_ms"`
	Status     int       `json:"status,omitempty"`  // of the answer; 0: there was none
	Outcome    string    `json:"outcome"`           // delivered, retry, dead or disabled
	Error      string    `json:"error,omitempty"`   // why it failed
	Excerpt    string    `json:"excerpt,omitempty"` // of the answer's body
	RequestID  string    `json:"request_id"`        // the webhook-id of a request with this event alone
}

// WebhookAttempts returns requests to a webhook, or for an event, newest first.
func (a *Admin) WebhookAttempts(ctx context.Context, filter WebhookAttemptFilter) ([]WebhookAttempt, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return nil, pg.Translate("list webhook attempts", err)
	}
	if filter.Webhook != "" {
		if err := a.see(ctx, a.db, aWebhook(filter.Webhook)); err != nil {
			return nil, err
		}
	}
	return rows[WebhookAttempt](ctx, a.db, "list webhook attempts",
		"select * from posthorn.list_webhook_attempts($1::text, $2::jsonb, $3::text[])", a.namespace, string(document), list(a.hidden))
}

// WebhookRate counts the requests to a webhook in an interval, for one event each, and says
// how long they took.
type WebhookRate struct {
	At         time.Time `json:"at,omitzero"` // where the interval begins; zero: of the whole period
	Deliveries int64     `json:"deliveries"`
	Failed     int64     `json:"failed"`
	P50        float64   `json:"p50_ms" db:"p50_ms"` // milliseconds that half of them took at most
	P95        float64   `json:"p95_ms" db:"p95_ms"` // and 95 % of them
	LookedBack time.Time `json:"looked_back,omitzero"`
}

// WebhookRates returns numbers of the requests to a webhook: first those of a whole period of
// at most 8 days until now, then those of each of its intervals that has some, oldest first.
// It looks at the newest 10,000 requests. If there may be more in the period, LookedBack is
// the time of the oldest one that it looked at.
func (a *Admin) WebhookRates(ctx context.Context, name string, period time.Duration, intervals int) ([]WebhookRate, error) {
	if err := a.see(ctx, a.db, aWebhook(name)); err != nil {
		return nil, err
	}
	return rows[WebhookRate](ctx, a.db, "list rates of webhook", "select * from posthorn.webhook_rates($1::text, $2::text, $3::interval, $4::int)", a.namespace, name, period, intervals)
}

// WebhookBody is an event that a webhook got, with the beginning of its payload.
type WebhookBody struct {
	EventID   int64  `json:"event_id"`
	Type      string `json:"type"`
	Beginning string `json:"beginning"`
	Sealed    bool   `json:"sealed,omitempty"` // the payload is confidential
}

// WebhookBodies returns events that a webhook got. It leaves out events that are gone.
func (a *Admin) WebhookBodies(ctx context.Context, name string, events []int64) ([]WebhookBody, error) {
	if err := a.see(ctx, a.db, aWebhook(name)); err != nil {
		return nil, err
	}
	return rows[WebhookBody](ctx, a.db, "show events of webhook", "select * from posthorn.webhook_bodies($1::text, $2::text, $3::bigint[], $4::text[])",
		a.namespace, name, append([]int64{}, events...), list(a.hidden))
}

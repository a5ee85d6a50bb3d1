package op

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/webhook/send"
)

var webhooks = Topic{"webhooks", "webhook", "crm"}

var ListWebhooks = listAll(About{
	Topic: webhooks, SQL: "webhook_status",
	Does:    "List webhooks with the state of their endpoints",
	More:    "Each with its settings and the state of its endpoint. Secrets, and the values of headers, are never shown.",
	Example: "posthorn webhooks list --json",
}, (*admin.Admin).Webhooks)

var GetWebhook = getNamed(About{
	Topic: webhooks, SQL: "webhook_status",
	Does: "Show one webhook: its settings, and the state of its endpoint",
	More: "Secrets, and the values of headers, are never shown.",
}, (*admin.Admin).Webhook)

// WebhookSettings is part of every input that creates or changes a webhook. Its filter has
// the form of subscriptions.
type WebhookSettings struct {
	admin.WebhookSettings
	Filter    map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload, as in subscriptions. Default: every event"`
	Condition string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an SQL expression over e and s"`
	Params    map[string]json.RawMessage `json:"params,omitempty" doc:"The parameters of the condition"`
}

// read returns the settings as package admin has them. Commands set the filter there.
func (w WebhookSettings) read() (admin.WebhookSettings, error) {
	settings := w.WebhookSettings
	if w.Filter == nil && w.Condition == "" && w.Params == nil {
		return settings, nil
	}
	wanted, err := filterOf(w.Filter, w.Condition, w.Params)
	settings.Filter = &wanted
	return settings, err
}

// present sets the settings to those of a webhook. Headers stay empty: their values are
// never shown, and leaving them out changes none.
func (w *WebhookSettings) present(now admin.Webhook) error {
	w.URL, w.Body, w.Batch, w.Order, w.Concurrency, w.Delays = now.URL, now.Body, now.Batch, now.Order, now.Concurrency, now.Delays
	w.Gzip, w.Rate, w.Timeout = &now.Gzip, &now.Rate, fmt.Sprintf("%g seconds", now.TimeoutSeconds)
	w.DisableAfter = first(now.DisableAfter, "never")
	w.Condition = now.Condition
	if err := readObject(now.Filter, &w.Filter); err != nil {
		return err
	}
	return readObject(now.Params, &w.Params)
}

// readObject reads a document, if there is one.
func readObject(document json.RawMessage, into *map[string]json.RawMessage) error {
	if len(document) == 0 {
		return nil
	}
	return json.Unmarshal(document, into)
}

// WebhookKey is the key with which a receiver checks signatures.
type WebhookKey struct {
	Secret    string `json:"secret,omitempty" doc:"whsec_…. No other response shows it"`
	PublicKey string `json:"public_key,omitempty" doc:"whpk_…, of ed25519. Its private key is never shown"`
}

// Issued returns the secret, or the public key.
func (k WebhookKey) Issued() string { return first(k.Secret, k.PublicKey) }

// sentence tells people about the key of a webhook.
func (k WebhookKey) sentence(webhook string) string {
	if k.PublicKey != "" {
		return "the receiver of webhook " + webhook + " checks signatures with this public key"
	}
	return "the secret of webhook " + webhook + " is shown only this once; its receiver checks signatures with it"
}

// refusalOf ends the sentence about a webhook whose address will be refused, so that nobody waits for requests in vain.
func refusalOf(url string) string {
	refused := send.Refused(url)
	if refused == "" {
		return ""
	}
	return "; " + refused
}

// privateKey begins a private key of ed25519.
const privateKey = "whsk_"

// keyOf returns the key for receivers that belongs to a secret. The secret of ed25519 is a
// private key, which is not returned: receivers need the public key only.
func keyOf(secret string, w admin.Webhook) WebhookKey {
	if strings.HasPrefix(secret, privateKey) && len(w.Secrets) > 0 {
		return WebhookKey{PublicKey: w.Secrets[0].PublicKey}
	}
	return WebhookKey{Secret: secret}
}

// CreateWebhookInput is a new webhook.
type CreateWebhookInput struct {
	Namespace
	Body struct {
		Name string `json:"name" doc:"The name of the webhook" example:"crm"`
		WebhookSettings
	}
}

// CreatedWebhook is a webhook that was just created, with its key.
type CreatedWebhook struct {
	admin.Webhook
	WebhookKey
}

var CreateWebhook = Op[CreateWebhookInput, CreatedWebhook]{
	About: About{
		Topic: webhooks, Verb: "create", Method: "POST", Command: "webhooks create NAME URL",
		Does: "Make a webhook, and show its secret once",
		More: "The webhook gets events that are published from now on and match its filter. The receiver checks signatures with " +
			"the secret, which nothing shows again.",
		Example: "posthorn webhooks create crm https://crm.example/hooks\n" +
			"posthorn webhooks create crm https://crm.example/hooks --type 'order.*' --order key\n" +
			"posthorn webhooks create audit https://audit.example/ --secret ed25519 --batch 100 --gzip\n" +
			"posthorn webhooks create chat https://chat.example/ --header 'Authorization: Bearer 7Zk' --rate 5",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *CreateWebhookInput) (made CreatedWebhook, err error) {
		settings, err := in.Body.read()
		if err != nil {
			return made, err
		}
		secret, err := a.CreateWebhook(ctx, in.Body.Name, settings)
		if err != nil {
			return made, err
		}
		made.Webhook, err = a.Webhook(ctx, in.Body.Name)
		made.WebhookKey = keyOf(secret, made.Webhook)
		return made, err
	},
	Done: func(in *CreateWebhookInput, made CreatedWebhook) string {
		return made.sentence(in.Body.Name) + refusalOf(made.URL)
	},
}

// ChangeWebhookInput has the settings that are changed.
type ChangeWebhookInput struct {
	ByName
	Body WebhookSettings
}

var ChangeWebhook = Op[ChangeWebhookInput, admin.Webhook]{
	About: About{
		Topic: webhooks, Verb: "change", Method: "PATCH",
		Does: "Change the settings of a webhook",
		More: "A setting that is left out stays as it is. A filter replaces the whole filter, and headers replace all headers. " +
			"Requests that are under way are not affected.",
		Example: "posthorn webhooks change crm --url https://new.example/hooks\n" +
			"posthorn webhooks change crm --type 'order.*' --type 'invoice.*'\n" +
			"posthorn webhooks change crm --disable-after never --no-headers",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ChangeWebhookInput) (admin.Webhook, error) {
		settings, err := in.Body.read()
		if err != nil {
			return admin.Webhook{}, err
		}
		if err := a.ChangeWebhook(ctx, in.Name, settings); err != nil {
			return admin.Webhook{}, err
		}
		return a.Webhook(ctx, in.Name)
	},
	Load: func(ctx context.Context, a *admin.Admin, in *ChangeWebhookInput) error {
		now, err := a.Webhook(ctx, in.Name)
		if err != nil {
			return err
		}
		return in.Body.present(now)
	},
	Done: func(in *ChangeWebhookInput, _ admin.Webhook) string {
		return "webhook " + in.Name + " is changed" + refusalOf(in.Body.URL)
	},
}

var DeleteWebhook = Op[ByName, Owed]{
	About: About{
		Topic: webhooks, Verb: "delete",
		Does: "Delete a webhook with the events that it is owed",
		More: "Events that wait to be sent, or to be tried again, are no longer sent; the result has their number. Its dead " +
			"letters stay, and its deliveries until they are old.",
		Example: "posthorn webhooks delete crm --yes",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (Owed, error) {
		owed, err := a.DeleteWebhook(ctx, in.Name)
		return Owed{owed}, err
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *ByName) (string, error) {
		w, err := a.Webhook(ctx, in.Name)
		owed := Counted(w.Owed, "event")
		if w.OwedOrMore {
			owed = fmt.Sprintf("%d or more events", w.Owed)
		}
		return fmt.Sprintf("delete webhook %s (%s) with the %s that it is owed", w.Name, w.URL, owed), err
	},
	Done: func(in *ByName, out Owed) string {
		return fmt.Sprintf("deleted webhook %s, to which %s owed", in.Name, Were(out.Owed, "event"))
	},
}

var EnableWebhook = onNamed(About{
	Topic: webhooks, Verb: "enable",
	Does: "Enable a webhook, or try a failing endpoint at once",
	More: "The webhook gets the events that it missed while it was disabled, if the log still has them.",
}, (*admin.Admin).EnableWebhook, "webhook %s is enabled")

// DisableWebhookInput says why a webhook is disabled.
type DisableWebhookInput struct {
	ByName
	Reason string `query:"reason" flag:"reason" doc:"A reason, shown to operators"`
}

var DisableWebhook = Op[DisableWebhookInput, None]{
	About: About{
		Topic: webhooks, Verb: "disable",
		Does: "Disable a webhook: it sends nothing until it is enabled",
		More: "Events that wait to be sent, or to be tried again, are kept. It gets those that it misses when it is enabled, if " +
			"the log still has them. A second call changes nothing.",
		Example: "posthorn webhooks disable crm\nposthorn webhooks disable crm --reason 'until the new server is up'",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *DisableWebhookInput) (None, error) {
		return None{}, a.DisableWebhook(ctx, in.Name, in.Reason)
	},
	Done: func(in *DisableWebhookInput, _ None) string { return "webhook " + in.Name + " is disabled" },
}

// RotateWebhookSecretInput may have a secret of the receiver.
type RotateWebhookSecretInput struct {
	ByName
	Body struct {
		Secret  string `json:"secret,omitempty" secret:"true" flag:"secret" doc:"whsec_…, whsk_…, or ed25519 to generate a pair of keys. Default: a new whsec_…"`
		KeepOld string `json:"keep_old,omitempty" flag:"keep-old" doc:"How long requests are signed with the old secret too; 0 for no longer. Default: 24 hours"`
	}
}

// RotatedSecret is the new key of a webhook.
type RotatedSecret struct {
	Name string `json:"name" doc:"The name of the webhook"`
	WebhookKey
}

var RotateWebhookSecret = Op[RotateWebhookSecretInput, RotatedSecret]{
	About: About{
		Topic: webhooks, Verb: "rotate", Name: "rotate-webhook-secret", Go: "RotateWebhookSecret", SQL: "rotate_webhook_secret",
		Does: "Give a webhook a new secret, and show it once",
		More: "For a day, or the period that is given, requests have a signature of the old secret too, so the receiver can " +
			"change to the new one at any time before. Nothing shows the new secret again.",
		Example: "posthorn webhooks rotate crm\nposthorn webhooks rotate crm --keep-old 7d\n" +
			"posthorn webhooks rotate crm --keep-old 0s\nposthorn webhooks rotate crm --secret ed25519",
		ByHand: map[Face]string{HTTP: "the body may be left out, and a period may be a number"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *RotateWebhookSecretInput) (out RotatedSecret, err error) {
		keepOld, err := keepFor(in.Body.KeepOld)
		if err != nil {
			return out, err
		}
		secret, err := a.RotateWebhookSecret(ctx, in.Name, in.Body.Secret, keepOld)
		if err != nil {
			return out, err
		}
		out = RotatedSecret{in.Name, WebhookKey{Secret: secret}}
		if strings.HasPrefix(secret, privateKey) {
			w, err := a.Webhook(ctx, in.Name)
			return RotatedSecret{in.Name, keyOf(secret, w)}, err
		}
		return out, nil
	},
	Done: func(in *RotateWebhookSecretInput, out RotatedSecret) string { return out.sentence(in.Name) },
}

// keepFor reads the period of an old secret, as package admin has it: 0 is a day, and a
// negative one ends the secret now.
func keepFor(text string) (time.Duration, error) {
	switch strings.TrimSpace(text) {
	case "":
		return 0, nil
	case "0", "0s":
		return -1, nil
	}
	return Lifetime(text)
}

var TestWebhook = Op[ByName, EventID]{
	About: About{
		Topic: webhooks, Verb: "test",
		Does: "Send a test event to a webhook",
		More: "The event has the type posthorn.webhook.test, and need not match the filter. The result has its id, by which the " +
			"answer of the endpoint can be found among the deliveries.",
		ByHand: map[Face]string{Command: "it waits for the answer of the endpoint"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (EventID, error) {
		id, err := a.TestWebhook(ctx, in.Name)
		return EventID{id}, err
	},
	Done: func(in *ByName, _ EventID) string { return "webhook " + in.Name + " gets a test event" },
}

// RedeliverWebhookInput names events.
type RedeliverWebhookInput struct {
	ByName
	Body struct {
		Events []int64 `json:"events" page:"event" minItems:"1" maxItems:"1000" doc:"The ids of the events"`
	}
}

// Redelivered is the number of events that are sent again.
type Redelivered struct {
	Count       int64 `json:"count" doc:"How many there were"`
	Redelivered int64 `json:"redelivered" doc:"The same"`
}

var RedeliverWebhook = Op[RedeliverWebhookInput, Redelivered]{
	About: About{
		Topic: webhooks, Verb: "redeliver", Command: "webhooks redeliver NAME EVENT...",
		Does: "Send events to a webhook again",
		More: "The events need not match the filter, and may have been sent before. Dead letters of the webhook are " +
			"redriven. The result has the number of events.",
		Example: "posthorn webhooks redeliver crm 4711 4712",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *RedeliverWebhookInput) (Redelivered, error) {
		if len(in.Body.Events) == 0 {
			return Redelivered{}, pg.Invalid("no event is named", "Give the ids of events.")
		}
		n, err := a.RedeliverWebhook(ctx, in.Name, in.Body.Events...)
		return Redelivered{n, n}, err
	},
	Done: func(in *RedeliverWebhookInput, out Redelivered) string {
		return fmt.Sprintf("webhook %s gets %s again", in.Name, Counted(out.Count, "event"))
	},
}

// ListWebhookDeliveriesInput is a page of the deliveries of a webhook. Faces that have
// cursors set Before.
type ListWebhookDeliveriesInput struct {
	ByName
	Paging
	Event  int64 `query:"event" flag:"event" minimum:"1" doc:"Only deliveries of this event"`
	Failed bool  `query:"failed" flag:"failed" doc:"true: only deliveries that failed"`
	Before int64
}

var ListWebhookDeliveries = Op[ListWebhookDeliveriesInput, []admin.WebhookAttempt]{
	About: About{
		Topic: webhooks, Verb: "deliveries", Scope: Read, Name: "list-webhook-deliveries", Go: "WebhookAttempts", SQL: "list_webhook_attempts",
		Method: "GET", Path: "/v1/webhooks/{name}/deliveries", Command: "webhooks deliveries [NAME]", Page: "webhook",
		Does: "List the deliveries of a webhook, newest first",
		More: "Each with its time, and the status and the beginning of the endpoint's answer. They are kept for " +
			"webhook_attempts_retention_period, a week unless configured otherwise.",
		Example: "posthorn webhooks deliveries crm --failed\nposthorn webhooks deliveries --event 4711\nposthorn webhooks deliveries crm --limit 10 --json",
		ByHand: map[Face]string{
			HTTP: "a cursor has the id before which the page begins", Command: "NAME may be left out, and --limit tells whether there are more",
			Page: "the page of a webhook lists them",
		},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListWebhookDeliveriesInput) ([]admin.WebhookAttempt, error) {
		if _, err := a.Webhook(ctx, in.Name); err != nil {
			return nil, err
		}
		return a.WebhookAttempts(ctx, admin.WebhookAttemptFilter{
			Webhook: in.Name, EventID: in.Event, Failed: in.Failed, Before: in.Before, Limit: in.Limit,
		})
	},
}

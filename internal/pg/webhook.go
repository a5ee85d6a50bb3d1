package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// WebhookGroups returns the groups of the namespaces that have webhooks.
func WebhookGroups(ctx context.Context, db DB) ([]Group, error) {
	return Collect(ctx, db, "look for webhooks", func(row pgx.CollectableRow) (g Group, err error) {
		g.Name = "webhooks"
		return g, row.Scan(&g.ID, &g.Namespace)
	}, "select group_id, namespace from posthorn.webhook_namespaces()")
}

// WebhookLead is the lead of the webhooks of a namespace.
type WebhookLead struct {
	Group  Group
	Owner  string
	Epoch  int64  // 0: another process has the lead
	Leader string // the process that leads
}

// LeadWebhooks takes the lead of some webhooks, if no other process has it. With an epoch,
// it renews the lead of that epoch and its leases, or fails with [ErrLeaseLost].
func LeadWebhooks(ctx context.Context, db DB, group Group, owner string, leaseFor time.Duration, epoch int64) (WebhookLead, error) {
	lead := WebhookLead{Group: group, Owner: owner}
	err := db.QueryRow(ctx, `
		select coalesce(term, 0), coalesce(leader, '') from posthorn.lead_webhooks($1::bigint, $2::text, $3::text::interval, $4::bigint)`,
		group.ID, owner, Period(leaseFor), Optional(epoch)).Scan(&lead.Epoch, &lead.Leader)
	return lead, Translate("lead webhooks", err)
}

// ResignWebhooks gives the lead back, so that another process can take it at once.
func ResignWebhooks(ctx context.Context, db DB, lead WebhookLead) error {
	return Exec(ctx, db, "resign webhooks", "select posthorn.resign_webhooks($1::bigint, $2::text, $3::bigint)",
		lead.Group.ID, lead.Owner, lead.Epoch)
}

// WebhookEndpoint is a webhook as the process that leads needs it.
type WebhookEndpoint struct {
	ID          int
	Name        string
	URL         string
	Body        string
	Batch       int
	Gzip        bool
	Ordered     bool
	Concurrency int
	Rate        float64 // requests a second; 0 for no limit
	Timeout     time.Duration
	Headers     map[string]string
	Secrets     []string

	Failures   int  // in a row
	Rests      bool // no request may be made yet
	Disabled   bool
	CatchingUp bool // events that it has missed are being collected

	// Generation rises when the webhook is enabled, or its requests change. An answer to an
	// earlier one says nothing about it.
	Generation int
}

// WebhookEndpoints returns the webhooks of a group, and the version of their settings.
func WebhookEndpoints(ctx context.Context, db DB, lead WebhookLead) (endpoints []WebhookEndpoint, version int64, err error) {
	endpoints, err = Collect(ctx, db, "read webhooks", func(row pgx.CollectableRow) (e WebhookEndpoint, err error) {
		var timeout float64
		err = row.Scan(&e.ID, &e.Name, &e.URL, &e.Body, &e.Batch, &e.Gzip, &e.Ordered, &e.Concurrency, &e.Rate, &timeout, &e.Headers, &e.Secrets,
			&e.Failures, &e.Rests, &e.Disabled, &e.CatchingUp, &version, &e.Generation)
		e.Timeout = time.Duration(timeout * float64(time.Second))
		return e, err
	}, `
		select id, name, url, body, batch, gzip, ordered, concurrency, coalesce(rate, 0), extract(epoch from timeout)::float8, headers, secrets,
			failures, rests, disabled, catching_up, version, generation
		from posthorn.webhook_endpoints($1::bigint, $2::text, $3::bigint)`, lead.Group.ID, lead.Owner, lead.Epoch)
	return endpoints, version, err
}

// WebhookLook is the state of the webhooks of a namespace.
type WebhookLook struct {
	Version int64 // of their settings
	Resting []int // no request may be made yet
	Owing   []int // may be owed an event that is due
}

// LookAtWebhooks returns the state of the webhooks of a namespace.
func LookAtWebhooks(ctx context.Context, db DB, lead WebhookLead) (l WebhookLook, err error) {
	err = db.QueryRow(ctx, "select version, resting, owing from posthorn.look_at_webhooks($1::bigint, $2::text, $3::bigint)",
		lead.Group.ID, lead.Owner, lead.Epoch).Scan(&l.Version, &l.Resting, &l.Owing)
	return l, Translate("look at webhooks", err)
}

// WebhookEvent is an event with the webhooks that it is for, and its slot in ordered ones.
type WebhookEvent struct {
	Event
	Slot     int
	Webhooks []int
}

// WebhookWindow is a window of the log.
type WebhookWindow struct {
	ID      int64
	Attempt int
	Events  []WebhookEvent
	Version int64 // of the settings, if there are events
}

// Held reports whether there is a window.
func (w WebhookWindow) Held() bool { return w.ID != 0 }

// TakeWebhooks takes the next window of the log with the events that match a webhook. If
// there are more than maxEvents of them, the next window has the rest. A window that is held
// may have no events. A condition that is too slow is stopped, as by [Pool.Take].
func (p *Pool) TakeWebhooks(ctx context.Context, lead WebhookLead, window, maxEvents int, leaseFor time.Duration) (WebhookWindow, error) {
	var w WebhookWindow
	err := p.QueryRow(ctx, "select coalesce(lease, 0), coalesce(attempt, 0) from posthorn.take_webhooks($1::bigint, $2::text, $3::bigint, $4::int, $5::text::interval)",
		lead.Group.ID, lead.Owner, lead.Epoch, min(window, mostEvents), Period(leaseFor)).Scan(&w.ID, &w.Attempt)
	if err = claimError(err); err != nil || !w.Held() {
		return w, Translate("take", err)
	}
	limit := claimLimit(context.WithoutCancel(ctx), leaseFor)
	for again := true; ; again = false {
		err = p.webhookEvents(Within(ctx, limit+LeaseTime(leaseFor)), &w, maxEvents, limit)
		if !again || !wasCanceled(err) || ctx.Err() != nil || !stopSlowConditions(ctx, p, lead.Group, maxEvents, limit) {
			return w, Translate("take", err)
		}
	}
}

// webhookEvents reads the events of a window, in a transaction with a statement_timeout.
func (p *Pool) webhookEvents(ctx context.Context, w *WebhookWindow, maxEvents int, limit time.Duration) error {
	batch := &pgx.Batch{}
	batch.Queue(timeoutSQL, milliseconds(limit))
	batch.Queue(`
		select event_id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at, slot, webhooks, version
		from posthorn.webhook_events($1::bigint, $2::int, $3::int)`, w.ID, w.Attempt, maxEvents).Query(func(rows pgx.Rows) (err error) {
		w.Events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e WebhookEvent, err error) {
			return e, row.Scan(&e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata), &e.PublishedAt,
				&e.Slot, &e.Webhooks, &w.Version)
		})
		return err
	})
	return claimError(p.SendBatch(ctx, batch).Close())
}

// WebhookAsk says how many events of a webhook are wanted, and which are held already.
type WebhookAsk struct {
	Webhook int
	Room    int
	Held    []int64
	DueFrom time.Time // events without an order that were due before are left out
}

// WebhookDue is an event that a webhook is owed.
type WebhookDue struct {
	Webhook  int
	Event    Event
	Attempts int  // so far
	Slot     int  // of an ordered webhook; negative: none
	Withheld bool // its stream is restricted, and the webhook does not name it
	Gone     bool // the log has dropped it
	DueAt    time.Time
}

// DueWebhooks returns events that webhooks are owed and that are due.
func DueWebhooks(ctx context.Context, db DB, lead WebhookLead, asks []WebhookAsk) ([]WebhookDue, error) {
	var webhooks, rooms, holders []int32
	held := []int64{}
	var dueFrom []*time.Time
	for _, ask := range asks {
		dueFrom = append(dueFrom, Optional(ask.DueFrom))
		webhooks, rooms = append(webhooks, int32(ask.Webhook)), append(rooms, int32(ask.Room))
		for _, event := range ask.Held {
			holders, held = append(holders, int32(ask.Webhook)), append(held, event)
		}
	}
	return Collect(ctx, db, "read what webhooks are owed", func(row pgx.CollectableRow) (d WebhookDue, err error) {
		e := &d.Event
		var published *time.Time
		err = row.Scan(&d.Webhook, &e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata), &published,
			&d.Attempts, &d.Slot, &d.Withheld, &d.DueAt)
		if d.Gone = published == nil; !d.Gone {
			e.PublishedAt = *published
		}
		return d, err
	}, `
		select webhook_id, event_id, coalesce(stream, ''), coalesce(type, ''), coalesce(key, ''), tags, payload, metadata, published_at,
			attempts, coalesce(slot % 256, -1)::int, coalesce(withheld, false), due_at
		from posthorn.due_webhooks($1::bigint, $2::text, $3::bigint, $4::int[], $5::int[], coalesce($6::int[], '{}'), $7::bigint[], $8::timestamptz[])`,
		lead.Group.ID, lead.Owner, lead.Epoch, webhooks, rooms, holders, held, dueFrom)
}

// WebhookResult is the outcome of an event for a webhook.
type WebhookResult struct {
	Webhook    int     `json:"webhook"`
	Event      int64   `json:"event"`
	Outcome    string  `json:"outcome"`  // one of the constants
	Attempts   int     `json:"attempts"` // so far, with this one if a request was made
	Owed       bool    `json:"owed"`     // it has a row in retries
	Slot       *int    `json:"slot,omitempty"`
	WaitMS     int64   `json:"wait_ms,omitempty"` // that the endpoint has asked for, or until it is due again
	RequestID  string  `json:"request_id,omitempty"`
	Status     int     `json:"status,omitempty"`
	DurationMS int64   `json:"duration_ms"`
	Error      *string `json:"error,omitempty"`
	Excerpt    string  `json:"excerpt,omitempty"`
	Generation int     `json:"generation"` // of the webhook, when the request was made
}

// The outcomes of a [WebhookResult].
const (
	WebhookDelivered = "delivered"
	WebhookFailed    = "failed"   // it is tried again, or a dead letter
	WebhookRejected  = "rejected" // a dead letter
	WebhookGone      = "gone"     // the endpoint is: the webhook is disabled
	WebhookAside     = "aside"    // not tried: it is due at once or after WaitMS
	WebhookWithheld  = "withheld" // a dead letter: the webhook may not have it
	WebhookDropped   = "dropped"  // the log has dropped it
)

// WebhookHealth tells whether an endpoint works.
type WebhookHealth struct {
	Webhook  int
	Failures int  // in a row
	Rests    bool // no request may be made yet
	Disabled bool
	Dead     int // dead letters that were just made

	Generation int // of the webhook, that this is the health of
}

// RecordWebhooks records results and ends windows, in one transaction. It returns the
// health of the endpoints that have failed or work again. It fails with [ErrLeaseLost], and
// changes nothing, when the lead or a window is lost.
func RecordWebhooks(ctx context.Context, db DB, lead WebhookLead, results []WebhookResult, windows []WebhookWindow) ([]WebhookHealth, error) {
	report := struct {
		Results []WebhookResult `json:"results"`
		Windows [][2]int64      `json:"windows"`
	}{Results: append([]WebhookResult{}, results...), Windows: [][2]int64{}}
	for _, w := range windows {
		report.Windows = append(report.Windows, [2]int64{w.ID, int64(w.Attempt)})
	}
	document, err := json.Marshal(report)
	if err != nil {
		return nil, Translate("record webhooks", err)
	}
	return Collect(ctx, db, "record webhooks", pgx.RowToStructByPos[WebhookHealth],
		"select webhook_id, failures, rests, disabled, dead, generation from posthorn.record_webhooks($1::bigint, $2::text, $3::bigint, $4::jsonb)",
		lead.Group.ID, lead.Owner, lead.Epoch, string(document))
}

package page

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) webhooks() {
	p.screen(Screen{Path: "webhooks", Live: true, Show: listWebhooks})
	p.screen(Screen{Path: "webhook", Under: "webhooks", Live: true, Show: showWebhook})
	p.operation(op.EnableWebhook, nil)
	p.operation(op.TestWebhook, nil)
	p.operation(op.DisableWebhook, fromWebhookForm)
	p.operation(op.RedeliverWebhook, fromWebhookForm)
	p.operation(op.CreateWebhook, toWebhook)
	p.operation(op.ChangeWebhook, toWebhook)
	p.operation(op.RotateWebhookSecret, toWebhook)
	p.operation(op.DeleteWebhook, func(r *Request) string { return r.Link("webhooks") })
}

func listWebhooks(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	list, err := sorted(r, all, func(w admin.Webhook) string { return w.Name }, map[string]func(admin.Webhook) float64{
		"state": func(w admin.Webhook) float64 {
			return float64(slices.Index([]string{"active", "catching up", "failing", "disabled"}, w.State))
		},
		"owed": func(w admin.Webhook) float64 { return float64(w.Owed) },
		"dead": func(w admin.Webhook) float64 { return float64(w.DeadLetters) },
	})
	return &View{Title: "Webhooks", Data: list}, err
}

func toWebhook(r *Request) string { return r.Link("webhook", "name", r.Value("name")) }

// fromWebhookForm leads to the page of the webhook, unless a button was on another page.
func fromWebhookForm(r *Request) string {
	if back := r.Value("back"); back != "" && !strings.HasPrefix(back, r.Link("webhook/")) {
		return ""
	}
	return toWebhook(r)
}

func showWebhook(ctx context.Context, r *Request) (*View, error) {
	webhook, err := r.Admin.Webhook(ctx, r.Value("name"))
	if err != nil {
		return nil, err
	}
	before, err := r.optionalNumber("before")
	if err != nil {
		return nil, err
	}
	attempts, err := r.Admin.WebhookAttempts(ctx, admin.WebhookAttemptFilter{
		Webhook: webhook.Name, Failed: r.Value("failed") != "", Before: before, Limit: pageLength + 1,
	})
	if err != nil {
		return nil, err
	}
	attempts, more := pageOf(r, attempts, "before", func(a admin.WebhookAttempt) any { return a.ID })
	page := webhookPage{Webhook: webhook, Paging: more}
	if page.Deliveries, err = deliveriesOf(ctx, r, webhook.Name, attempts); err != nil {
		return nil, err
	}
	return &View{Title: "Webhook " + webhook.Name, Data: &page}, page.measure(ctx, r)
}

// webhookPage is a webhook as its template shows it.
type webhookPage struct {
	Webhook    admin.Webhook
	Deliveries []delivery
	Paging     paging
	Whole      admin.WebhookRate // of the period
	Charts     []chart
}

// delivery is an attempt, with the event that was sent.
type delivery struct {
	admin.WebhookAttempt
	Sent *admin.WebhookBody // nil: the event is gone
}

func deliveriesOf(ctx context.Context, r *Request, webhook string, attempts []admin.WebhookAttempt) ([]delivery, error) {
	var events []int64
	for _, a := range attempts {
		events = append(events, a.EventID)
	}
	bodies, err := r.Admin.WebhookBodies(ctx, webhook, events)
	if err != nil {
		return nil, err
	}
	sent := map[int64]*admin.WebhookBody{}
	for i := range bodies {
		sent[bodies[i].EventID] = &bodies[i]
	}
	var deliveries []delivery
	for _, a := range attempts {
		deliveries = append(deliveries, delivery{a, sent[a.EventID]})
	}
	return deliveries, nil
}

// measure makes the charts of the requests in a period.
func (p *webhookPage) measure(ctx context.Context, r *Request) error {
	s, err := r.span()
	if err != nil {
		return err
	}
	rates, err := r.Admin.WebhookRates(ctx, p.Webhook.Name, s.period, s.intervals)
	if err != nil || len(rates) == 0 {
		return err
	}
	p.Whole = rates[0]
	now := time.Now()
	failed, slow := newChart("failed", "requests that failed", s, inRequests, now), newChart("slow", "time for an answer, 95 of 100", s, inSeconds, now)
	for _, rate := range rates[1:] {
		failed.set(rate.At, float64(rate.Failed))
		slow.set(rate.At, rate.P95/1000)
	}
	failed.Now, slow.Now, failed.Bad = float64(p.Whole.Failed), p.Whole.P95/1000, true
	p.Charts = []chart{failed, slow}
	return nil
}

// Success is the part of the requests that were answered well.
func (p *webhookPage) Success() string {
	return percent(100 * float64(p.Whole.Deliveries-p.Whole.Failed) / float64(p.Whole.Deliveries))
}

// Half and Most are the times within which half and 95 of 100 requests were answered.
func (p *webhookPage) Half() string { return took(p.Whole.P50 / 1000) }

// Most is described with Half.
func (p *webhookPage) Most() string { return took(p.Whole.P95 / 1000) }

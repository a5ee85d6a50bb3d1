package page

import (
	"context"
	"strings"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) webhooks() {
	p.screen(Screen{Path: "webhooks", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		all, err := r.Admin.Webhooks(ctx)
		return &View{Title: "Webhooks", Data: all}, err
	}})
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
	return &View{Title: "Webhook " + webhook.Name, Data: struct {
		Webhook  admin.Webhook
		Attempts []admin.WebhookAttempt
		Paging   paging
	}{webhook, attempts, more}}, nil
}

package page

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) webhooks() {
	p.screen(Screen{Path: "webhooks", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		all, err := r.Admin.Webhooks(ctx)
		return &View{Title: "Webhooks", Data: all}, err
	}})
	p.screen(Screen{Path: "webhook", Under: "webhooks", Live: true, Show: showWebhook})
	onWebhook := func(path, done string, do func(ctx context.Context, a *admin.Admin, name string) error) {
		p.action(Action{Path: path, Do: func(ctx context.Context, r *Request) (string, string, error) {
			name := r.Value("name")
			return "", "Webhook " + name + " " + done + ".", do(ctx, r.Admin, name)
		}})
	}
	onWebhook("webhook/enable", "is enabled; it gets the events that it missed", func(ctx context.Context, a *admin.Admin, name string) error {
		return a.EnableWebhook(ctx, name)
	})
	onWebhook("webhook/disable", "is disabled; its events wait", func(ctx context.Context, a *admin.Admin, name string) error {
		return a.DisableWebhook(ctx, name, "")
	})
	onWebhook("webhook/test", "gets a test event", func(ctx context.Context, a *admin.Admin, name string) error {
		_, err := a.TestWebhook(ctx, name)
		return err
	})
	p.action(Action{Path: "webhook/redeliver", Do: redeliver})
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

func redeliver(ctx context.Context, r *Request) (string, string, error) {
	event, err := r.Number("event")
	if err != nil {
		return "", "", err
	}
	n, err := r.Admin.RedeliverWebhook(ctx, r.Value("name"), event)
	if err == nil && n == 0 {
		err = &Problem{Status: 404, Detail: fmt.Sprintf("event %d is not in the log any more", event)}
	}
	return "", fmt.Sprintf("Event %d is sent again.", event), err
}

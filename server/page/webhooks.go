package page

import (
	"context"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) webhooks() {
	p.screen(Screen{Path: "webhooks", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		all, err := r.Admin.Webhooks(ctx)
		return &View{Title: "Webhooks", Data: all}, err
	}})
	p.screen(Screen{Path: "webhook", Under: "webhooks", Live: true, Show: showWebhook})
	onWebhook := func(verb, done string) {
		p.action(Action{Path: "webhook/" + verb, Do: func(ctx context.Context, r *Request) (string, string, error) {
			name := r.Value("name")
			err := r.Call(ctx, http.MethodPost, "/v1/webhooks/"+segment(name)+"/"+verb, nil, nil)
			return "", "Webhook " + name + " " + done + ".", err
		}})
	}
	onWebhook("enable", "is enabled; it gets the events that it missed")
	onWebhook("disable", "is disabled; its events wait")
	onWebhook("test", "gets a test event")
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
	err = r.Call(ctx, http.MethodPost, "/v1/webhooks/"+segment(r.Value("name"))+"/redeliver", map[string][]int64{"events": {event}}, nil)
	return "", fmt.Sprintf("Event %d is sent again.", event), err
}

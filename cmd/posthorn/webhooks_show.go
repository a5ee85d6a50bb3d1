package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

var webhooksShow = showing[admin.Webhook]{
	about: about{
		use:     "show NAME",
		short:   "Show one webhook: its settings, and how its endpoint does",
		long:    `Show one webhook. Its secrets, and the values of its headers, are never shown.`,
		example: "  posthorn webhooks show crm",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (admin.Webhook, error) {
		return adm.Webhook(ctx, name)
	},
	print: printWebhook,
}

func printWebhook(w io.Writer, h admin.Webhook) error {
	f := newFields(w)
	f.field("webhook", h.Name)
	f.field("url", h.URL)
	f.field("state", h.State)
	f.field("disabled at", h.DisabledAt)
	f.field("disabled because", h.DisabledReason)
	f.field("failing since", h.FailingSince)
	f.field("last error", h.LastError)
	f.field("owed", h.Owed)
	f.field("oldest owed", h.OldestOwed)
	f.field("dead letters", h.DeadLetters)
	f.field("sent by", h.Owner)
	f.field("wants", wants(admin.SubscriptionStatus{Filter: h.Filter, Condition: h.Condition, Params: h.Params}))
	f.field("body", h.Body)
	f.field("batch", h.Batch)
	f.field("order", h.Order)
	f.field("concurrency", h.Concurrency)
	f.field("rate", rate(h.Rate))
	f.field("timeout", roughSeconds(h.TimeoutSeconds))
	f.field("delays", strings.Join(h.Delays, ", "))
	f.field("disable after", never(h.DisableAfter))
	f.field("headers", strings.Join(h.Headers, ", "))
	f.field("created", h.CreatedAt)
	if err := f.flush(); err != nil {
		return err
	}
	return webhookSecretColumns.printBelow(w, h.Secrets)
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%g a second", perSecond)
}

func never(period string) string {
	if period == "" {
		return "never"
	}
	return period
}

var webhookSecretColumns = columns[admin.WebhookSecret]{"signs with|since|until|public key", func(s admin.WebhookSecret) []any {
	return []any{s.Kind, s.CreatedAt, s.ExpiresAt, s.PublicKey}
}}

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newWebhooks(a *app) *cobra.Command {
	return parent(about{
		use:   "webhooks",
		short: "Send events to endpoints over HTTP",
		long: `A webhook sends the events that pass its filter to a URL. Each request is signed,
and repeated until the endpoint has answered with success. posthorn up and
posthorn serve send. See docs/webhooks.md.`,
	},
		list(a, op.ListWebhooks, "", webhookColumns),
		show(a, op.GetWebhook, webhookFields, func(w io.Writer, h admin.Webhook) error { return webhookSecretColumns.printBelow(w, h.Secrets) }),
		newWebhooksCreate(a),
		newWebhooksChange(a),
		newWebhooksTest(a),
		change(a, op.EnableWebhook),
		change(a, op.DisableWebhook),
		newWebhooksRotate(a),
		newWebhooksDeliveries(a),
		newWebhooksRedeliver(a),
		change(a, op.DeleteWebhook),
	)
}

var webhookColumns = columns[admin.Webhook]{"webhook|state|since|owed|dead letters|url|error", func(w admin.Webhook) []any {
	since := w.FailingSince
	if !w.DisabledAt.IsZero() {
		since = w.DisabledAt
	}
	return []any{w.Name, w.State, since, orMore(w.Owed, w.OwedOrMore), orMore(w.DeadLetters, w.DeadLettersOrMore), w.URL, shorten(webhookError(w), 60)}
}}

// webhookError is the reason why a webhook is disabled, or fails.
func webhookError(w admin.Webhook) string {
	if w.DisabledReason != "" {
		return w.DisabledReason
	}
	return w.LastError
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newWebhooks(a *app) *cobra.Command {
	return parent(about{
		use:   "webhooks",
		short: "Send events to endpoints over HTTP",
		long: `A webhook sends the events that pass its filter to a URL. Each request is signed,
and repeated until the endpoint has answered with success. posthorn up and
posthorn serve send. See docs/webhooks.md.`,
	},
		webhooksList.build(a),
		webhooksShow.build(a),
		newWebhooksCreate(a),
		newWebhooksChange(a),
		newWebhooksTest(a),
		webhooksEnable.build(a),
		newWebhooksDisable(a),
		newWebhooksRotate(a),
		newWebhooksDeliveries(a),
		webhooksRedeliver.build(a),
		webhooksDelete.build(a),
	)
}

var webhooksList = listCommand[admin.Webhook]{
	about: about{
		use:     "list",
		short:   "List webhooks with the state of their endpoints",
		example: "  posthorn webhooks list --json",
	},
	list: (*admin.Admin).Webhooks,
	columns: columns[admin.Webhook]{"webhook|state|since|owed|dead letters|url|error", func(w admin.Webhook) []any {
		since := w.FailingSince
		if !w.DisabledAt.IsZero() {
			since = w.DisabledAt
		}
		return []any{w.Name, w.State, since, orMore(w.Owed, w.OwedOrMore), orMore(w.DeadLetters, w.DeadLettersOrMore), w.URL, shorten(webhookError(w), 60)}
	}},
}

// webhookError is the reason why a webhook is disabled, or fails.
func webhookError(w admin.Webhook) string {
	if w.DisabledReason != "" {
		return w.DisabledReason
	}
	return w.LastError
}

var webhooksEnable = changeCommand{
	about: about{
		use:   "enable NAME",
		short: "Enable a webhook, which gets the events that it missed",
		long: `Enable a webhook that is disabled. It gets the events that it missed meanwhile, as
far as the log still has them. A webhook whose endpoint fails sends at once.`,
		example: "  posthorn webhooks enable crm",
	},
	do: withSentence("webhook %s is enabled", (*admin.Admin).EnableWebhook),
}

func newWebhooksDisable(a *app) *cobra.Command {
	var reason string
	cmd := changeCommand{
		about: about{
			use:   "disable NAME",
			short: "Send nothing to a webhook until it is enabled",
			long: `Send nothing more to a webhook until it is enabled. The events that it is owed
stay, and it gets the events that it missed when it is enabled, as far as the log
still has them.`,
			example: `  posthorn webhooks disable crm
  posthorn webhooks disable crm --reason 'until the new server is up'`,
		},
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			return result{sentence: fmt.Sprintf("webhook %s is disabled", args[0])}, adm.DisableWebhook(ctx, args[0], reason)
		},
	}.build(a)
	cmd.Flags().StringVar(&reason, "reason", "", "a text for people")
	return cmd
}

var webhooksDelete = changeCommand{
	about: about{
		use:   "delete NAME",
		short: "Delete a webhook with the events that it is owed",
		long: `Delete a webhook with the events that it is owed. Its dead letters stay, and its
deliveries until they are old.`,
		example: "  posthorn webhooks delete crm --yes",
	},
	json: true,
	ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
		w, err := adm.Webhook(ctx, args[0])
		return fmt.Sprintf("delete webhook %s (%s) with the %v events that it is owed", w.Name, w.URL, orMore(w.Owed, w.OwedOrMore)), err
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		owed, err := adm.DeleteWebhook(ctx, args[0])
		return result{fmt.Sprintf("deleted webhook %s, to which %d events were owed", args[0], owed), map[string]int64{"owed": owed}}, err
	},
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newWebhooks(a *app) *cobra.Command {
	return holding(about{
		use:   "webhooks",
		short: "Send events to endpoints over HTTP",
		long: `A webhook sends the events that pass its filter to a URL. Each request is signed,
and repeated until the endpoint has answered with success. posthorn up and
posthorn serve send.`,
	},
		webhooksList.of(a),
		webhooksShow.of(a),
		newWebhooksCreate(a),
		newWebhooksChange(a),
		newWebhooksTest(a),
		webhooksEnable.of(a),
		newWebhooksDisable(a),
		newWebhooksRotate(a),
		newWebhooksDeliveries(a),
		newWebhooksRedeliver(a),
		webhooksDelete.of(a),
	)
}

var webhooksList = listing[admin.Webhook]{
	about: about{
		use:     "list",
		short:   "List webhooks and how their endpoints do",
		example: "  posthorn webhooks list --json",
	},
	list: (*admin.Admin).Webhooks,
	columns: columns[admin.Webhook]{"webhook|state|since|owed|dead letters|url|error", func(w admin.Webhook) []any {
		since := w.FailingSince
		if !w.DisabledAt.IsZero() {
			since = w.DisabledAt
		}
		return []any{w.Name, w.State, since, w.Owed, w.DeadLetters, w.URL, shorten(webhookError(w), 60)}
	}},
}

// webhookError is the reason why a webhook is disabled, or fails.
func webhookError(w admin.Webhook) string {
	if w.DisabledReason != "" {
		return w.DisabledReason
	}
	return w.LastError
}

var webhooksEnable = doing{
	about: about{
		use:   "enable NAME",
		short: "Let a webhook go on, with what it missed",
		long: `Let a webhook that is disabled go on. It gets the events that it missed meanwhile,
as far as the log still has them. An endpoint that fails is tried at once.`,
		example: "  posthorn webhooks enable crm",
	},
	do: done("webhook %s is enabled", (*admin.Admin).EnableWebhook),
}

func newWebhooksDisable(a *app) *cobra.Command {
	cmd := about{
		use:   "disable NAME",
		short: "Send nothing to a webhook until it is enabled",
		long: `Send nothing more to a webhook until it is enabled. The events that it is owed
stay, and it gets those that it misses when it is enabled, as far as the log still
has them.`,
		example: `  posthorn webhooks disable crm
  posthorn webhooks disable crm --reason 'until the new server is up'`,
	}.command(cobra.ExactArgs(1))
	reason := cmd.Flags().String("reason", "", "a text for people")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := adm.DisableWebhook(cmd.Context(), args[0], *reason); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "webhook %s is disabled\n", args[0])
			return err
		})
	}
	return cmd
}

var webhooksDelete = doing{
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
		return fmt.Sprintf("delete webhook %s (%s) with the %d events that it is owed", w.Name, w.URL, w.Owed), err
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		owed, err := adm.DeleteWebhook(ctx, args[0])
		return outcome{fmt.Sprintf("deleted webhook %s, to which %d events were owed", args[0], owed), map[string]int64{"owed": owed}}, err
	},
}

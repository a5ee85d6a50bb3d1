package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newWebhooksDeliveries(a *app) *cobra.Command {
	cmd := about{
		use:   "deliveries [NAME]",
		short: "List requests of a webhook, or for an event, newest first",
		long: `List the requests that were made for events: when, how long each took, and the
answer. They are kept for webhook_attempts_retention_period, a week unless
configured otherwise.`,
		example: `  posthorn webhooks deliveries crm --failed
  posthorn webhooks deliveries --event 4711
  posthorn webhooks deliveries crm --limit 10 --json`,
	}.command(cobra.MaximumNArgs(1))
	var filter admin.WebhookAttemptFilter
	flags := cmd.Flags()
	flags.Int64Var(&filter.EventID, "event", 0, "only for this event")
	flags.BoolVar(&filter.Failed, "failed", false, "only those that failed")
	flags.Int64Var(&filter.Before, "before", 0, "only those with ids below this one")
	limitVar(flags, &filter.Limit, 100, 999, "list so many")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && filter.EventID == 0 {
			return usageError{errors.New("which deliveries?"), "name a webhook, or say --event"}
		}
		filter.Webhook = append(args, "")[0]
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			shown := filter.Limit
			filter.Limit++ // to see whether there are more
			found, err := adm.WebhookAttempts(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if found, err = cut(cmd, found, shown); err != nil {
				return err
			}
			return deliveryColumns.printOrJSON(cmd.OutOrStdout(), found, *asJSON)
		})
	}
	return cmd
}

var deliveryColumns = columns[admin.WebhookAttempt]{"id|at|webhook|event|attempt|outcome|status|took|answer", func(d admin.WebhookAttempt) []any {
	return []any{d.ID, d.At, d.Webhook, d.EventID, d.Attempt, d.Outcome, numberOf(d.Status), took(d), shorten(cmp.Or(d.Error, d.Excerpt), 60)}
}}

func took(d admin.WebhookAttempt) string { return fmt.Sprintf("%d ms", d.DurationMS) }

func newWebhooksRedeliver(a *app) *cobra.Command {
	cmd := about{
		use:   "redeliver NAME EVENT...",
		short: "Send events to a webhook again",
		long: `Send events of the log to a webhook again, by their ids: whether it has had them
or not, and whatever its filter. Dead letters of the webhook are redriven.`,
		example: "  posthorn webhooks redeliver crm 4711 4712",
	}.command(cobra.MinimumNArgs(2))
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var ids []int64
		for _, text := range args[1:] {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil || id <= 0 {
				return usageError{fmt.Errorf("%q is no id of an event", text), "run: posthorn webhooks deliveries " + args[0]}
			}
			ids = append(ids, id)
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			n, err := adm.RedeliverWebhook(cmd.Context(), args[0], ids...)
			if err != nil {
				return err
			}
			return outcome{fmt.Sprintf("webhook %s gets %d events again", args[0], n), map[string]int64{"redelivered": n}}.print(cmd, *asJSON)
		})
	}
	return cmd
}

const webhooksTestLong = `Send an event of type posthorn.webhook.test to a webhook, whatever its filter, and
print the answer of its endpoint. It fails unless the endpoint answers with success
within --wait.`

func newWebhooksTest(a *app) *cobra.Command {
	cmd := about{"test NAME", "Send a test event to a webhook, and print the answer", webhooksTestLong, "  posthorn webhooks test crm"}.command(cobra.ExactArgs(1))
	wait := cmd.Flags().Duration("wait", 30*time.Second, "how long to wait for the answer; 0 prints the id of the event instead")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			id, err := adm.TestWebhook(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if *wait <= 0 {
				return printID(cmd, id, *asJSON)
			}
			tried, err := awaitAttempt(cmd.Context(), adm, args[0], id, *wait)
			if err != nil {
				return err
			}
			if tried.Outcome != "delivered" {
				return fmt.Errorf("webhook %s: %s", args[0], cmp.Or(tried.Error, tried.Outcome))
			}
			return outcome{fmt.Sprintf("the endpoint answered %d after %s", tried.Status, took(tried)), tried}.print(cmd, *asJSON)
		})
	}
	return cmd
}

// awaitAttempt waits for the first request for an event.
func awaitAttempt(ctx context.Context, adm *admin.Admin, webhook string, event int64, wait time.Duration) (admin.WebhookAttempt, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for {
		found, err := adm.WebhookAttempts(ctx, admin.WebhookAttemptFilter{Webhook: webhook, EventID: event, Limit: 1})
		if err == nil && len(found) > 0 {
			return found[0], nil
		}
		if err != nil && ctx.Err() == nil {
			return admin.WebhookAttempt{}, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return admin.WebhookAttempt{}, ctx.Err()
			}
			return admin.WebhookAttempt{}, hintError{
				fmt.Errorf("no request for event %d was made within %s", event, wait),
				"posthorn up and posthorn serve send: run one of them; then posthorn webhooks deliveries " + webhook,
			}
		}
	}
}

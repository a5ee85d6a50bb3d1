package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newWebhooksDeliveries(a *app) *cobra.Command {
	var f admin.WebhookAttemptFilter
	cmd := listCommand[admin.WebhookAttempt]{
		about: aboutOf(op.ListWebhookDeliveries, "With --event alone they are those of all webhooks."),
		limit: &f.Limit,
		prepare: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && f.EventID == 0 {
				return usageError{errors.New("which deliveries?"), "name a webhook, or an event with --event"}
			}
			f.Webhook = append(args, "")[0]
			return nil
		},
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.WebhookAttempt, error) {
			return adm.WebhookAttempts(ctx, f)
		},
		columns: columns[admin.WebhookAttempt]{"id|at|webhook|event|attempt|outcome|status|took|answer", func(d admin.WebhookAttempt) []any {
			return []any{d.ID, d.At, d.Webhook, d.EventID, d.Attempt, d.Outcome, numberOf(d.Status), took(d), shorten(cmp.Or(d.Error, d.Excerpt), 60)}
		}},
	}.build(a)
	flags := cmd.Flags()
	flags.Int64Var(&f.EventID, "event", 0, "only for this event")
	flags.BoolVar(&f.Failed, "failed", false, "only failed requests")
	flags.Int64Var(&f.Before, "before", 0, "only requests with ids below this one")
	limitVar(flags, &f.Limit, 100, 999, "list so many")
	return cmd
}

func took(d admin.WebhookAttempt) string { return fmt.Sprintf("%d ms", d.DurationMS) }

func newWebhooksRedeliver(a *app) *cobra.Command {
	in := &op.RedeliverWebhookInput{}
	return changeOf(a, op.RedeliverWebhook, in, func(c *changeCommand) {
		c.prepare = func(_ *cobra.Command, args []string) error {
			in.Name = args[0]
			for _, text := range args[1:] {
				id, err := parseID(text, "an event", "webhooks deliveries "+args[0])
				if err != nil {
					return err
				}
				in.Body.Events = append(in.Body.Events, id)
			}
			return nil
		}
	})
}

func newWebhooksTest(a *app) *cobra.Command {
	var wait time.Duration
	cmd := changeCommand{
		about: aboutOf(op.TestWebhook, `The command prints the answer of the endpoint, and fails unless the endpoint answers
with success within --wait.`),
		json: true,
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			id, err := adm.TestWebhook(ctx, args[0])
			if err != nil || wait <= 0 {
				return idResult(id), err
			}
			tried, err := awaitAttempt(ctx, adm, args[0], id, wait)
			if err == nil && tried.Outcome != "delivered" {
				err = fmt.Errorf("webhook %s: %s", args[0], cmp.Or(tried.Error, tried.Outcome))
			}
			return result{fmt.Sprintf("the endpoint answered %d after %s", tried.Status, took(tried)), tried}, err
		},
	}.build(a)
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the answer; 0 prints the id of the event instead")
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
				"posthorn up and posthorn serve send: run one of them; then run posthorn webhooks deliveries " + webhook,
			}
		}
	}
}

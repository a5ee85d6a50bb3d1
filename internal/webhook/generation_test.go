package webhook_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// renewals are the changes after which a webhook begins anew.
var renewals = map[string]string{
	"enabled":        `select posthorn.enable_webhook('default', 'crm')`,
	"its URL":        `select posthorn.change_webhook('default', 'crm', '{"url": "https://other.example/"}')`,
	"its headers":    `select posthorn.change_webhook('default', 'crm', '{"headers": {"Authorization": "other"}}')`,
	"its order":      `select posthorn.change_webhook('default', 'crm', '{"order": "none"}')`,
	"its timeout":    `select posthorn.change_webhook('default', 'crm', '{"timeout": "1 minute"}')`,
	"its secret":     `select posthorn.rotate_webhook_secret('default', 'crm')`,
	"a pause":        `select posthorn.pause_group('default', 'webhooks'), posthorn.resume_group('default', 'webhooks')`,
	"made again":     `select posthorn.delete_webhook('default', 'crm'), posthorn.create_webhook('default', 'crm', '{"url": "https://crm.example/"}')`,
	"off and on":     `select posthorn.disable_webhook('default', 'crm'), posthorn.enable_webhook('default', 'crm')`,
	"off, and later": `select posthorn.disable_webhook('default', 'crm')`,
}

// The answer to a request that was out while its webhook changed neither fails nor
// disables the changed one. Its event is sent again, and no attempt is counted.
func TestAnswerToAnEarlierWebhookChangesNothing(t *testing.T) {
	t.Parallel()
	for change, statement := range renewals {
		for _, outcome := range []string{pg.WebhookFailed, pg.WebhookGone} {
			t.Run(change+", "+outcome, func(t *testing.T) {
				t.Parallel()
				w := &world{testworld.New(t)}
				w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Order: "key", Filter: onlyTypes("e"), DisableAfter: "1 hour", Delays: []string{"1 day"}})
				w.hook("other", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("other")}) // otherwise the group is moved to the end
				ids := w.publish("e", 2, 2)
				s := w.takeLead("sender-h-1-00000001")
				window := s.takes(10, ids...)
				e := s.endpoint("crm")
				s.record([]pg.WebhookResult{answered(e, ids[0], pg.WebhookFailed)})
				testworld.Equal(t, "state", w.show("crm").State, "failing")
				posthorntest.Advance(t, w.Client, 2*time.Hour)

				late := answered(e, ids[1], outcome)
				late.WaitMS, late.Slot = 1e6, &window.Events[1].Slot
				w.Exec(statement)
				s.record([]pg.WebhookResult{late}, window)

				events := 0
				if change == "off, and later" || change == "off and on" {
					events = 1
					w.Exec(`select posthorn.enable_webhook('default', 'crm')`)
				}
				if now := w.show("crm"); now.State == "disabled" || now.State == "failing" && change != "a pause" {
					t.Errorf("%s, %q, since %s: %s", now.State, now.DisabledReason, now.FailingSince, now.LastError)
				}
				testworld.Equal(t, "events that say it was disabled", len(posthorntest.Published(t, w.Client, "posthorn.webhook.disabled")), events)
				if change == "made again" || change == "off, and later" {
					return
				}
				due, attempts := s.due("crm")
				testworld.Equal(t, "due", due, ids[1:])
				testworld.Equal(t, "attempts", attempts, []int{0})
			})
		}
	}
}

// An answer counts for the webhook to which the request was made, also if the webhook is
// enabled while the answer is being recorded.
func TestEnabledWhileAnAnswerIsRecorded(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]time.Duration{"it fails": 0, "it has failed for too long": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{testworld.New(t)}
			w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("e"), DisableAfter: "1 hour"})
			ids := w.publish("e", 2, 1)
			s := w.takeLead("sender-h-1-00000001")
			s.takes(10, ids...)
			e := s.endpoint("crm")
			s.record([]pg.WebhookResult{answered(e, ids[0], pg.WebhookFailed)})
			posthorntest.Advance(t, w.Client, since)
			operator := w.Begin()
			enable(t, operator)
			recorded := make(chan error, 1)
			go func() {
				_, err := pg.RecordWebhooks(t.Context(), s.pool, s.lead, []pg.WebhookResult{answered(e, ids[1], pg.WebhookFailed)}, nil)
				recorded <- err
			}()
			w.AwaitBlocked()
			commitFor(t, operator, recorded)
			testworld.Equal(t, "state", w.show("crm").State, "active")
		})
	}
}

func enable(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), "select posthorn.enable_webhook('default', 'crm')"); err != nil {
		t.Fatal(err)
	}
}

// A success of before does not hide that the changed webhook fails.
func TestEarlierSuccessDoesNotHideAFailure(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
	ids := w.publish("e", 2, 1)
	s := w.takeLead("sender-h-1-00000001")
	s.takes(10, ids...)
	before := s.endpoint("crm")
	w.Exec(renewals["its URL"])
	health := s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[0], pg.WebhookFailed)})
	testworld.Equal(t, "failures", health[0].Failures, 1)
	s.record([]pg.WebhookResult{answered(before, ids[1], pg.WebhookDelivered)})
	testworld.Equal(t, "state", w.show("crm").State, "failing")
}

// A setting that was so before, and one that changes no request, leave the webhook's
// failures as they are.
func TestOtherSettingsAreNoNewBeginning(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	r := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{Headers: map[string]string{"A": "b"}, Timeout: "1 minute"})
	ids := w.publish("e", 1, 1)
	s := w.takeLead("sender-h-1-00000001")
	s.takes(10, ids...)
	s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[0], pg.WebhookFailed)})
	for name, same := range map[string]admin.WebhookSettings{
		"the same":     {URL: r.URL, Headers: map[string]string{"A": "b"}, Timeout: "60 seconds", Order: "none", Batch: 1},
		"a limit":      {Concurrency: 3},
		"a filter":     {Filter: onlyTypes("e")},
		"other delays": {Delays: []string{"1 minute"}, DisableAfter: "1 day"},
	} {
		if err := w.Admin().ChangeWebhook(t.Context(), "crm", same); err != nil {
			t.Fatal(err)
		}
		testworld.Equal(t, "state after "+name, w.show("crm").State, "failing")
	}
}

// The time for which a group was paused is none in which every request has failed.
func TestPauseIsNoFailure(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("e"), DisableAfter: "1 hour"})
	ids := w.publish("e", 2, 1)
	s := w.takeLead("sender-h-1-00000001")
	s.takes(10, ids...)
	s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[0], pg.WebhookFailed)})
	w.Exec("select posthorn.pause_group('default', 'webhooks')")
	posthorntest.Advance(t, w.Client, 2*time.Hour)
	w.Exec("select posthorn.resume_group('default', 'webhooks')")
	s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[1], pg.WebhookFailed)})
	testworld.Equal(t, "state", w.show("crm").State, "failing")
}

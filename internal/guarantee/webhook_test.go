package guarantee

import (
	"fmt"
	"testing"
	"time"
)

const sender = "sender-h-1-00000001"

// webhooks is the process that leads the webhooks of a namespace.
type webhooks struct {
	*session
	group, epoch int64
}

// webhook makes a webhook with settings, and returns its id and the process that leads.
func (s *session) webhook(settings string) (int, *webhooks) {
	s.t.Helper()
	s.exec(`select posthorn.create_webhook('default', 'crm', jsonb_build_object('url', 'https://x.example/') || $1::text::jsonb)`, settings)
	w := &webhooks{session: s, group: value[int64](s, "select group_id from posthorn.webhook_groups")}
	w.lead()
	return value[int](s, "select id from posthorn.webhooks"), w
}

// lead takes the lead for a day.
func (w *webhooks) lead() {
	w.t.Helper()
	w.epoch = value[int64](w.session, "select (posthorn.lead_webhooks($1, $2, '1 day')).term", w.group, sender)
}

// record records one result; more are further fields of a posthorn.webhook_result.
func (w *webhooks) record(webhook int, event int64, outcome string, attempts int, more string) {
	w.t.Helper()
	w.exec(`select posthorn.record_webhooks($1, $2, $3, jsonb_build_object('results', jsonb_build_array(
		jsonb_build_object('generation', (select generation from posthorn.webhooks)) || $4::text::jsonb || $5::text::jsonb)))`,
		w.group, sender, w.epoch, fmt.Sprintf(`{"webhook": %d, "event": %d, "outcome": %q, "attempts": %d, "duration_ms": 5}`, webhook, event, outcome, attempts), more)
}

const failedRequest = `{"request_id": "r", "status": 500, "error": "no"}`

// due returns the events that are due, with room for ten.
func (w *webhooks) due(webhook int) []int64 {
	w.t.Helper()
	return column[int64](w.session, "select event_id from posthorn.due_webhooks($1, $2, $3, array[$4::int], '{10}', '{}', '{}')", w.group, sender, w.epoch, webhook)
}

// A failed event is due after the delays of its webhook, each up to a fifth longer.
func TestRetriesOfWebhooksWait(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"delays": ["10 minutes", "2 hours"]}`)
	event := s.publish()
	w.record(crm, event, "failed", 1, failedRequest)
	s.turnClock(9 * time.Minute)
	equal(t, "due before the first delay", w.due(crm), []int64{})
	s.turnClock(13 * time.Minute)
	equal(t, "due after it", w.due(crm), []int64{event})
	w.record(crm, event, "failed", 2, `{"request_id": "r", "status": 500, "error": "no", "owed": true}`)
	s.turnClock(2 * time.Hour)
	equal(t, "due before the second delay", w.due(crm), []int64{})
	s.turnClock(3 * time.Hour)
	equal(t, "due after it", w.due(crm), []int64{event})
	w.record(crm, event, "failed", 3, `{"request_id": "r", "status": 500, "error": "no", "owed": true}`)
	equal(t, "due after the last attempt", w.due(crm), []int64{})
	equal(t, "attempts of the dead letter", value[int](s, "select attempts from posthorn.dead_letters"), 3)
}

// An endpoint that has asked for a pause gets nothing meanwhile, also not other events
// that it is owed.
func TestEndpointThatRestsGetsNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook("{}")
	other, event := s.publish(), s.publish()
	w.record(crm, other, "aside", 0, "{}")
	equal(t, "due", w.due(crm), []int64{other})
	w.record(crm, event, "failed", 1, `{"request_id": "r", "status": 429, "error": "slow down", "wait_ms": 3600000}`)
	s.turnClock(50 * time.Minute)
	equal(t, "due while it rests", w.due(crm), []int64{})
	s.turnClock(61 * time.Minute)
	equal(t, "due afterwards", w.due(crm), []int64{other, event})
}

// An endpoint that fails often is asked with one event at a time.
func TestEndpointThatFailsIsProbed(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"delays": ["1 second", "1 second", "1 second"]}`)
	for range 5 {
		w.record(crm, s.publish(), "failed", 1, failedRequest)
	}
	s.turnClock(10 * time.Minute)
	equal(t, "due", len(w.due(crm)), 1)
}

// One success ends a row of failures: the time after which a webhook is disabled counts
// from the next failure.
func TestSuccessEndsARowOfFailures(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"disable_after": "1 hour", "delays": ["1 second", "1 second", "1 second", "1 second"]}`)
	stopped := func() bool { return value[bool](s, "select stopped_at is not null from posthorn.subscriptions") }
	w.record(crm, s.publish(), "failed", 1, failedRequest)
	s.turnClock(30 * time.Minute)
	w.record(crm, s.publish(), "delivered", 1, `{"request_id": "r", "status": 200}`)
	s.turnClock(70 * time.Minute)
	w.record(crm, s.publish(), "failed", 1, failedRequest)
	equal(t, "stopped although a request has succeeded 40 minutes ago", stopped(), false)
	s.turnClock(140 * time.Minute)
	w.record(crm, s.publish(), "failed", 1, failedRequest)
	equal(t, "stopped after an hour of failures", stopped(), true)
	s.exec("select posthorn.enable_webhook('default', 'crm')")
	w.record(crm, s.publish(), "failed", 1, failedRequest)
	equal(t, "stopped by one failure after it was enabled", stopped(), false)
}

// Sending an event again does not take it out of the order of its key.
func TestRedeliveryKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"order": "key", "delays": ["1 hour"]}`)
	first, second := s.publishKey("a"), s.publishKey("a")
	w.record(crm, first, "failed", 1, `{"request_id": "r", "status": 500, "error": "no", "slot": 3}`)
	w.record(crm, second, "aside", 0, `{"slot": 3}`)
	s.exec("select posthorn.redeliver_webhook('default', 'crm', array[$1::bigint])", second)
	equal(t, "due while the first waits", w.due(crm), []int64{})
	s.turnClock(2 * time.Hour)
	equal(t, "due afterwards", w.due(crm), []int64{first, second})
}

// The old secret signs for as long as the rotation has said.
func TestOldSecretsEnd(t *testing.T) {
	t.Parallel()
	s := database(t)
	_, w := s.webhook("{}")
	secrets := func() int {
		return value[int](s, "select cardinality(secrets) from posthorn.webhook_endpoints($1, $2, $3)", w.group, sender, w.epoch)
	}
	s.exec("select posthorn.rotate_webhook_secret('default', 'crm', keep_old => '1 hour')")
	equal(t, "secrets", secrets(), 2)
	s.turnClock(61 * time.Minute)
	equal(t, "secrets after an hour", secrets(), 1)
}

// A process that takes the lead again, under the same name, is not the one that had it:
// reports of before are refused.
func TestLeadOfWebhooksHasANewEpoch(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook("{}")
	before := w.epoch
	w.lead()
	if w.epoch <= before {
		t.Fatalf("epoch %d after %d", w.epoch, before)
	}
	s.refused("PH003", "select posthorn.record_webhooks($1, $2, $3, jsonb_build_object('results', jsonb_build_array(jsonb_build_object('webhook', $4::int, 'event', $5::bigint, 'outcome', 'aside', 'attempts', 0))))",
		w.group, sender, before, crm, s.publish())
}

// A webhook that is disabled does not keep the log, although it is owed an event; one that
// is enabled does.
func TestRetentionWaitsForEnabledWebhooksOnly(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	crm, w := s.webhook("{}")
	event := s.publish()
	l := value[int64](s, "select lease from posthorn.take_webhooks($1, $2, $3, 10, '1 minute')", w.group, sender, w.epoch)
	s.exec("select posthorn.record_webhooks($1, $2, $3, jsonb_build_object('results', jsonb_build_array(jsonb_build_object('webhook', $4::int, 'event', $5::bigint, 'outcome', 'aside', 'attempts', 0)), 'windows', jsonb_build_array(jsonb_build_array($6::bigint, 1))))",
		w.group, sender, w.epoch, crm, event, l)
	s.wantKept(event, "group webhooks retries event", func() {
		s.exec("select posthorn.disable_webhook('default', 'crm')")
	})
}

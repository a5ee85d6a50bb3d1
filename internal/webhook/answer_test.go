package webhook_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestAnswerGoneDisables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, always(410))
	w.hook("crm", r, admin.WebhookSettings{Filter: onlyTypes("e")})
	w.Start()
	first := w.publish("e", 5, 5)
	await.True(t, "it is disabled", func() bool { return w.show("crm").State == "disabled" })
	if reason := w.show("crm").DisabledReason; reason != "the endpoint answered 410 Gone" {
		t.Errorf("reason %q", reason)
	}
	await.True(t, "nothing is in flight", func() bool {
		return testworld.Ask[bool](w, "select not exists (select from posthorn.leases)")
	})
	asked := r.asked()
	missed := w.publish("e", 20, 5)
	await.True(t, "the log is read on", func() bool {
		return testworld.Ask[bool](w, "select lag_events = 0 from posthorn.group_status where group_name = 'webhooks'")
	})
	testworld.Equal(t, "requests while it is disabled", r.asked()-asked, 0)
	testworld.Equal(t, "events that say so", len(posthorntest.Published(t, w.Client, "posthorn.webhook.disabled")), 1)
	if n := testworld.Ask[int](w, "select count(*) from posthorn.retries"); n > 5 {
		t.Errorf("%d rows were written for a webhook that is disabled", n)
	}
	r.answer(nil)
	if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	r.awaitAll(t, slices.Concat(first, missed))
	w.awaitSettled()
	testworld.Equal(t, "state", w.show("crm").State, "active")
}

func TestRefusedEventIsADeadLetterAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused atomic.Int64
	r := newReceiver(t, func(d delivered, _ http.Header) int {
		if d.ID == refused.Load() {
			return 422
		}
		return 200
	})
	w.hook("crm", r, admin.WebhookSettings{})
	ids := w.publish("e", 10, 5)
	refused.Store(ids[4])
	w.Start()
	r.awaitAll(t, slices.Delete(slices.Clone(ids), 4, 5))
	await.True(t, "it is a dead letter", func() bool { return w.show("crm").DeadLetters == 1 })
	w.awaitSettled()
	attempts := w.attempts(admin.WebhookAttemptFilter{Webhook: "crm", Failed: true})
	if len(attempts) != 1 || attempts[0].Outcome != "dead" || attempts[0].EventID != ids[4] {
		t.Errorf("failed attempts: %+v", attempts)
	}
	if w.show("crm").State != "active" {
		t.Error("an endpoint that refuses an event counts as failing")
	}
	refused.Store(0)
	if n, err := w.Admin().Redrive(t.Context(), admin.DeadLetterFilter{Group: "webhooks", Subscription: "crm"}); err != nil || n != 1 {
		t.Fatalf("redrive: %d, %v", n, err)
	}
	r.awaitAll(t, ids)
	w.awaitSettled()
}

// A redirect is a failure, and nothing is sent to where it leads.
func TestRedirectIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newReceiver(t, nil)
	codes := []int{300, 301, 302, 303, 304, 307, 308}
	for _, code := range codes {
		r := newReceiver(t, func(_ delivered, header http.Header) int { header.Set("Location", target.URL); return code })
		w.hook(strconv.Itoa(code), r, admin.WebhookSettings{Delays: []string{"1 hour"}})
	}
	w.Start()
	ids := w.publish("e", 1, 1)
	await.True(t, "each endpoint has answered", func() bool { return len(w.attempts(admin.WebhookAttemptFilter{EventID: ids[0]})) == len(codes) })
	for _, a := range w.attempts(admin.WebhookAttemptFilter{EventID: ids[0]}) {
		if strconv.Itoa(a.Status) != a.Webhook || a.Outcome != "retry" {
			t.Errorf("answer %s: %+v", a.Webhook, a)
		}
	}
	testworld.Equal(t, "requests to the target", target.asked(), 0)
}

// An endpoint that answers 429 gets nothing for as long as it asks, or for five seconds if
// it names no time, also from another process.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header string
		pause  time.Duration
	}{
		"an hour": {"3600", time.Hour},
		"no time": {"", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := newReceiver(t, func(_ delivered, header http.Header) int { header.Set("Retry-After", test.header); return 429 })
			w.hook("crm", r, admin.WebhookSettings{Concurrency: 1})
			move := w.StopClock()
			stop := w.Start()
			ids := w.publish("e", 5, 5)
			await.True(t, "the answer is recorded", func() bool { return len(w.attempts(admin.WebhookAttemptFilter{Webhook: "crm"})) > 0 })
			stop()
			r.answer(nil)
			other := w.other()
			other.Start()
			quick := newReceiver(t, nil)
			other.hook("quick", quick, admin.WebhookSettings{})
			more := w.publish("e", 5, 5)
			quick.awaitAll(t, more)
			move(test.pause - time.Second)
			w.awaitLooks("quick", quick, more[0])
			testworld.Equal(t, "requests", r.asked(), 1)
			move(time.Minute)
			r.awaitAll(t, slices.Concat(ids, more))
			other.awaitSettled()
		})
	}
}

// An endpoint that has failed five times in a row gets one request at a time, however many
// events it is owed.
func TestEndpointThatFailsOftenGetsOneRequestAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, quick := newReceiver(t, always(500)), newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{Timeout: "5 minutes"})
	w.hook("quick", quick, admin.WebhookSettings{})
	move := w.StopClock()
	w.Start()
	ids := w.publish("e", 30, 5)
	await.True(t, "it has failed five times, and rests", func() bool {
		return testworld.Ask[int](w, "select failures from posthorn.webhooks where name = 'crm'") >= 5 &&
			len(w.attempts(admin.WebhookAttemptFilter{Webhook: "crm"})) == r.asked()
	})
	quick.awaitAll(t, ids)
	w.awaitLooks("quick", quick, ids[0])
	asked := r.asked()
	release := r.hang(t)
	move(2 * time.Minute)
	await.True(t, "it is tried again", func() bool { return r.asked() > asked })
	w.awaitLooks("quick", quick, ids[0])
	testworld.Equal(t, "requests at once", r.asked()-asked, 1)
	release()
	r.awaitAll(t, ids)
	w.awaitSettled()
}

// An endpoint whose requests have all failed for disable_after is disabled, and nothing
// is lost.
func TestEndpointThatFailsForLongIsDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, always(503))
	w.hook("crm", r, admin.WebhookSettings{Filter: onlyTypes("e"), DisableAfter: "1 hour", Delays: []string{"10 minutes", "10 minutes", "1 day"}})
	w.Start()
	ids := w.publish("e", 3, 5)
	await.True(t, "it fails", func() bool { return w.show("crm").State == "failing" })
	if e := w.show("crm").LastError; e != "the endpoint answered 503 Service Unavailable" {
		t.Errorf("last error %q", e)
	}
	posthorntest.Advance(t, w.Client, 20*time.Minute)
	await.True(t, "it was tried again", func() bool { return len(w.attempts(admin.WebhookAttemptFilter{Webhook: "crm"})) >= 6 })
	testworld.Equal(t, "state after 20 minutes", w.show("crm").State, "failing")
	posthorntest.Advance(t, w.Client, time.Hour)
	await.True(t, "it is disabled", func() bool { return w.show("crm").State == "disabled" })
	testworld.Equal(t, "events that say so", len(posthorntest.Published(t, w.Client, "posthorn.webhook.disabled")), 1)
	missed := w.publish("e", 3, 5)
	r.answer(nil)
	if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	r.awaitAll(t, missed)
	posthorntest.Advance(t, w.Client, 2*24*time.Hour)
	r.awaitAll(t, ids)
	w.awaitSettled()
	testworld.Equal(t, "dead letters", w.show("crm").DeadLetters, 0)
}

// An event whose attempts are used up is a dead letter.
func TestAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, always(500))
	w.hook("crm", r, admin.WebhookSettings{Delays: []string{"0", "0"}})
	w.Start()
	ids := w.publish("e", 1, 5)
	await.True(t, "it is a dead letter", func() bool { return w.show("crm").DeadLetters == 1 })
	attempts := w.attempts(admin.WebhookAttemptFilter{EventID: ids[0]})
	var outcomes []string
	for _, a := range attempts {
		outcomes = append(outcomes, a.Outcome)
	}
	testworld.Equal(t, "outcomes, newest first", outcomes, []string{"dead", "retry", "retry"})
	w.awaitSettled()
}

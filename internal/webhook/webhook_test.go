package webhook_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
)

// An event that its endpoint takes leaves one row in the delivery log, and nothing else.
func TestEventsAreDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	orders, all := newReceiver(t, nil), newReceiver(t, nil)
	w.hook("orders", orders, admin.WebhookSettings{Filter: onlyTypes("order.*")})
	w.hook("all", all, admin.WebhookSettings{})
	w.Start()
	wanted := w.publish("order.placed", 30, 5)
	others := w.publish("other", 30, 5)
	orders.awaitAll(t, wanted)
	all.awaitAll(t, slices.Concat(wanted, others))
	w.awaitSettled()
	testworld.Equal(t, "events of orders", len(orders.got()), 30)
	testworld.Equal(t, "events of all", len(all.got()), 60)
	attempts := w.attempts(admin.WebhookAttemptFilter{Webhook: "orders"})
	testworld.Equal(t, "attempts", len(attempts), 30)
	if a := attempts[0]; a.Status != 200 || a.Outcome != "delivered" || a.Attempt != 1 || a.RequestID == "" || a.At.IsZero() {
		t.Errorf("attempt: %+v", a)
	}
	if w := w.show("orders"); w.State != "active" || w.Owed != 0 || w.Owner == "" {
		t.Errorf("webhook: %+v", w)
	}
	testworld.Equal(t, "attempts for an event", len(w.attempts(admin.WebhookAttemptFilter{EventID: wanted[3]})), 2)
}

// An event is sent as soon as its transaction has committed, although later ones were
// sent before. The clock stands still, so that nothing else can bring it.
func TestLateCommitIsSentAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{})
	w.StopClock()
	w.Start()
	for range 3 {
		late := w.Begin()
		ids, err := w.Publish(t.Context(), late, posthorn.Message{Type: "late"})
		if err != nil {
			t.Fatal(err)
		}
		r.awaitAll(t, w.publish("e", 2, 2))
		if err := late.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.awaitAll(t, ids)
		r.awaitAll(t, w.publish("e", 2, 2))
	}
	w.awaitSettled()
}

// The database fails when the events of a window are read. They are sent, although this process leads on.
func TestWindowWhoseEventsDidNotComeIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{})
	w.Exec("create sequence public.reads")
	w.Exec(`create or replace function posthorn.is_open(ns int, stream text) returns boolean language plpgsql as $$
		begin
			if nextval('public.reads') = 1 then
				raise exception 'no' using errcode = '57P01';
			end if;
			return true;
		end $$`)
	w.Start()
	r.awaitAll(t, w.publish("e", 2, 2))
	w.awaitSettled()
}

// While endpoints hang, the others get their events, and windows of the log are settled.
func TestEndpointThatHangsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hung := newReceiver(t, nil)
	release := hung.hang(t)
	quick := newReceiver(t, nil)
	for _, name := range []string{"hung1", "hung2", "hung3"} {
		w.hook(name, hung, admin.WebhookSettings{Timeout: "5 minutes"})
	}
	w.hook("quick", quick, admin.WebhookSettings{})
	w.Start()
	ids := w.publish("e", 300, 5)
	quick.awaitAll(t, ids)
	await.True(t, "no window waits", func() bool {
		return testworld.Ask[bool](w, "select not exists (select from posthorn.leases)")
	})
	await.True(t, "those that hang are owed their events", func() bool { return w.show("hung2").Owed == 300 })
	more := w.publish("e", 50, 5)
	quick.awaitAll(t, more)
	if n := testworld.Ask[int](w, "select max(attempts) from posthorn.retries"); n != 0 {
		t.Errorf("an event that was not answered yet counts %d attempts", n)
	}
	testworld.Equal(t, "requests at once", hung.most <= 30, true)
	release() // the process waits for requests before it ends
}

// An endpoint that is owed very many events does not keep the others from theirs.
func TestBacklogOfOthersCostsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, quick := newReceiver(t, always(500)), newReceiver(t, nil)
	w.hook("a-slow", slow, admin.WebhookSettings{})
	w.hook("quick", quick, admin.WebhookSettings{})
	ids := w.publish("e", 20, 5)
	w.Exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
		select g.id, $1 - i, 'a-slow', 0, now() - interval '1 hour' from posthorn.groups g, generate_series(1, 20000) i where g.name = 'webhooks'`, ids[0])
	w.Exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
		select g.id, $1, 'quick', 0, now() from posthorn.groups g where g.name = 'webhooks'`, ids[3])
	w.Start()
	quick.awaitAll(t, ids)
	await.True(t, "the retry is delivered", func() bool {
		return testworld.Ask[bool](w, "select not exists (select from posthorn.retries where subscription = 'quick')")
	})
	if n := testworld.Ask[int](w, "select count(*) from posthorn.retries where subscription = 'a-slow'"); n == 0 {
		t.Error("the other backlog is gone")
	}
}

// Events of one key reach an ordered webhook one after another, whatever fails.
func TestOrderOfKeysIsKept(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"one by one": 1, "in batches": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var n atomic.Int64
			r := newReceiver(t, func(delivered, http.Header) int {
				if n.Add(1)%9 == 0 {
					return 500
				}
				return 200
			})
			w.hook("crm", r, admin.WebhookSettings{Order: "key", Batch: batch, Concurrency: 8, Filter: onlyTypes("e")})
			first := w.publish("e", 100, 7)
			w.Start()
			r.awaitAll(t, first[:20])
			if err := w.Admin().DisableWebhook(t.Context(), "crm", "for a moment"); err != nil {
				t.Fatal(err)
			}
			second := w.publish("e", 100, 7)
			if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
				t.Fatal(err)
			}
			third := w.publish("e", 100, 7)
			r.awaitAll(t, slices.Concat(first, second, third))
			w.awaitSettled()
			r.checkOrder(t)
			r.checkNames(t)
		})
	}
}

// checkOrder checks that the events of each key were taken in order, for the first time.
func (r *receiver) checkOrder(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, seen := map[string]int64{}, map[int64]bool{}
	for _, d := range r.taken {
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		if d.ID < last[d.Key] {
			t.Errorf("event %d of key %q came after %d", d.ID, d.Key, last[d.Key])
		}
		last[d.Key] = d.ID
	}
	if len(last) < 2 {
		t.Errorf("there were %d keys", len(last))
	}
}

func TestDisabledWebhookLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{Filter: onlyTypes("e")})
	w.Start()
	ids := w.publish("e", 50, 5)
	for range 3 {
		if err := w.Admin().DisableWebhook(t.Context(), "crm", ""); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, w.publish("e", 50, 5)...)
		if err := w.Admin().ChangeWebhook(t.Context(), "crm", admin.WebhookSettings{Filter: onlyTypes("e")}); err != nil {
			t.Fatal(err)
		}
		if s := w.show("crm"); s.State != "disabled" || s.DisabledReason != "disabled by an operator" {
			t.Errorf("after a change of its filter: %s, %q", s.State, s.DisabledReason)
		}
		if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, w.publish("e", 50, 5)...)
	}
	r.awaitAll(t, ids)
	w.awaitSettled()
}

func TestLimitsHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	narrow, batches, rare := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	release := narrow.hang(t)
	rate := 0.0001
	w.hook("narrow", narrow, admin.WebhookSettings{Concurrency: 2, Timeout: "5 minutes"})
	w.hook("batches", batches, admin.WebhookSettings{Batch: 10})
	w.hook("rare", rare, admin.WebhookSettings{Rate: &rate})
	w.Start()
	ids := w.publish("e", 200, 5)
	batches.awaitAll(t, ids)
	await.True(t, "the others wait in the database", func() bool { return narrow.asked() >= 2 && w.show("narrow").Owed == int64(len(ids)) })
	release()
	narrow.awaitAll(t, ids)
	testworld.Equal(t, "requests at once", narrow.most, 2)
	if batches.largest > 10 || batches.asked() > 150 {
		t.Errorf("%d requests of up to %d events", batches.asked(), batches.largest)
	}
	await.True(t, "the rest waits for its rate", func() bool { return w.show("rare").Owed >= 190 })
	testworld.Equal(t, "requests of the rare one", rare.asked(), 1)
}

// Another process leads as soon as the first one has stopped, and has settled what was
// under way.
func TestAnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{})
	stop := w.Start()
	await.True(t, "the first one leads", func() bool { return w.show("crm").Owner != "" })
	owner := w.show("crm").Owner
	w.other().Start()
	ids := w.publish("e", 100, 5)
	r.awaitAll(t, ids[:10])
	stop()
	ids = append(ids, w.publish("e", 100, 5)...)
	r.awaitAll(t, ids)
	w.awaitSettled()
	if now := w.show("crm").Owner; now == owner || now == "" {
		t.Errorf("%q leads, after %q", now, owner)
	}
	testworld.Equal(t, "deliveries", len(r.got()), 200)
}

func TestSettingsChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := newReceiver(t, nil), newReceiver(t, nil)
	w.hook("crm", before, admin.WebhookSettings{})
	w.Start()
	before.awaitAll(t, w.publish("e", 3, 5))
	if err := w.Admin().ChangeWebhook(t.Context(), "crm", admin.WebhookSettings{URL: after.URL}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "events go to the new address", func() bool { w.publish("e", 1, 1); return len(after.got()) > 0 })
	new := newReceiver(t, nil)
	w.hook("new", new, admin.WebhookSettings{})
	new.awaitAll(t, w.publish("e", 3, 5))
	if _, err := w.Admin().DeleteWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	new.awaitAll(t, w.publish("e", 3, 5))
	w.awaitSettled()
}

// A test event goes to one webhook whatever its filter, and an event can be sent again.
func TestTestAndRedeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, other := newReceiver(t, nil), newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{Filter: onlyTypes("none")})
	w.hook("other", other, admin.WebhookSettings{})
	w.Start()
	test, err := w.Admin().TestWebhook(t.Context(), "crm")
	if err != nil {
		t.Fatal(err)
	}
	r.awaitAll(t, []int64{test})
	ids := w.publish("e", 2, 5)
	other.awaitAll(t, ids)
	if n, err := w.Admin().RedeliverWebhook(t.Context(), "crm", ids...); err != nil || n != 2 {
		t.Fatalf("redelivered %d, %v", n, err)
	}
	r.awaitAll(t, ids)
	w.awaitSettled()
	testworld.Equal(t, "number of events of the other", len(other.got()), 2)
	_, err = w.Admin().RedeliverWebhook(t.Context(), "crm", 123456789)
	testworld.WantErr(t, "an event that there is not", err, posthorn.ErrNotFound)
	if err := w.Admin().DisableWebhook(t.Context(), "crm", ""); err != nil {
		t.Fatal(err)
	}
	_, err = w.Admin().TestWebhook(t.Context(), "crm")
	testworld.WantErr(t, "a test while it is disabled", err, posthorn.ErrConflict)
}

// Events of a restricted stream go to webhooks that name it. What was owed to others
// before the stream was restricted is a dead letter.
func TestRestrictedStreamsAreForThoseThatNameThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	named, pattern, all := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, always(500))
	stream := func(text string) *admin.Subscription {
		return &admin.Subscription{Filter: json.RawMessage(text)}
	}
	w.hook("named", named, admin.WebhookSettings{Filter: stream(`{"stream": ["other", "salaries"]}`)})
	w.hook("pattern", pattern, admin.WebhookSettings{Filter: stream(`{"stream": ["*"]}`)})
	w.hook("all", all, admin.WebhookSettings{Delays: []string{"1 hour"}, Concurrency: 1})
	w.Start()
	before, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e", Stream: "salaries"})
	if err != nil {
		t.Fatal(err)
	}
	named.awaitAll(t, before)
	pattern.awaitAll(t, before)
	await.True(t, "it has failed", func() bool { return w.show("all").State == "failing" })
	w.Exec("select posthorn.set_stream_policy('default', 'salaries', 'restricted')")
	all.answer(nil)
	secret, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e", Stream: "salaries"})
	if err != nil {
		t.Fatal(err)
	}
	open := w.publish("e", 3, 5)
	named.awaitAll(t, secret)
	pattern.awaitAll(t, open)
	all.awaitAll(t, open)
	posthorntest.Advance(t, w.Client, 2*time.Hour)
	await.True(t, "what was owed is a dead letter", func() bool { return w.show("all").DeadLetters == 1 })
	w.awaitSettled()
	for name, r := range map[string]*receiver{"pattern": pattern, "all": all} {
		if slices.Contains(r.got(), secret[0]) {
			t.Errorf("%s got an event of a restricted stream", name)
		}
	}
}

// Payloads of confidential streams are sent in plain text, to webhooks that name the
// stream. Without the key they wait, and no attempt is counted.
func TestConfidentialPayloadsAreOpened(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	keepers := posthorn.SealConfig{Keepers: seal.Keepers{"": newKeeper(t)}}
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Seal: keepers})}
	w.Exec("select posthorn.set_stream_policy('default', 'health', 'confidential')")
	var body atomic.Value
	r := newReceiver(t, nil)
	r.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		text, _ := io.ReadAll(in.Body)
		body.Store(string(text))
	})
	w.hook("doctor", r, admin.WebhookSettings{Filter: &admin.Subscription{Filter: json.RawMessage(`{"stream": "health"}`)}, Body: "payload"})
	ids, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e", Stream: "health", Payload: "well"})
	if err != nil {
		t.Fatal(err)
	}
	without := (&world{testworld.Open(t, posthorn.Config{DatabaseURL: url})}).delivering()
	stop := without.Start()
	await.True(t, "it waits", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.retries where event_id = $1 and attempts = 0 and error <> '')", ids[0])
	})
	testworld.Equal(t, "requests", body.Load(), nil)
	stop()
	(&world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Seal: keepers})}).delivering().Start()
	posthorntest.Advance(t, w.Client, time.Minute)
	w.awaitSettled()
	testworld.Equal(t, "payload", body.Load(), any(`"well"`))
	testworld.Equal(t, "attempts", len(w.attempts(admin.WebhookAttemptFilter{EventID: ids[0]})), 1)
}

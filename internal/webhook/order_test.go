package webhook_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
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

// publishOne publishes an event with a key.
func (w *world) publishOne(stream, key string) int64 {
	w.T.Helper()
	ids, err := w.Publish(w.T.Context(), w.Pool(), posthorn.Message{Type: "e", Stream: stream, Key: key, Payload: 1})
	if err != nil {
		w.T.Fatal(err)
	}
	return ids[0]
}

func (w *world) isOwed(event int64) bool {
	return testworld.Ask[bool](w, "select exists (select from posthorn.retries where event_id = $1)", event)
}

// An event that waits for its next attempt holds back the later ones of its key, and no
// others: neither those of its window nor those that come later.
func TestFailedEventHoldsBackItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var failing atomic.Int64
	r := newReceiver(t, func(d delivered, _ http.Header) int {
		if failing.CompareAndSwap(0, d.ID); d.ID == failing.Load() {
			return 500
		}
		return 200
	})
	w.hook("crm", r, admin.WebhookSettings{Order: "key", Filter: onlyTypes("e"), Delays: []string{"1 hour"}, Concurrency: 1})
	held := w.publish("e", 1, 1)
	w.Start()
	await.True(t, "it waits", func() bool { return w.isOwed(held[0]) })
	var others []int64
	for range 5 {
		ids := w.publish("e", 4, 2)
		held, others = append(held, ids[0], ids[2]), append(others, ids[1], ids[3])
		r.awaitAll(t, others)
	}
	testworld.Equal(t, "delivered, while the first of a key waits", r.got(), others)
	failing.Store(-1)
	posthorntest.Advance(t, w.Client, 2*time.Hour)
	r.awaitAll(t, held)
	w.awaitSettled()
	r.checkOrder(t)
}

// An event whose payload cannot be opened yet holds back the later ones of its key, in its
// batch and behind it.
func TestUnopenedEventHoldsBackItsKey(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(strconv.Itoa(batch), func(t *testing.T) {
			t.Parallel()
			url := posthorntest.Database(t)
			keepers := posthorn.SealConfig{Keepers: seal.Keepers{"": newKeeper(t)}}
			w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Seal: keepers})}
			w.Exec("select posthorn.set_stream_policy('default', 'health', 'confidential')")
			r := newReceiver(t, nil)
			w.hook("crm", r, admin.WebhookSettings{
				Order: "key", Batch: batch, Filter: &admin.Subscription{Filter: json.RawMessage(`{"stream": ["health", "default"]}`)},
			})
			sealed := w.publishOne("health", "a")
			later := []int64{w.publishOne("default", "a"), w.publishOne("default", "a")}
			others := []int64{w.publishOne("default", "b")}
			without := (&world{testworld.Open(t, posthorn.Config{DatabaseURL: url})}).delivering()
			stop := without.Start()
			await.True(t, "it waits", func() bool { return w.isOwed(sealed) })
			for range 5 {
				later = append(later, w.publishOne("default", "a"))
				others = append(others, w.publishOne("default", "b"))
				r.awaitAll(t, others)
			}
			for _, id := range r.got() {
				if !slices.Contains(others, id) {
					t.Errorf("event %d came before event %d of its key", id, sealed)
				}
			}
			stop()
			(&world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Seal: keepers})}).delivering().Start()
			posthorntest.Advance(t, w.Client, time.Minute)
			r.awaitAll(t, append(later, sealed))
			w.awaitSettled()
			r.checkOrder(t)
		})
	}
}

// Requests that are out when a webhook becomes ordered hold back the later events of all
// keys: whether they fail is not known yet.
func TestWebhookThatBecomesOrdered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := make(chan struct{})
	var first atomic.Int64
	r := newReceiver(t, func(d delivered, _ http.Header) int {
		if f := first.Load(); f != 0 && d.ID != f {
			return 200
		}
		<-out
		return 500
	})
	other := newReceiver(t, nil)
	w.hook("crm", r, admin.WebhookSettings{Timeout: "5 minutes"})
	w.hook("other", other, admin.WebhookSettings{Order: "key"})
	w.Start()
	await.True(t, "a process leads", func() bool { return w.show("crm").Owner != "" })
	// The order of a webhook that is owed something cannot change. So the event whose request
	// is out may not become a row until it has.
	operator := w.Begin()
	do := func(statement string) {
		t.Helper()
		if _, err := operator.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("lock table posthorn.retries in share mode")
	first.Store(w.publishOne("default", "a"))
	await.True(t, "a request is out", func() bool { return r.asked() == 1 })
	do(`select posthorn.change_webhook('default', 'crm', '{"order": "key"}')`)
	if err := operator.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids := []int64{first.Load()}
	for range 20 {
		ids = append(ids, w.publishOne("default", "a"), w.publishOne("default", "b"))
		other.awaitAll(t, ids)
	}
	r.answer(nil)
	close(out)
	r.awaitAll(t, ids)
	w.awaitSettled()
	r.checkOrder(t)
}

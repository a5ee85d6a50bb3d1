package webhook_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

const senderURL = "POSTHORN_TEST_SENDER_URL"

// spawn starts a process that sends to webhooks.
func (w *world) spawn() *testchild.Child {
	w.T.Helper()
	return testchild.Start(w.T, "TestSenderProcess", senderURL+"="+w.URL)
}

// TestSenderProcess runs in the processes that other tests kill.
func TestSenderProcess(t *testing.T) {
	url := os.Getenv(senderURL)
	if url == "" {
		t.Skip("run by others")
	}
	w := (&world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))})}).delivering()
	t.Fatal(w.Run(t.Context()))
}

// leader waits until one of some processes sends, and finds it.
func (w *world) leader(children []*testchild.Child) *testchild.Child {
	w.T.Helper()
	var found *testchild.Child
	await.True(w.T, "a process leads", func() bool {
		owner := w.show("ordered").Owner
		for _, c := range children {
			if c.Leads(owner) {
				found = c
			}
		}
		return found != nil
	})
	return found
}

// Processes that send are killed with -9; others go on. Each webhook gets every event,
// and an ordered one those of each key in order, under one id however they are cut into
// batches.
func TestWebhooksSurviveTheirProcesses(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	var n atomic.Int64
	failing := func(delivered, http.Header) int {
		if n.Add(1)%20 == 0 {
			return 500
		}
		return 200
	}
	ordered, all := newReceiver(t, failing), newReceiver(t, failing)
	w.hook("ordered", ordered, admin.WebhookSettings{Order: "key"})
	w.hook("all", all, admin.WebhookSettings{Batch: 5})
	children := []*testchild.Child{w.spawn(), w.spawn()}
	var ids []int64
	for range await.Kills(3) {
		leader := w.leader(children)
		for range 5 {
			ids = append(ids, w.publish("e", 40, 7)...)
		}
		await.True(t, "it is sending", func() bool { return len(ordered.got())+len(all.got()) > len(ids)/2 })
		leader.Kill()
		posthorntest.Advance(t, w.Client, time.Minute) // its lead is over
		children = append(children, w.spawn())
	}
	ordered.awaitAll(t, ids)
	all.awaitAll(t, ids)
	w.awaitSettled()
	ordered.checkOrder(t)
	ordered.checkNames(t)
	all.checkNames(t)
	for name, r := range map[string]*receiver{"ordered": ordered, "all": all} {
		for _, id := range r.got() {
			if !slices.Contains(ids, id) {
				t.Errorf("%s got event %d, which was never published", name, id)
			}
		}
	}
}

// A process that has lost the lead cannot record, take or end anything.
func TestLateSenderIsFenced(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
	ids := w.publish("e", 3, 3)
	pool := testworld.OpenPool(t, w.URL)
	groups, err := pg.WebhookGroups(t.Context(), pool)
	if err != nil || len(groups) != 1 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	lead := func(owner string) pg.WebhookLead {
		t.Helper()
		l, err := pg.LeadWebhooks(t.Context(), pool, groups[0], owner, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	late := lead("sender-h-1-00000001")
	if other := lead("sender-h-2-00000002"); other.Epoch != 0 || other.Leader != late.Owner {
		t.Fatalf("two processes lead: %+v", other)
	}
	window, err := pool.TakeWebhooks(t.Context(), late, 10, 10, time.Minute)
	if err != nil || len(window.Events) != 3 {
		t.Fatalf("window %+v, %v", window, err)
	}
	posthorntest.Advance(t, w.Client, 2*time.Minute)
	next := lead("sender-h-2-00000002")

	result := pg.WebhookResult{Webhook: w.show("crm").ID, Event: ids[0], Outcome: pg.WebhookFailed, Attempts: 1, RequestID: "r"}
	for name, call := range map[string]func(l pg.WebhookLead) error{
		"record": func(l pg.WebhookLead) error {
			_, err := pg.RecordWebhooks(t.Context(), pool, l, []pg.WebhookResult{result}, []pg.WebhookWindow{window})
			return err
		},
		"take": func(l pg.WebhookLead) error {
			_, err := pool.TakeWebhooks(t.Context(), l, 10, 10, time.Minute)
			return err
		},
		"look":      func(l pg.WebhookLead) error { _, err := pg.LookAtWebhooks(t.Context(), pool, l); return err },
		"endpoints": func(l pg.WebhookLead) error { _, _, err := pg.WebhookEndpoints(t.Context(), pool, l); return err },
		"due": func(l pg.WebhookLead) error {
			_, err := pg.DueWebhooks(t.Context(), pool, l, []pg.WebhookAsk{{Webhook: 1, Room: 1}})
			return err
		},
		"extend": func(l pg.WebhookLead) error {
			_, err := pg.LeadWebhooks(t.Context(), pool, l.Group, l.Owner, time.Minute, l.Epoch)
			return err
		},
	} {
		testworld.WantErr(t, name+" by a late sender", call(late), pg.ErrLeaseLost)
	}
	testworld.Equal(t, "retries", testworld.Ask[int](w, "select count(*) from posthorn.retries"), 0)
	testworld.Equal(t, "attempts", testworld.Ask[int](w, "select count(*) from posthorn.webhook_attempts"), 0)

	again, err := pool.TakeWebhooks(t.Context(), next, 10, 10, time.Minute)
	if err != nil || again.ID != window.ID || again.Attempt <= window.Attempt || len(again.Events) != 3 {
		t.Fatalf("the next sender took %+v, %v", again, err)
	}
	_, err = pg.RecordWebhooks(t.Context(), pool, next, nil, []pg.WebhookWindow{window})
	testworld.WantErr(t, "the window under its old attempt", err, pg.ErrLeaseLost)
	if _, err = pg.RecordWebhooks(t.Context(), pool, next, nil, []pg.WebhookWindow{again}); err != nil {
		t.Error(err)
	}
	if err := pg.ResignWebhooks(context.Background(), pool, next); err != nil {
		t.Error(err)
	}
}

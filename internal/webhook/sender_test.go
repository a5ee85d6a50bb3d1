package webhook_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// sender is the test itself as the process that leads the webhooks of a namespace.
type sender struct {
	w    *world
	pool *pg.Pool
	lead pg.WebhookLead
}

// takeLead leads, as soon as the lead of any other process is over.
func (w *world) takeLead(owner string) *sender {
	w.T.Helper()
	pool, err := pg.Open(w.T.Context(), w.Pool().Config(), slog.New(slog.DiscardHandler))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(pool.Close)
	groups, err := pg.WebhookGroups(w.T.Context(), pool)
	if err != nil || len(groups) != 1 {
		w.T.Fatalf("%d groups, %v", len(groups), err)
	}
	posthorntest.Advance(w.T, w.Client, 2*time.Minute)
	lead, err := pg.LeadWebhooks(w.T.Context(), pool, groups[0], owner, time.Minute, 0)
	if err != nil || lead.Epoch == 0 {
		w.T.Fatalf("lead %+v, %v", lead, err)
	}
	return &sender{w, pool, lead}
}

// takes takes the next window, which has some events.
func (s *sender) takes(mostEvents int, want ...int64) pg.WebhookWindow {
	s.w.T.Helper()
	window, err := s.pool.TakeWebhooks(s.w.T.Context(), s.lead, mostEvents, mostEvents, time.Minute)
	if err != nil {
		s.w.T.Fatal(err)
	}
	var got []int64
	for _, e := range window.Events {
		got = append(got, e.ID)
	}
	testworld.Equal(s.w.T, "events of a window", got, want)
	return window
}

// record records results and ends windows.
func (s *sender) record(results []pg.WebhookResult, windows ...pg.WebhookWindow) []pg.WebhookHealth {
	s.w.T.Helper()
	health, err := pg.RecordWebhooks(s.w.T.Context(), s.pool, s.lead, results, windows)
	if err != nil {
		s.w.T.Fatal(err)
	}
	return health
}

// due returns the events that a webhook is owed and that are due, with their attempts so far.
func (s *sender) due(name string, held ...int64) (ids []int64, attempts []int) {
	s.w.T.Helper()
	asks := []pg.WebhookAsk{{Webhook: s.w.show(name).ID, Room: 10, Held: held}}
	found, err := pg.DueWebhooks(s.w.T.Context(), s.pool, s.lead, asks)
	if err != nil {
		s.w.T.Fatal(err)
	}
	for _, d := range found {
		ids, attempts = append(ids, d.Event.ID), append(attempts, d.Attempts)
	}
	return ids, attempts
}

func (s *sender) endpoint(name string) pg.WebhookEndpoint {
	s.w.T.Helper()
	found, _, err := pg.WebhookEndpoints(s.w.T.Context(), s.pool, s.lead)
	if err != nil {
		s.w.T.Fatal(err)
	}
	i := slices.IndexFunc(found, func(e pg.WebhookEndpoint) bool { return e.Name == name })
	if i < 0 {
		s.w.T.Fatalf("there is no webhook %q", name)
	}
	return found[i]
}

// answered is the result of a request that was made to an endpoint.
func answered(e pg.WebhookEndpoint, event int64, outcome string) pg.WebhookResult {
	r := pg.WebhookResult{Webhook: e.ID, Event: event, Outcome: outcome, Attempts: 1, RequestID: "r", Status: 200, Generation: e.Generation}
	if outcome != pg.WebhookDelivered {
		r.Error, r.Status = new("no"), 500
	}
	return r
}

// An ordered webhook gets what was set aside only when no window is open that may have
// an earlier event of the key.
func TestOrderedRetriesWaitForEarlierWindows(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Order: "key"})
	ids := w.publish("e", 2, 1)
	s := w.takeLead("sender-h-1-00000001")
	window := s.takes(10, ids...)
	crm := s.endpoint("crm").ID
	record := func(event int64, outcome string, windows ...pg.WebhookWindow) {
		t.Helper()
		s.record([]pg.WebhookResult{{Webhook: crm, Event: event, Outcome: outcome, Slot: &window.Events[0].Slot}}, windows...)
	}
	record(ids[1], pg.WebhookAside)
	due, _ := s.due("crm")
	testworld.Equal(t, "due while the window is open", due, nil)
	record(ids[0], pg.WebhookDelivered, window)
	due, _ = s.due("crm")
	testworld.Equal(t, "due afterwards", due, ids[1:])
}

// Windows that a process left behind come again in their order, also if the next process
// has given back a part of one.
func TestWindowsLeftBehindComeInOrder(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Order: "key"})
	ids := w.publish("e", 6, 1)
	takes := func(owner string, mostEvents int, want ...[]int64) {
		t.Helper()
		s := w.takeLead(owner)
		for _, ids := range want {
			s.takes(mostEvents, ids...)
		}
	}
	takes("sender-h-1-00000001", 3, ids[:3], ids[3:])
	takes("sender-h-2-00000002", 2, ids[:2])
	takes("sender-h-3-00000003", 1, ids[:1])
	takes("sender-h-4-00000004", 10, ids[:1], ids[1:2], ids[2:3], ids[3:])
}

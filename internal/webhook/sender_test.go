package webhook_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
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
	pool := testworld.OpenPool(w.T, w.URL)
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

// A webhook gets nothing that it is owed while the group is paused or it is disabled.
func TestNothingIsDueMeanwhile(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{
		"paused":   `select posthorn.pause_group('default', 'webhooks')`,
		"disabled": `select posthorn.disable_webhook('default', 'crm')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{testworld.New(t)}
			w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
			ids := w.publish("e", 1, 1)
			s := w.takeLead("sender-h-1-00000001")
			window := s.takes(10, ids...)
			s.record([]pg.WebhookResult{{Webhook: s.endpoint("crm").ID, Event: ids[0], Outcome: pg.WebhookAside}}, window)
			due, _ := s.due("crm")
			testworld.Equal(t, "due", due, ids)
			w.Exec(stop)
			due, _ = s.due("crm")
			testworld.Equal(t, "due meanwhile", due, nil)
		})
	}
}

// The lead does not change while the process that has it is recording, although its time
// is over.
func TestLeadWaitsForARecord(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
	ids := w.publish("e", 1, 1)
	s := w.takeLead("sender-h-1-00000001")
	s.takes(10, ids...)
	posthorntest.Advance(t, w.Client, 2*time.Minute)
	recording := w.Begin()
	result := answered(s.endpoint("crm"), ids[0], pg.WebhookDelivered)
	if _, err := pg.RecordWebhooks(t.Context(), recording, s.lead, []pg.WebhookResult{result}, nil); err != nil {
		t.Fatal(err)
	}
	led := make(chan error, 1)
	go func() {
		_, err := pg.LeadWebhooks(t.Context(), s.pool, s.lead.Group, "sender-h-2-00000002", time.Minute, 0)
		led <- err
	}()
	await.True(t, "another process waits for the lead", func() bool {
		if len(led) > 0 {
			t.Fatal("another process leads, while this one records")
		}
		return testworld.Ask[bool](w, "select exists (select from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0)")
	})
	commitFor(t, recording, led)
}

// commitFor commits a transaction for which a call waits, and waits for the end of the call.
func commitFor(t *testing.T, tx pgx.Tx, ended <-chan error) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await.Value(t, "the call ends", ended); err != nil {
		t.Fatal(err)
	}
}

// A window that comes again, because a process ended before it settled it, does not bring
// back the attempts that were used.
func TestAttemptsOutliveTheirProcess(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
	ids := w.publish("e", 1, 1)
	first := w.takeLead("sender-h-1-00000001")
	first.takes(10, ids...)
	first.record([]pg.WebhookResult{answered(first.endpoint("crm"), ids[0], pg.WebhookFailed)})
	next := w.takeLead("sender-h-2-00000002")
	again := next.takes(10, ids...)
	next.record([]pg.WebhookResult{{Webhook: next.endpoint("crm").ID, Event: ids[0], Outcome: pg.WebhookAside}}, again)
	due, attempts := next.due("crm")
	testworld.Equal(t, "due", due, ids)
	testworld.Equal(t, "attempts", attempts, []int{1})
}

// A webhook that is disabled already is not disabled again: no second event says so, and
// its reason and the events that it misses stay.
func TestDisabledOnce(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("e")})
	ids := w.publish("e", 1, 1)
	s := w.takeLead("sender-h-1-00000001")
	window := s.takes(10, ids...)
	for _, reason := range []string{"the first", "the second"} {
		if err := w.Admin().DisableWebhook(t.Context(), "crm", reason); err != nil {
			t.Fatal(err)
		}
	}
	s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[0], pg.WebhookGone)}, window)
	testworld.Equal(t, "reason", w.show("crm").DisabledReason, "the first")
	testworld.Equal(t, "events that say so", len(posthorntest.Published(t, w.Client, "posthorn.webhook.disabled")), 1)
}

// An event that a disabled webhook is owed waits for the webhook, and for no time.
func TestOutcomeForADisabledWebhook(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{})
	ids := w.publish("e", 1, 1)
	s := w.takeLead("sender-h-1-00000001")
	window := s.takes(10, ids...)
	s.record([]pg.WebhookResult{answered(s.endpoint("crm"), ids[0], pg.WebhookFailed)}, window)
	check := func(want admin.State, due bool) {
		t.Helper()
		got, err := w.Admin().Outcomes(t.Context(), ids[0])
		if err != nil || len(got) != 1 || got[0].State != want || got[0].DueAt.IsZero() == due || (got[0].Reason == "") != due {
			t.Errorf("outcomes %+v, %v", got, err)
		}
	}
	check(admin.Retrying, true)
	if err := w.Admin().DisableWebhook(t.Context(), "crm", ""); err != nil {
		t.Fatal(err)
	}
	check(admin.Pending, false)
	if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	check(admin.Retrying, true)
}

// An event that was published while a webhook is disabled waits for it if its filter wants
// the event, although no row says so until it has caught up.
func TestOutcomeOfAnEventThatAWebhookMissed(t *testing.T) {
	t.Parallel()
	w := &world{testworld.New(t)}
	w.hook("crm", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("e.wanted")})
	w.hook("all", newReceiver(t, nil), admin.WebhookSettings{Filter: onlyTypes("e.*")})
	before := w.publish("e.wanted", 1, 1)[0]
	s := w.takeLead("sender-h-1-00000001")
	deliver := func(event int64) {
		t.Helper()
		window := s.takes(10, event)
		s.record([]pg.WebhookResult{answered(s.endpoint("all"), event, pg.WebhookDelivered)}, window)
	}
	deliver(before)
	if err := w.Admin().DisableWebhook(t.Context(), "crm", ""); err != nil {
		t.Fatal(err)
	}
	missed := w.publish("e.wanted", 1, 1)[0]
	deliver(missed)
	other := w.publish("e.other", 1, 1)[0]
	deliver(other)
	check := func(event int64, want admin.State, subscription, reason string) {
		t.Helper()
		got, err := w.Admin().Outcomes(t.Context(), event)
		if err != nil || len(got) != 1 || got[0].State != want || got[0].Subscription != subscription || got[0].Reason != reason {
			t.Errorf("outcomes of event %d: %+v, %v", event, got, err)
		}
	}
	check(before, admin.Completed, "", "")
	check(missed, admin.Pending, "crm", "Webhook is disabled")
	check(other, admin.Completed, "", "")
	if err := w.Admin().EnableWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	check(missed, admin.Pending, "crm", "Webhook is catching up")
	w.Exec("select posthorn.catch_up()")
	check(missed, admin.Retrying, "crm", "")
	late := answered(s.endpoint("crm"), missed, pg.WebhookDelivered)
	late.Owed = true
	s.record([]pg.WebhookResult{late})
	check(missed, admin.Completed, "", "")
	check(other, admin.Completed, "", "")
}

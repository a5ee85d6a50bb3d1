package webhook_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

func TestMain(m *testing.M) {
	worker.TroubleWait = 20 * time.Millisecond
	posthorntest.Main(m)
}

// world is a database with a client that sends to webhooks while it runs.
type world struct{ *testworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return (&world{testworld.New(t)}).delivering()
}

// other is another process.
func (w *world) other() *world {
	w.T.Helper()
	return (&world{w.Other()}).delivering()
}

func (w *world) delivering() *world {
	sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	w.T.Cleanup(sender.Close)
	webhook.Deliver(w.Internal(), sender)
	return w
}

// hook makes a webhook for a receiver. Its retries are due at once, unless the settings
// say otherwise.
func (w *world) hook(name string, r *receiver, s admin.WebhookSettings) {
	w.T.Helper()
	s.URL = r.URL
	if s.Delays == nil {
		s.Delays = slices.Repeat([]string{"0"}, 30)
	}
	if _, err := w.Admin().CreateWebhook(w.T.Context(), name, s); err != nil {
		w.T.Fatal(err)
	}
}

// onlyTypes is a filter for types of events.
func onlyTypes(pattern string) *admin.Subscription {
	return &admin.Subscription{Filter: json.RawMessage(`{"type": "` + pattern + `"}`)}
}

func (w *world) show(name string) admin.Webhook {
	w.T.Helper()
	found, err := w.Admin().Webhook(w.T.Context(), name)
	if err != nil {
		w.T.Fatal(err)
	}
	return found
}

func (w *world) attempts(f admin.WebhookAttemptFilter) []admin.WebhookAttempt {
	w.T.Helper()
	found, err := w.Admin().WebhookAttempts(w.T.Context(), f)
	if err != nil {
		w.T.Fatal(err)
	}
	return found
}

// publish publishes n events of a type, with their numbers as keys modulo keys.
func (w *world) publish(eventType string, n, keys int) []int64 {
	w.T.Helper()
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i] = posthorn.Message{Type: eventType, Key: string(rune('a' + i%keys)), Payload: i}
	}
	ids, err := w.Publish(w.T.Context(), w.Pool(), messages...)
	if err != nil {
		w.T.Fatal(err)
	}
	return ids
}

// awaitSettled waits until every webhook that is not disabled has got all events, and
// nothing is left but the position of the group.
func (w *world) awaitSettled() {
	w.T.Helper()
	await.True(w.T, "all events are delivered and recorded", func() bool {
		return testworld.Ask[bool](w, `
			select not exists (select from posthorn.leases) and not exists (select from posthorn.retries)
				and not exists (select from posthorn.stops where (upto).base is not null)
				and (select lag_events from posthorn.group_status where group_name = 'webhooks') = 0`)
	})
}

// awaitLooks waits until the process that leads has looked twice for events that webhooks
// are owed, and has sent those of all that may have some. The webhook gets an event again.
func (w *world) awaitLooks(name string, r *receiver, event int64) {
	w.T.Helper()
	for range 2 {
		asked := r.asked()
		if n, err := w.Admin().RedeliverWebhook(w.T.Context(), name, event); err != nil || n != 1 {
			w.T.Fatalf("redelivered %d, %v", n, err)
		}
		await.True(w.T, "the event comes again", func() bool { return r.asked() > asked && w.show(name).Owed == 0 })
	}
}

// delivered is an event as a receiver got it.
type delivered struct {
	ID   int64
	Type string
	Key  string
}

// receiver is an endpoint that keeps what it took.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	status   func(d delivered, header http.Header) int // of the answer, by the first event; nil: 200
	taken    []delivered
	requests int
	atOnce   int      // requests that run
	most     int      // the highest number of those
	largest  int      // number of events of a request
	misnamed []string // the webhook-id of requests that do not name their events
}

// newReceiver starts an endpoint.
func newReceiver(t *testing.T, status func(d delivered, header http.Header) int) *receiver {
	t.Helper()
	r := &receiver{status: status}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP takes an event as a CloudEvent, or an array of them.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	events := eventsOf(body)
	names := strings.SplitN(request.Header.Get("webhook-id"), "_", 3)
	r.mu.Lock()
	if len(names) < 3 || names[2] != joined(events) {
		r.misnamed = append(r.misnamed, request.Header.Get("webhook-id"))
	}
	status := r.status
	r.requests++
	r.atOnce++
	r.most, r.largest = max(r.most, r.atOnce), max(r.largest, len(events))
	r.mu.Unlock()
	code := http.StatusOK
	if status != nil && len(events) > 0 {
		code = status(events[0], w.Header())
	}
	r.mu.Lock()
	r.atOnce--
	if code < 300 {
		r.taken = append(r.taken, events...)
	}
	r.mu.Unlock()
	w.WriteHeader(code)
}

// joined returns the ids of events as the webhook-id of their request has them.
func joined(events []delivered) string {
	var ids []string
	for _, d := range events {
		ids = append(ids, strconv.FormatInt(d.ID, 10))
	}
	return strings.Join(ids, "_")
}

// checkNames checks that each event had the same id in all requests, whatever their cut.
func (r *receiver) checkNames(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.misnamed) > 0 {
		t.Errorf("%d of %d requests do not name their events, such as %s", len(r.misnamed), r.requests, r.misnamed[0])
	}
}

func eventsOf(body []byte) []delivered {
	type cloudEvent struct {
		ID   string `json:"posthornid"`
		Type string `json:"type"`
		Key  string `json:"subject"`
	}
	var one cloudEvent
	many := []cloudEvent{}
	if json.Unmarshal(body, &many) != nil && json.Unmarshal(body, &one) == nil {
		many = []cloudEvent{one}
	}
	var events []delivered
	for _, e := range many {
		n, _ := json.Number(e.ID).Int64()
		events = append(events, delivered{n, e.Type, e.Key})
	}
	return events
}

// answer changes the answers.
func (r *receiver) answer(status func(d delivered, header http.Header) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func always(status int) func(delivered, http.Header) int {
	return func(delivered, http.Header) int { return status }
}

// hang lets requests wait until release is called, or the test ends.
func (r *receiver) hang(t *testing.T) (release func()) {
	t.Helper()
	hanging := make(chan struct{})
	release = sync.OnceFunc(func() { close(hanging) })
	t.Cleanup(release)
	r.answer(func(delivered, http.Header) int { <-hanging; return http.StatusOK })
	return release
}

// got returns the ids of the events that the receiver took, in order.
func (r *receiver) got() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]int64, len(r.taken))
	for i, d := range r.taken {
		ids[i] = d.ID
	}
	return ids
}

func (r *receiver) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// awaitAll waits until the receiver has taken each of some events.
func (r *receiver) awaitAll(t *testing.T, ids []int64) {
	t.Helper()
	await.True(t, "the endpoint has each event", func() bool {
		got := map[int64]bool{}
		for _, id := range r.got() {
			got[id] = true
		}
		return !slices.ContainsFunc(ids, func(id int64) bool { return !got[id] })
	})
}

// newKeeper opens a key of a file.
func newKeeper(t *testing.T) seal.Keeper {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seal.key")
	if err := keeper.NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	k, err := keeper.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

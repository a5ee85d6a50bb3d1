package posthorn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// world is a database with a client, and what tests do with them.
type world struct {
	*posthorn.Client
	t   *testing.T
	url string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := posthorntest.Database(t)
	return &world{openClient(t, url), t, url}
}

func openClient(t testing.TB, url string) *posthorn.Client {
	t.Helper()
	c, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// other is another process.
func (w *world) other() *world {
	w.t.Helper()
	return &world{openClient(w.t, w.url), w.t, w.url}
}

// fromBeginning is a group's configuration for tests: what failed comes at once.
func fromBeginning() posthorn.GroupConfig {
	return posthorn.GroupConfig{
		Start: posthorn.Beginning, Attempts: 3, Delays: []time.Duration{0}, IdlePoll: 20 * time.Millisecond,
		LeaseFor: time.Minute,
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Pool().Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var value T
	if err := w.Pool().QueryRow(w.t.Context(), sql, args...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// turnClock sets the database's clock off from the real one.
func (w *world) turnClock(offset time.Duration) {
	w.t.Helper()
	w.setClock(fmt.Sprintf("clock_timestamp() + interval '%d milliseconds'", offset.Milliseconds()))
}

// stopClock stops the database's clock, and returns a function that moves it. So a
// short lease lasts as long as the test wants, on any machine.
func (w *world) stopClock() (move func(time.Duration)) {
	w.t.Helper()
	at := ask[time.Time](w, "select posthorn.now()")
	move = func(d time.Duration) {
		at = at.Add(d)
		w.setClock(fmt.Sprintf("timestamptz '%s'", at.UTC().Format(time.RFC3339Nano)))
	}
	move(0)
	return move
}

func (w *world) setClock(expression string) {
	w.t.Helper()
	w.exec("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return " + expression)
}

// publish publishes n events, with their number as the payload.
func (w *world) publish(n int) []int64 {
	w.t.Helper()
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i] = posthorn.Message{Type: "e", Key: "k", Payload: i}
	}
	ids, err := w.Publish(w.t.Context(), w.Pool(), messages...)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

// fetch waits for events.
func (w *world) fetch(g *posthorn.Group, n int) []*posthorn.Delivery {
	w.t.Helper()
	ctx := await.Context(w.t)
	deliveries, err := g.Fetch(ctx, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return deliveries
}

// fetchAll fetches until there are n events, which may be in several leases.
func (w *world) fetchAll(g *posthorn.Group, n int) []*posthorn.Delivery {
	w.t.Helper()
	var all []*posthorn.Delivery
	for len(all) < n {
		all = append(all, w.fetch(g, n-len(all))...)
	}
	return all
}

// create lets a fetch make a group and its subscriptions while there is nothing to
// fetch. The fetch waits until it is told to stop.
func (w *world) create(g *posthorn.Group, subscriptions int) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	fetched := make(chan error, 1)
	go func() {
		_, err := g.Fetch(ctx, 1)
		fetched <- err
	}()
	await.True(w.t, "the group is there", func() bool {
		return ask[bool](w, "select exists (select from posthorn.groups where name = $1)", g.Name())
	})
	w.subscribed(subscriptions)
	stop()
	wantErr(w.t, "fetching nothing", await.Value(w.t, "the end of the fetch", fetched), context.Canceled)
}

// nothing checks that a group has nothing to hand out: a claim of any process finds
// nothing, however often it looks.
func (w *world) nothing(g *posthorn.Group) {
	w.t.Helper()
	tx := w.begin()
	for range 3 {
		var found int
		if err := tx.QueryRow(w.t.Context(), "select count(*) from posthorn.claim('default', $1, 'probe')", g.Name()).Scan(&found); err != nil {
			w.t.Fatal(err)
		}
		if found > 0 {
			w.t.Errorf("%d events can be claimed, want nothing", found)
		}
	}
	_ = tx.Rollback(w.t.Context())
}

// ack acknowledges everything.
func (w *world) ack(deliveries ...*posthorn.Delivery) {
	w.t.Helper()
	for _, d := range deliveries {
		if err := d.Ack(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// state is what became of an event in the one group that there is.
func (w *world) state(event int64) string {
	w.t.Helper()
	outcomes, err := w.Outcomes(w.t.Context(), event)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(outcomes) != 1 {
		w.t.Fatalf("event %d has %d outcomes", event, len(outcomes))
	}
	return string(outcomes[0].State)
}

func idsOf(deliveries []*posthorn.Delivery) []int64 {
	var ids []int64
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	return ids
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// begin starts a transaction on a connection of its own, which ends with the test.
func (w *world) begin() pgx.Tx {
	w.t.Helper()
	tx, err := w.Pool().Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// withParameter returns a database URL with one more parameter.
func withParameter(t testing.TB, database, name, value string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// exampleTB is what examples have for a test.
type exampleTB struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

func (e *exampleTB) Helper()                      {}
func (e *exampleTB) Cleanup(f func())             { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Context() context.Context     { return e.ctx }
func (e *exampleTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Error(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (e *exampleTB) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (e *exampleTB) Logf(string, ...any)          {}
func (e *exampleTB) Log(...any)                   {}

// forExample opens a client on a database of the example's own.
func forExample() (c *posthorn.Client, ctx context.Context, end func()) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	tb := &exampleTB{ctx: ctx}
	c = openClient(tb, posthorntest.Database(tb))
	return c, ctx, func() {
		for _, cleanup := range slices.Backward(tb.cleanups) {
			cleanup()
		}
		cancel()
	}
}

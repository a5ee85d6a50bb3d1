// Package testworld is a database with an open client, and what tests of several
// packages do with them. It is for Posthorn's own tests; programs test with package
// posthorntest.
package testworld

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// World is a database with a client.
type World struct {
	*posthorn.Client
	T   *testing.T
	URL string
}

// New opens a client on a database of the test's own.
func New(t *testing.T) *World {
	t.Helper()
	return Open(t, posthorn.Config{DatabaseURL: posthorntest.Database(t)})
}

// Open opens a client, which logs nothing unless it has a logger.
func Open(t *testing.T, config posthorn.Config) *World {
	t.Helper()
	return &World{OpenClient(t, config), t, config.DatabaseURL}
}

// OpenClient opens a client, which logs nothing unless it has a logger.
func OpenClient(t testing.TB, config posthorn.Config) *posthorn.Client {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := posthorn.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// OpenPool opens a pool as clients have it, with a changed configuration if a function is given.
func OpenPool(t testing.TB, url string, change ...func(*pgxpool.Config)) *pg.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(config)
	}
	pool, err := pg.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Other opens another client on the same database, as another process would.
func (w *World) Other() *World {
	w.T.Helper()
	return Open(w.T, posthorn.Config{DatabaseURL: w.URL})
}

// OpenWith opens another client on the same database, unless the configuration names
// another one.
func (w *World) OpenWith(config posthorn.Config) *posthorn.Client {
	w.T.Helper()
	config.DatabaseURL = cmp.Or(config.DatabaseURL, w.URL)
	return OpenClient(w.T, config)
}

// Start lets the client run until the test ends, or stop is called.
func (w *World) Start() (stop func()) {
	w.T.Helper()
	return Run(w.T, w.Client)
}

// Run calls the Run of a client, an archiver or the like, and ends it with the test, or
// when stop is called.
func Run(t testing.TB, program interface{ Run(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- program.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// FromBeginning is a group's configuration for tests: retries come at once.
func FromBeginning() posthorn.GroupConfig {
	return posthorn.GroupConfig{
		Start: posthorn.Beginning, Attempts: 3, Delays: []time.Duration{0}, IdlePoll: 20 * time.Millisecond,
		LeaseFor: time.Minute,
	}
}

// Exec executes a statement.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	if _, err := w.Pool().Exec(w.T.Context(), sql, args...); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
}

// hasWorld is a World, or embeds one.
type hasWorld interface{ world() *World }

func (w *World) world() *World { return w }

// Ask returns the one value that a query returns.
func Ask[T any](in hasWorld, sql string, args ...any) T {
	w := in.world()
	w.T.Helper()
	var value T
	if err := w.Pool().QueryRow(w.T.Context(), sql, args...).Scan(&value); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
	return value
}

// Column returns the one column that a query returns.
func Column[T any](in hasWorld, sql string, args ...any) []T {
	w := in.world()
	w.T.Helper()
	rows, _ := w.Pool().Query(w.T.Context(), sql, args...)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
	return values
}

// Begin starts a transaction on a connection of its own, which ends with the test.
func (w *World) Begin() pgx.Tx {
	w.T.Helper()
	tx, err := w.Pool().Begin(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// Commit commits a transaction.
func (w *World) Commit(tx pgx.Tx) {
	w.T.Helper()
	if err := tx.Commit(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// Await waits until a query returns true.
func (w *World) Await(sql string, args ...any) {
	w.T.Helper()
	await.True(w.T, sql, func() bool { return Ask[bool](w, sql, args...) })
}

// AwaitBlocked waits until a connection waits for another one's lock.
func (w *World) AwaitBlocked() {
	w.T.Helper()
	w.Await(`select exists (select from pg_stat_activity
		where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0)`)
}

// TurnClock sets the database's clock off from the real one.
func (w *World) TurnClock(offset time.Duration) {
	w.T.Helper()
	w.setClock(fmt.Sprintf("clock_timestamp() + interval '%d milliseconds'", offset.Milliseconds()))
}

// StopClock stops the database's clock, and returns a function that moves it. So a
// short lease lasts as long as the test wants, on any machine.
func (w *World) StopClock() (move func(time.Duration)) {
	w.T.Helper()
	at := Ask[time.Time](w, "select posthorn.now()")
	move = func(d time.Duration) {
		at = at.Add(d)
		w.setClock(fmt.Sprintf("timestamptz '%s'", at.UTC().Format(time.RFC3339Nano)))
	}
	move(0)
	return move
}

func (w *World) setClock(expression string) {
	w.T.Helper()
	w.Exec("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return " + expression)
}

// PublishN publishes n events, with their number as the payload.
func (w *World) PublishN(n int) []int64 {
	w.T.Helper()
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i] = posthorn.Message{Type: "e", Key: "k", Payload: i}
	}
	ids, err := w.Publish(w.T.Context(), w.Pool(), messages...)
	if err != nil {
		w.T.Fatal(err)
	}
	return ids
}

// ReadIDs reads to the end, or n events.
func (w *World) ReadIDs(r *posthorn.Reader, n int) []int64 {
	w.T.Helper()
	ctx := await.Context(w.T)
	var ids []int64
	for e, err := range r.Events(ctx) {
		if err != nil {
			w.T.Fatal(err)
		}
		if ids = append(ids, e.ID); len(ids) == n {
			break
		}
	}
	return ids
}

// Fetch waits for events.
func (w *World) Fetch(g *posthorn.Group, n int) []*posthorn.Delivery {
	w.T.Helper()
	ctx := await.Context(w.T)
	deliveries, err := g.Fetch(ctx, n)
	if err != nil {
		w.T.Fatal(err)
	}
	return deliveries
}

// FetchAll fetches until there are n events, which may be in several leases.
func (w *World) FetchAll(g *posthorn.Group, n int) []*posthorn.Delivery {
	w.T.Helper()
	var all []*posthorn.Delivery
	for len(all) < n {
		all = append(all, w.Fetch(g, n-len(all))...)
	}
	return all
}

// Nothing checks that a group has nothing to hand out: a claim of any process finds
// nothing, however often it looks.
func (w *World) Nothing(g *posthorn.Group) {
	w.T.Helper()
	tx := w.Begin()
	for range 3 {
		var found int
		if err := tx.QueryRow(w.T.Context(), "select count(*) from posthorn.claim('default', $1, 'probe')", g.Name()).Scan(&found); err != nil {
			w.T.Fatal(err)
		}
		if found > 0 {
			w.T.Errorf("%d events can be claimed, want nothing", found)
		}
	}
	_ = tx.Rollback(w.T.Context())
}

// Ack acknowledges deliveries.
func (w *World) Ack(deliveries ...*posthorn.Delivery) {
	w.T.Helper()
	for _, d := range deliveries {
		if err := d.Ack(w.T.Context()); err != nil {
			w.T.Fatal(err)
		}
	}
}

// State is an event's state in the one group that there is.
func (w *World) State(event int64) string {
	w.T.Helper()
	outcomes, err := w.Admin().Outcomes(w.T.Context(), event)
	if err != nil {
		w.T.Fatal(err)
	}
	if len(outcomes) != 1 {
		w.T.Fatalf("event %d has %d outcomes", event, len(outcomes))
	}
	return string(outcomes[0].State)
}

// IDs are the ids of the delivered events.
func IDs(deliveries []*posthorn.Delivery) []int64 {
	var ids []int64
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	return ids
}

// Equal reports the difference of two values.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// WantErr reports an error that is not the wanted one.
func WantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// Buffer holds text that several goroutines write, such as a log.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends text.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

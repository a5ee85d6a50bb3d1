package consume_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asRelease) != "":
		beRelease()
	case os.Getenv(asVictim) != "":
		beVictim()
	}
	worker.TroubleWait = 50 * time.Millisecond
	*consume.HandOverIn = 50 * time.Millisecond
	posthorntest.Main(m)
}

// world is a database, with the lines that handlers have recorded.
type world struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool

	mu   sync.Mutex
	said []string
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{t: t, url: posthorntest.Database(t)}
	config, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 3
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	return w
}

// quick is a policy under which tests need not wait.
var quick = posthorn.GroupConfig{
	Start:    posthorn.Beginning,
	IdlePoll: 10 * time.Millisecond,
	Backoff:  posthorn.Backoff{From: time.Millisecond, To: time.Millisecond},
}

func (w *world) open() *posthorn.Client { return w.openWith(posthorn.Config{}) }

func (w *world) openAs(url string) *posthorn.Client {
	return w.openWith(posthorn.Config{DatabaseURL: url})
}

func (w *world) openWith(config posthorn.Config) *posthorn.Client {
	w.t.Helper()
	config.DatabaseURL = cmp.Or(config.DatabaseURL, w.url)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	ph, err := posthorn.Open(w.t.Context(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(ph.Close)
	return ph
}

// run lets a client run until the test ends, or stop is called.
func (w *world) run(ph *posthorn.Client) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) publish(ph *posthorn.Client, messages ...posthorn.Message) []int64 {
	w.t.Helper()
	ids, err := ph.Publish(w.t.Context(), w.pool, messages...)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var value T
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// await returns when a query says true.
func (w *world) await(sql string, args ...any) {
	w.t.Helper()
	await.True(w.t, sql, func() bool { return ask[bool](w, sql, args...) })
}

// stopClock stops the database's clock, and returns a function that moves it. So a
// short lease lasts as long as the test wants, on any machine.
func (w *world) stopClock() (move func(time.Duration)) {
	w.t.Helper()
	at := ask[time.Time](w, "select posthorn.now()")
	move = func(d time.Duration) {
		at = at.Add(d)
		w.exec(fmt.Sprintf(`create or replace function posthorn.now() returns timestamptz
			language sql volatile parallel safe return timestamptz '%s'`, at.UTC().Format(time.RFC3339Nano)))
	}
	move(0)
	return move
}

// say records a line for a handler.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *world) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

// awaitLines waits until handlers have recorded that many lines.
func (w *world) awaitLines(n int) []string {
	w.t.Helper()
	await.True(w.t, fmt.Sprintf("%d lines", n), func() bool { return len(w.lines()) >= n })
	return w.lines()
}

// settled returns when a group has nothing left to do, and is owed nothing.
func (w *world) settled(group string) {
	w.t.Helper()
	w.await(`select exists (select from posthorn.group_status where group_name = $1 and lag_events = 0 and leases = 0 and retries = 0)`, group)
}

type letter struct {
	Event        int64
	Subscription string
	Attempts     int
	Reason       string
	Error        string
}

func (w *world) deadLetters(group string) []letter {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `
		select event_id, subscription, attempts, reason, coalesce(error, '')
		from posthorn.list_dead_letters('default', $1)`, group)
	if err != nil {
		w.t.Fatal(err)
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[letter])
	if err != nil {
		w.t.Fatal(err)
	}
	return letters
}

package consume_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
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

// world is a database with an open client, and the lines that handlers have recorded.
type world struct {
	*testworld.World

	mu   sync.Mutex
	said []string
}

// newWorld makes a world for a test that runs in parallel.
func newWorld(t *testing.T) *world {
	t.Parallel()
	return &world{World: testworld.New(t)}
}

// other is another process.
func (w *world) other() *world {
	w.T.Helper()
	return &world{World: w.Other()}
}

// quick is a policy under which tests need not wait.
var quick = posthorn.GroupConfig{
	Start:    posthorn.Beginning,
	IdlePoll: 10 * time.Millisecond,
	Backoff:  posthorn.Backoff{From: time.Millisecond, To: time.Millisecond},
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
	w.T.Helper()
	await.True(w.T, fmt.Sprintf("%d lines", n), func() bool { return len(w.lines()) >= n })
	return w.lines()
}

// settled returns when a group has nothing left to do, and is owed nothing.
func (w *world) settled(group string) {
	w.T.Helper()
	w.Await(`select exists (select from posthorn.group_status where group_name = $1 and lag_events = 0 and leases = 0 and retries = 0)`, group)
}

type letter struct {
	Event        int64
	Subscription string
	Attempts     int
	Reason       string
	Error        string
}

func (w *world) deadLetters(group string) []letter {
	w.T.Helper()
	rows, err := w.Pool().Query(w.T.Context(), `
		select event_id, subscription, attempts, reason, coalesce(error, '')
		from posthorn.list_dead_letters('default', $1)`, group)
	if err != nil {
		w.T.Fatal(err)
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[letter])
	if err != nil {
		w.T.Fatal(err)
	}
	return letters
}

// create lets a fetch make a group and its subscriptions while there is nothing to
// fetch. The fetch waits until it is told to stop.
func (w *world) create(g *posthorn.Group, subscriptions int) {
	w.T.Helper()
	ctx, stop := context.WithCancel(w.T.Context())
	defer stop()
	fetched := make(chan error, 1)
	go func() {
		_, err := g.Fetch(ctx, 1)
		fetched <- err
	}()
	w.Await("select exists (select from posthorn.groups where name = $1)", g.Name())
	w.subscribed(subscriptions)
	stop()
	testworld.WantErr(w.T, "fetching nothing", await.Value(w.T, "the end of the fetch", fetched), context.Canceled)
}

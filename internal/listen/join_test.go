package listen_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// newHub opens a hub on a new database.
func newHub(t *testing.T) (*listen.Hub, *pg.Pool) {
	t.Helper()
	pool := testworld.OpenPool(t, posthorntest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 10 })
	log := slog.New(slog.DiscardHandler)
	watch := logwatch.New(pool, log)
	t.Cleanup(watch.Close)
	h := listen.NewHub(listen.Config{
		Pool: pool, Namespace: "default", Watch: watch, Log: log, Closed: errors.New("closed"),
	})
	t.Cleanup(h.Close)
	return h, pool
}

// Listeners join the shared read, leave it and resume, again and again, while
// others publish in transactions that overlap: each gets each event once.
// seed 001.38-44, 50-59
func TestListenersJoinUnderLoad(t *testing.T) {
	t.Parallel()
	h, pool := newHub(t)
	ctx := await.Context(t)
	everything, err := listen.Filter{}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	staying := h.NewListener(everything, 1_000_000) // keeps the shared read going
	if err := staying.StartNow(ctx); err != nil {
		t.Fatal(err)
	}
	defer staying.Close()

	// More is published when all have joined, so that they catch up on any machine.
	stop, turns := make(chan struct{}), make(chan struct{}, 30)
	more := func() {
		for range cap(turns) {
			turns <- struct{}{}
		}
	}
	more()
	var publishers, listeners sync.WaitGroup
	for range 4 {
		publishers.Go(func() { publishUntil(t, pool, turns, stop) })
	}
	beginning, err := pg.CursorAt(ctx, pool, pg.Beginning)
	if err != nil {
		t.Fatal(err)
	}
	const joinsEach = 10
	var joined atomic.Int64
	heard := make([][]int64, 5)
	current := make([]atomic.Pointer[listen.Listener], len(heard))
	for i := range heard {
		listeners.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(i), 1))
			cursor := beginning
			for joins := 0; ; joins++ {
				l := h.NewListener(everything, 1_000_000)
				if err := l.StartAt(ctx, cursor); err != nil {
					t.Error(err)
					return
				}
				after := chance.IntN(5) // events to read after it has joined
				if joins >= joinsEach {
					after = -1 // all
				}
				current[i].Store(l)
				ids, last, next := hearLive(ctx, t, l, after)
				current[i].Store(nil)
				if next == "" {
					return
				}
				heard[i] = append(heard[i], ids...)
				if joined.Add(1); last {
					return
				}
				cursor = next
			}
		})
	}
	await.True(t, "all have joined often enough", func() bool {
		live := 0
		for i := range current {
			if l := current[i].Load(); l != nil && l.IsLive() {
				live++
			}
		}
		if live == len(current) && len(turns) == 0 {
			more()
		}
		return joined.Load() >= joinsEach*int64(len(heard)) || t.Failed()
	})
	close(stop)
	publishers.Wait()
	rows, _ := pool.Query(ctx, "select id from posthorn.events order by id")
	want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "select posthorn.publish('default', 'last')"); err != nil {
		t.Fatal(err)
	}
	listeners.Wait()
	for _, got := range heard {
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("heard %d events, want %d, each once", len(got), len(want))
		}
	}
}

// hearLive reads until the listener has joined and has received some more events, or
// until the last event of the log. Then it closes the listener.
func hearLive(ctx context.Context, t *testing.T, l *listen.Listener, more int) (ids []int64, last bool, cursor string) {
	defer l.Close()
	for {
		if l.IsLive() {
			if more == 0 {
				return ids, false, l.Cursor()
			}
			more--
		}
		item, err := l.Next(ctx)
		if err != nil {
			t.Error(err)
			return nil, false, ""
		}
		if item.Type == "last" {
			return ids, true, l.Cursor()
		}
		ids = append(ids, item.ID)
		l.Done()
	}
}

// publishUntil publishes a transaction of one to three events for each turn, until it is
// stopped.
func publishUntil(t *testing.T, pool *pg.Pool, turns, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-turns:
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			for range 1 + n%3 {
				if _, err := tx.Exec(t.Context(), "select posthorn.publish('default', 'e')"); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
	}
}

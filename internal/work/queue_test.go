package work_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/posthorntest"
)

const ns = "default"

func openPool(t *testing.T) *pg.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pg.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openQueues returns queues of a process, and its watcher.
func openQueues(t *testing.T, pool *pg.Pool) (*work.Queues, *logwatch.Watcher) {
	t.Helper()
	watch := logwatch.New(pool, slog.Default())
	t.Cleanup(watch.Close)
	queues := work.NewQueues(watch)
	t.Cleanup(queues.Close)
	return queues, watch
}

func enqueue(t *testing.T, db pg.DB, jobs ...pg.NewJob) []int64 {
	t.Helper()
	ids, err := pg.EnqueueMany(t.Context(), db, ns, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestEachOfManyWaitersGetsAJob(t *testing.T) {
	t.Parallel()
	db, ctx := openPool(t), await.Context(t)
	queues, _ := openQueues(t, db)
	var got sync.Map
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			w := queues.Join(ns, []string{"x"})
			defer w.Leave()
			for {
				jobs, err := pg.ClaimJobs(ctx, db, ns, "w", []string{"x"}, 1, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if len(jobs) > 0 {
					w.Found()
					got.Store(jobs[0].ID, true)
					return
				}
				if !w.Wait(ctx) {
					t.Error("nothing came")
					return
				}
			}
		})
	}
	jobs := make([]pg.NewJob, 20)
	for i := range jobs {
		jobs[i] = pg.NewJob{Title: "a", Tags: []string{"x"}}
	}
	ids := enqueue(t, db, jobs...)
	waiters.Wait()
	for _, id := range ids {
		if _, ok := got.Load(id); !ok {
			t.Errorf("no waiter got job %d", id)
		}
	}
}

func TestOneWaiterOfAQueueClaimsAtATime(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	queues, watch := openQueues(t, openPool(t))
	var claiming, most, claims atomic.Int64
	enough, stop := context.WithCancel(ctx)
	defer stop()
	var waiters sync.WaitGroup
	for range 50 {
		waiters.Go(func() {
			w := queues.Join(ns, []string{"b", "a"})
			defer w.Leave()
			for w.Wait(enough) {
				if n := claiming.Add(1); n > most.Load() {
					most.Store(n)
				}
				if claims.Add(1) == 200 {
					stop()
				}
				watch.Announce(logwatch.Jobs)
				claiming.Add(-1)
			}
		})
	}
	waiters.Wait()
	if most.Load() > 1 {
		t.Errorf("%d waiters claimed at once", most.Load())
	}
	if claims.Load() < 200 {
		t.Errorf("only %d claims", claims.Load())
	}
}

// A waiter that was woken and leaves wakes the next one.
func TestTurnsAreNotLostWithWaitersThatLeave(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	queues, _ := openQueues(t, openPool(t))
	first, second := queues.Join(ns, nil), queues.Join(ns, nil)
	defer second.Leave()
	if !first.Wait(ctx) { // woken by the first answer of the database
		t.Fatal("the first waiter was not woken")
	}
	arrived := make(chan bool)
	go func() { arrived <- second.Wait(ctx) }()
	first.Leave()
	if !<-arrived {
		t.Error("the second waiter was not woken")
	}
}

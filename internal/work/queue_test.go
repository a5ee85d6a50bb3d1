package work_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/posthorntest"
)

const ns = "default"

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
	db, ctx := testworld.OpenPool(t, posthorntest.Database(t)), await.Context(t)
	watch := logwatch.New(db, slog.Default())
	t.Cleanup(watch.Close)
	queues := work.NewQueues(watch)
	t.Cleanup(queues.Close)
	var got sync.Map
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			w := queues.Join(work.QueueName(ns, []string{"x"}))
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

package work_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/await"
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

func openBell(t *testing.T, db pg.DB) *work.Bell {
	t.Helper()
	bell := work.NewBell(db, slog.Default())
	t.Cleanup(bell.Close)
	return bell
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
	bell := openBell(t, db)
	var got sync.Map
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			w := bell.Join(ns, []string{"x"})
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
			t.Errorf("nobody got job %d", id)
		}
	}
}

// What is committed long after the sequence moved is found too.
func TestBellRingsForLateCommits(t *testing.T) {
	t.Parallel()
	db, ctx := openPool(t), await.Context(t)
	bell := openBell(t, db)
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	id := enqueue(t, tx, pg.NewJob{Title: "a"})[0]
	w := bell.Join(ns, nil)
	defer w.Leave()
	for looks := 0; ; looks++ {
		jobs, err := pg.ClaimJobs(ctx, db, ns, "w", nil, 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) > 0 {
			if jobs[0].ID != id {
				t.Errorf("got job %d, want %d", jobs[0].ID, id)
			}
			return
		}
		if looks == 8 { // the echoes have faded by then
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if !w.Wait(ctx) {
			t.Fatal("nothing came")
		}
	}
}

// fake counts who looks, and answers what it is told.
type fake struct {
	pg.DB
	news  atomic.Int64
	looks atomic.Int64
}

func (f *fake) QueryRow(context.Context, string, ...any) pgx.Row {
	f.looks.Add(1)
	return row(f.news.Load())
}

type row int64

func (r row) Scan(into ...any) error {
	*into[0].(*int64) = int64(r)
	return nil
}

func TestOneOfALineLooksAtATime(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	bell := openBell(t, &fake{})
	var looking, most, looks atomic.Int64
	enough, stop := context.WithCancel(ctx)
	defer stop()
	var waiters sync.WaitGroup
	for range 50 {
		waiters.Go(func() {
			w := bell.Join(ns, []string{"b", "a"})
			defer w.Leave()
			for w.Wait(enough) {
				if n := looking.Add(1); n > most.Load() {
					most.Store(n)
				}
				if looks.Add(1) == 200 {
					stop()
				}
				bell.Poke()
				looking.Add(-1)
			}
		})
	}
	bell.Poke()
	waiters.Wait()
	if most.Load() > 1 {
		t.Errorf("%d looked at once", most.Load())
	}
	if looks.Load() < 200 {
		t.Errorf("only %d looks", looks.Load())
	}
}

// Whoever was sent to look and goes sends the next one.
func TestTurnsAreNotLostWithThoseThatLeave(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	bell := openBell(t, &fake{})
	first, second := bell.Join(ns, nil), bell.Join(ns, nil)
	defer second.Leave()
	if !first.Wait(ctx) { // rung by the first answer
		t.Fatal("nobody rang")
	}
	arrived := make(chan bool)
	go func() { arrived <- second.Wait(ctx) }()
	first.Leave()
	if !<-arrived {
		t.Error("the next in line was not sent")
	}
}

func TestBellRestsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	f := &fake{}
	bell := openBell(t, f)
	if f.looks.Load() != 0 {
		t.Error("it looked although nobody waited")
	}
	w := bell.Join(ns, nil)
	if !w.Wait(await.Context(t)) {
		t.Fatal("nobody rang")
	}
	w.Leave()
	bell.Close()
	before := f.looks.Load()
	bell.Join(ns, nil).Leave()
	if f.looks.Load() != before {
		t.Error("it looks although it is closed")
	}
}

package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// batchHandler is a handler for both kinds of batches; tx is nil in one of them.
type batchHandler func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error

// alone is a configuration with which one take brings all jobs that are due.
var alone = posthorn.WorkConfig{Concurrency: 1}

// inBothKinds runs a test with WorkBatch and with WorkBatchTx. work registers a handler,
// and starts the client.
func inBothKinds(t *testing.T, test func(t *testing.T, w *world, transactional bool, work func(batchHandler))) {
	for _, transactional := range []bool{false, true} {
		t.Run(map[bool]string{false: "WorkBatch", true: "WorkBatchTx"}[transactional], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Exec("create table public.effects (job bigint)")
			test(t, w, transactional, func(handler batchHandler) {
				w.batches(transactional, alone, handler)
				w.Start()
			})
		})
	}
}

func (w *world) batches(transactional bool, config posthorn.WorkConfig, handler batchHandler) {
	if transactional {
		w.WorkBatchTx(mail, config, handler)
		return
	}
	w.WorkBatch(mail, config, func(ctx context.Context, jobs []posthorn.Job) error { return handler(ctx, nil, jobs) })
}

// enqueueTitles enqueues a job for each title. A job that fails is tried again at once.
func (w *world) enqueueTitles(titles ...string) []int64 {
	w.T.Helper()
	jobs := make([]posthorn.NewJob, len(titles))
	for i, title := range titles {
		jobs[i] = posthorn.NewJob{Title: title, Tags: mail, RetryDelays: []time.Duration{0}}
	}
	return w.enqueue(jobs...)
}

// affect writes an effect for each job.
func affect(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
	for _, job := range jobs {
		if _, err := tx.Exec(ctx, "insert into public.effects values ($1)", job.ID); err != nil {
			return err
		}
	}
	return nil
}

// wantEffects checks that exactly these jobs have had an effect, each of them once.
func (w *world) wantEffects(ids ...int64) {
	w.T.Helper()
	got := testworld.Column[int64](w, "select job from public.effects order by job")
	if !slices.Equal(got, ids) {
		w.T.Errorf("effects of jobs %v, want those of %v", got, ids)
	}
}

// calls are the numbers of jobs in the calls of a handler.
type calls struct {
	mu    sync.Mutex
	sizes []int
}

func (c *calls) add(jobs []posthorn.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, len(jobs))
}

func (c *calls) want(t *testing.T, sizes ...int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.sizes, sizes) {
		t.Errorf("calls with %v jobs, want %v", c.sizes, sizes)
	}
}

func TestBatchCompletesInOneCall(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, work func(batchHandler)) {
		ids := w.enqueueTitles("a", "b", "c")
		var calls calls
		work(func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
			calls.add(jobs)
			if err := jobs[0].Progress(ctx, 50); err != nil {
				return err
			}
			if err := jobs[1].SetResult("sent"); err != nil || tx == nil {
				return err
			}
			return affect(ctx, tx, jobs)
		})
		for _, id := range ids {
			w.status(id, admin.JobCompleted)
			if s := w.story(id); s != "PICKED COMPLETED" {
				t.Errorf("the log of job %d says %s", id, s)
			}
		}
		calls.want(t, 3)
		if first, second := w.status(ids[0], admin.JobCompleted), w.status(ids[1], admin.JobCompleted); string(first.Progress) != "50" ||
			first.Result != nil || string(second.Result) != `"sent"` {
			t.Errorf("progress %s, results %s and %s", first.Progress, first.Result, second.Result)
		}
		if h := w.Stats()[0].Handlers[0]; h.Events != 3 || h.Failed != 0 {
			t.Errorf("counted %+v", h)
		}
		if !transactional {
			return
		}
		w.wantEffects(ids...)
		if n := testworld.Ask[int](w, "select count(distinct x) from (select xmin::text x from public.effects union all select xmin::text from posthorn.finished_jobs) x"); n != 1 {
			t.Errorf("%d transactions have written the effects and the ends of the jobs", n)
		}
	})
}

func TestBatchSizeBoundsBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueueTitles("a", "b", "c", "d", "e")
	var calls calls
	w.batches(false, posthorn.WorkConfig{Concurrency: 1, BatchSize: 2}, func(_ context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
		calls.add(jobs)
		return nil
	})
	w.Start()
	for _, id := range ids {
		w.status(id, admin.JobCompleted)
	}
	calls.want(t, 2, 2, 1)
}

// After an error or a panic of a batch, each job fails by its own error only.
func TestFailureOfOneJobOfABatch(t *testing.T) {
	t.Parallel()
	for _, title := range []string{"error", "panic"} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			inBothKinds(t, func(t *testing.T, w *world, transactional bool, work func(batchHandler)) {
				ids := w.enqueueTitles("a", title, "b")
				var calls calls
				work(func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
					calls.add(jobs)
					if transactional {
						if err := affect(ctx, tx, jobs); err != nil {
							return err
						}
					}
					if i := slices.IndexFunc(jobs, func(j posthorn.Job) bool { return j.Title == title && j.Attempt == 1 }); i < 0 {
						return nil
					}
					if title == "panic" {
						panic("oh")
					}
					return errors.New("oh")
				})
				for _, id := range ids {
					w.status(id, admin.JobCompleted)
					want := "PICKED COMPLETED"
					if id == ids[1] {
						want = "PICKED FAILED PICKED COMPLETED"
					}
					if s := w.story(id); s != want {
						t.Errorf("the log of job %d says %s, want %s", id, s, want)
					}
				}
				calls.want(t, 3, 1, 1, 1, 1)
				if transactional {
					w.wantEffects(ids...)
				}
			})
		})
	}
}

// JobErrors fail the jobs that they name, each by its error. Outside of a transaction, the
// others are complete.
func TestJobErrors(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, work func(batchHandler)) {
		ids := w.enqueueTitles("good", "plain", "permanent", "later", "snooze", "none")
		var calls calls
		work(func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
			calls.add(jobs)
			if transactional {
				if err := affect(ctx, tx, jobs); err != nil {
					return err
				}
			}
			failed := posthorn.JobErrors{}
			for _, job := range jobs {
				switch {
				case job.Attempt > 1:
				case job.Title == "plain":
					failed[job.ID] = errors.New("no luck")
				case job.Title == "permanent":
					failed[job.ID] = posthorn.Permanent(errors.New("never"))
				case job.Title == "later":
					failed[job.ID] = posthorn.RetryAfter(time.Hour, errors.New("busy"))
				case job.Title == "snooze":
					failed[job.ID] = posthorn.Snooze(time.Hour)
				}
			}
			if len(failed) == 0 {
				return nil
			}
			return fmt.Errorf("some failed: %w", failed)
		})
		for i, want := range []string{
			"PICKED COMPLETED", "PICKED FAILED PICKED COMPLETED", "PICKED FAILED", "PICKED FAILED", "PICKED SNOOZED", "PICKED COMPLETED",
		} {
			await.True(t, fmt.Sprintf("the log of job %d says %s", ids[i], want), func() bool { return w.story(ids[i]) == want })
		}
		if job := w.status(ids[2], admin.JobFailed); job.ErrorMessage != "never" {
			t.Errorf("permanent: %+v", job)
		}
		if job := w.status(ids[3], admin.JobPending); time.Until(job.NextRetryAt) < 50*time.Minute {
			t.Errorf("later: %+v", job)
		}
		if job := w.status(ids[4], admin.JobPending); job.RetryCount != 0 {
			t.Errorf("snoozed: %+v", job)
		}
		if transactional {
			calls.want(t, 6, 1, 1, 1, 1, 1, 1, 1)
			w.wantEffects(ids[0], ids[1], ids[5])
		} else {
			calls.want(t, 6, 1)
		}
	})
}

// A program that names a job which it did not get is told so, and no job counts as complete.
func TestJobErrorsOfOtherJobs(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, _ bool, work func(batchHandler)) {
		ids := w.enqueueTitles("a", "b")
		work(func(context.Context, pgx.Tx, []posthorn.Job) error { return posthorn.JobErrors{4711: errors.New("no")} })
		for _, id := range ids {
			if job := w.status(id, admin.JobFailed); !strings.Contains(job.ErrorMessage, "has named job 4711 in its JobErrors, but did not get that job") {
				t.Errorf("job %d: %s", id, job.ErrorMessage)
			}
		}
	})
}

// JobErrors that name nobody roll the transaction back too, so no job is complete.
func TestEmptyJobErrorsCompleteNothingThatIsRolledBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueueTitles("a")[0]
	w.batches(true, alone, func(_ context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
		if jobs[0].Attempt == 1 {
			return posthorn.JobErrors{}
		}
		return nil
	})
	w.Start()
	w.status(id, admin.JobCompleted)
	if s := w.story(id); s != "PICKED FAILED PICKED COMPLETED" {
		t.Errorf("the log says %s", s)
	}
}

// A job that is cancelled while its batch runs has no effect, and the others have theirs
// once. Without a transaction, the call goes on for the others.
func TestJobOfABatchIsLost(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, work func(batchHandler)) {
		ids := w.enqueueTitles("a", "lost", "b")
		var calls calls
		var cause error
		work(func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
			calls.add(jobs)
			if transactional {
				if err := affect(ctx, tx, jobs); err != nil {
					return err
				}
			}
			if len(jobs) == 1 {
				return nil
			}
			if err := w.Admin().In(w.Pool()).CancelJob(ctx, ids[1], "not needed"); err != nil {
				return err
			}
			if transactional {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil // is ignored
			}
			err := jobs[1].Progress(ctx, 1) // notices the loss
			if !errors.Is(err, posthorn.ErrLeaseLost) {
				return fmt.Errorf("progress of a lost job: %w", err)
			}
			if _, err := w.Pool().Exec(ctx, "select"); err != nil {
				return err
			}
			cause = context.Cause(ctx)
			return nil
		})
		w.status(ids[0], admin.JobCompleted)
		w.status(ids[2], admin.JobCompleted)
		w.status(ids[1], admin.JobCancelled)
		if transactional {
			calls.want(t, 3, 1, 1)
			w.wantEffects(ids[0], ids[2])
			if !errors.Is(cause, posthorn.ErrLeaseLost) {
				t.Errorf("the context of the batch ended with %v", cause)
			}
			return
		}
		calls.want(t, 3)
		if cause != nil {
			t.Errorf("the context of the batch ended with %v", cause)
		}
	})
}

// A batch whose jobs are all lost ends.
func TestBatchIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueueTitles("a", "b")
	ended := make(chan error, 1)
	w.batches(false, alone, func(ctx context.Context, _ pgx.Tx, _ []posthorn.Job) error {
		for _, id := range ids {
			if err := w.Admin().In(w.Pool()).CancelJob(ctx, id, "not needed"); err != nil {
				return err
			}
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	w.Start()
	if cause := await.Value(t, "the end of the batch", ended); !errors.Is(cause, posthorn.ErrLeaseLost) {
		t.Errorf("it ended with %v", cause)
	}
}

// A job that this attempt has completed already, as a commit whose answer was lost may have,
// has no second effect, whether it has a result or not.
func TestJobOfABatchThatIsCompletedAlready(t *testing.T) {
	t.Parallel()
	for i, title := range []string{"plain", "result"} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Exec("create table public.effects (job bigint)")
			ids := w.enqueueTitles("plain", "result")
			var calls calls
			w.batches(true, alone, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
				calls.add(jobs)
				for _, job := range jobs {
					if job.Title == "result" {
						if err := job.SetResult(1); err != nil {
							return err
						}
					}
				}
				if err := affect(ctx, tx, jobs); err != nil || len(jobs) == 1 {
					return err
				}
				_, err := w.Pool().Exec(context.WithoutCancel(ctx), `
					select posthorn.complete_job(r.job, r.worker, r.attempt) from posthorn.running_jobs r where r.job = $1`, ids[i])
				return err
			})
			w.Start()
			for _, id := range ids {
				w.status(id, admin.JobCompleted)
			}
			w.wantEffects(ids[1-i])
			calls.want(t, 2, 1)
		})
	}
}

// A batch whose commit was not answered has its effects once.
func TestCommitOfABatchIsNotAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint)")
	config, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	var forgets forgetful
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &forgetfulConn{Conn: conn, forgetful: &forgets}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	first := &world{testworld.Open(t, posthorn.Config{Pool: pool})}
	ids := w.enqueueTitles("a", "b")
	var calls calls
	first.batches(true, alone, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
		calls.add(jobs)
		forgets.next.Store(true)
		return affect(ctx, tx, jobs)
	})
	first.Start()
	for _, id := range ids {
		if job := w.status(id, admin.JobCompleted); job.Attempt != 1 {
			t.Errorf("job %d needed %d attempts", id, job.Attempt)
		}
	}
	await.True(t, "the answer is lost", forgets.done.Load)
	later := w.enqueueTitles("later")[0] // its batch comes after that of the others
	w.status(later, admin.JobCompleted)
	w.wantEffects(ids[0], ids[1], later)
	calls.want(t, 2, 1)
}

// forgetful loses the answer to the next commit.
type forgetful struct{ next, done atomic.Bool }

type forgetfulConn struct {
	net.Conn
	*forgetful
}

func (c *forgetfulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("COMMIT\x00")) && c.next.Load() && !c.done.Swap(true) {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// Jobs whose turn has not come when the client stops go back, and nothing is counted.
func TestBatchThatFailsAtTheEndGoesBack(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, _ func(batchHandler)) {
		ids := w.enqueueTitles("a", "b")
		first := &world{testworld.Open(t, posthorn.Config{DatabaseURL: w.URL, DrainFor: time.Millisecond})}
		begun := make(chan bool, 10)
		var calls calls
		first.batches(transactional, alone, func(ctx context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
			calls.add(jobs)
			begun <- true
			<-ctx.Done()
			return ctx.Err()
		})
		stop := first.Start()
		await.Value(t, "the batch", begun)
		stop()
		calls.want(t, 2)
		for _, id := range ids {
			if job := w.status(id, admin.JobPending); job.RetryCount != 0 || w.story(id) != "PICKED RESET" {
				t.Errorf("%+v went back with the log %s", job, w.story(id))
			}
		}
	})
}

// A batch that takes longer than its leases keeps them.
func TestLongBatchesKeepTheirLeases(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, _ func(batchHandler)) {
		const lease = time.Second
		begun, hold := make(chan bool), make(chan bool)
		w.batches(transactional, posthorn.WorkConfig{LeaseFor: lease, Concurrency: 1}, func(context.Context, pgx.Tx, []posthorn.Job) error {
			begun <- true
			<-hold
			return nil
		})
		ids := w.enqueueTitles("a", "b")
		move := w.StopClock()
		w.Start()
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release) // before Run is awaited
		await.Value(t, "the batch", begun)
		for range 2 {
			move(lease * 3 / 4)
			await.True(t, "the leases are extended", func() bool {
				return testworld.Ask[int](w, "select count(*) from posthorn.running_jobs where lease_until = posthorn.now() + $1", lease) == 2
			})
		}
		release()
		for _, id := range ids {
			if job := w.status(id, admin.JobCompleted); job.Attempt != 1 {
				t.Errorf("job %d needed %d attempts", id, job.Attempt)
			}
		}
	})
}

// A handler that returns after its time limit has failed, although it returns no error: its transaction, in which a statement
// was cut off or was not sent, does not commit.
func TestSwallowedTimeoutsFailTheJob(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]struct {
		limit time.Duration
		wait  func(ctx context.Context, tx pgx.Tx)
	}{
		"a statement is cut off": {5 * time.Second, func(ctx context.Context, tx pgx.Tx) { // longer than the statement takes to begin
			_, _ = tx.Exec(ctx, "select pg_sleep(3600)")
		}},
		"a statement is not sent": {10 * time.Millisecond, func(ctx context.Context, tx pgx.Tx) {
			<-ctx.Done()
			_, _ = tx.Exec(ctx, "select 1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Exec("create table public.effects (job bigint)")
			ids := w.enqueueTitles("slow")
			w.batches(true, posthorn.WorkConfig{Timeout: late.limit}, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
				if err := affect(context.WithoutCancel(ctx), tx, jobs); err != nil {
					return err
				}
				late.wait(ctx, tx)
				return nil
			})
			w.Start()
			w.status(ids[0], admin.JobFailed)
			w.wantEffects()
		})
	}
}

// Jobs that wait for their turn after their batch failed keep their leases, although they make
// no progress for longer than a call may take.
func TestJobsThatWaitForTheirTurnKeepTheirLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueueTitles("a", "b", "c", "d", "e", "f", "g", "last")
	last := ids[len(ids)-1]
	seen := func() (at time.Time) {
		_ = w.Pool().QueryRow(t.Context(), "select seen_at from posthorn.running_jobs where job = $1", last).Scan(&at)
		return at
	}
	config := posthorn.WorkConfig{Concurrency: 1, LeaseFor: time.Second, Timeout: 500 * time.Millisecond}
	w.batches(false, config, func(_ context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
		if len(jobs) > 1 {
			return errors.New("one by one")
		}
		for before := seen(); jobs[0].ID != last && t.Context().Err() == nil && !seen().After(before); { // a heartbeat of the last one
			await.Pause()
		}
		return nil
	})
	w.Start()
	for _, id := range ids {
		w.status(id, admin.JobCompleted)
	}
}

// A job that sleeps in a batch is not completed by it, and goes on when its time has come.
func TestJobOfABatchSleeps(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("told %v", told), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.enqueueTitles("sleeper", "other")
			var calls calls
			w.batches(false, alone, func(ctx context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
				calls.add(jobs)
				for _, job := range jobs {
					if job.Title == "sleeper" {
						if err := job.Sleep(ctx, "cool down", 24*time.Hour); told && err != nil {
							return posthorn.JobErrors{job.ID: err}
						}
					}
				}
				return nil
			})
			w.Start()
			w.status(ids[1], admin.JobCompleted)
			w.status(ids[0], admin.JobPending)
			w.TurnClock(25 * time.Hour)
			w.status(ids[0], admin.JobCompleted)
			if s := w.story(ids[0]); s != "PICKED SNOOZED PICKED COMPLETED" {
				t.Errorf("the log says %s", s)
			}
			calls.want(t, 2, 1)
		})
	}
}

// A job may use the name of a sleep again when it is handled alone after its batch failed.
func TestJobOfAFailedBatchHasSlept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueueTitles("a", "b")
	w.batches(false, alone, func(ctx context.Context, _ pgx.Tx, jobs []posthorn.Job) error {
		asleep := posthorn.JobErrors{}
		for _, job := range jobs {
			if err := job.Sleep(ctx, "cool down", 24*time.Hour); err != nil {
				asleep[job.ID] = err
			}
		}
		switch {
		case len(asleep) > 0:
			return asleep
		case len(jobs) > 1:
			return errors.New("one by one")
		}
		return nil
	})
	stop := w.Start()
	for _, id := range ids {
		w.status(id, admin.JobPending)
		await.True(t, "it sleeps", func() bool { return w.story(id) == "PICKED SNOOZED" })
	}
	stop()
	w.TurnClock(25 * time.Hour)
	w.Exec("select posthorn.promote_jobs()") // so that one take brings both
	w.Start()
	for _, id := range ids {
		w.status(id, admin.JobCompleted)
		if s := w.story(id); s != "PICKED SNOOZED PICKED COMPLETED" {
			t.Errorf("the log says %s", s)
		}
	}
}

// Calls that would end a job, or a part of it, apart from its batch are refused.
func TestCallsThatBatchesRefuse(t *testing.T) {
	t.Parallel()
	inBothKinds(t, func(t *testing.T, w *world, transactional bool, work func(batchHandler)) {
		ids := w.enqueueTitles("a", "b")
		refused := make(chan map[string]error, 1)
		work(func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
			job := jobs[0]
			errs := map[string]error{"Job.Complete": job.Complete(ctx, w.Pool())}
			_, errs["a step"] = posthorn.Step(ctx, job, "s", func(context.Context) (int, error) { return 0, errors.New("called") })
			_, errs["step in a transaction"] = posthorn.StepTx(ctx, job, "t", func(context.Context, pgx.Tx) (int, error) { return 0, errors.New("called") })
			if transactional {
				errs["Job.Sleep"] = job.Sleep(ctx, "z", time.Hour)
				errs["the end of the transaction"] = tx.Commit(ctx)
			}
			refused <- errs
			return nil
		})
		for call, err := range await.Value(t, "the batch", refused) {
			if call == "the end of the transaction" {
				if err == nil {
					t.Error("the handler could commit")
				}
				continue
			}
			if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "is handled in a batch") || posthorn.Hint(err) == "" {
				t.Errorf("%s: %v", call, err)
			}
		}
		for _, id := range ids {
			w.status(id, admin.JobCompleted)
		}
	})
}

// Effects and results that the database refuses fail their jobs only.
func TestBatchesThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for title, message := range map[string]string{"result": "a result cannot be saved", "constraint": "effects_job_key"} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Exec("create table public.effects (job bigint, unique (job) deferrable initially deferred)")
			news := []posthorn.NewJob{{Title: "a", Tags: mail}, {Title: title, Tags: mail, MaxRetries: posthorn.NoRetries}, {Title: "b", Tags: mail}}
			ids := w.enqueue(news...)
			w.batches(true, alone, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
				for _, job := range jobs {
					switch job.Title {
					case "result":
						if err := job.SetResult("\x00"); err != nil {
							return err
						}
					case "constraint":
						if err := affect(ctx, tx, []posthorn.Job{job}); err != nil { // the second one
							return err
						}
					}
				}
				return affect(ctx, tx, jobs)
			})
			w.Start()
			w.status(ids[0], admin.JobCompleted)
			w.status(ids[2], admin.JobCompleted)
			if job := w.status(ids[1], admin.JobFailed); !strings.Contains(job.ErrorMessage, message) {
				t.Errorf("it failed with %q", job.ErrorMessage)
			}
			w.wantEffects(ids[0], ids[2])
		})
	}
}

// A batch that collides with another transaction is repeated as a whole.
func TestBatchCollides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint)")
	ids := w.enqueueTitles("a", "b")
	var calls calls
	var collided atomic.Bool
	w.batches(true, alone, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
		calls.add(jobs)
		if err := affect(ctx, tx, jobs); err != nil || collided.Swap(true) {
			return err
		}
		_, err := tx.Exec(ctx, "do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$")
		return err
	})
	w.Start()
	for _, id := range ids {
		w.status(id, admin.JobCompleted)
	}
	calls.want(t, 2, 2)
	w.wantEffects(ids...)
}

// Processes that work in batches, or with a transaction for each job, are killed with -9 in the
// middle of transactions, again and again: every job ends exactly once, and has its effect exactly once.
func TestTransactionsSurviveTheirProcesses(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"WorkBatchTx", "WorkTx"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testKills(t, kind)
		})
	}
}

func testKills(t *testing.T, kind string) {
	stuck := await.Kills(5) // each gets a process killed
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint)")
	news := make([]posthorn.NewJob, 30*stuck)
	for i := range news {
		news[i] = posthorn.NewJob{Title: "a", Tags: mail, MaxRetries: 4, RetryDelays: []time.Duration{0}}
		if i%30 == 0 {
			news[i].Title = "stuck"
		}
	}
	ids := w.enqueue(news...)
	running := []*testchild.Child{w.spawnTxWorker(kind), w.spawnTxWorker(kind)}
	killed := 0
	var dead []string
	for worker := w.awaitStuck(dead); worker != ""; worker = w.awaitStuck(dead) {
		if i := slices.IndexFunc(running, func(c *testchild.Child) bool { return c.Leads(worker) }); i >= 0 {
			killed++
			running[i].Kill()
			running[i] = w.spawnTxWorker(kind)
		}
		dead = append(dead, worker)
	}
	for _, c := range running {
		c.Kill()
	}
	var done []int64
	for _, id := range ids {
		log, err := w.Admin().JobLog(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		job := w.status(id, log[len(log)-1].Action)
		if wrong := tellStory(job, log); wrong != "" {
			t.Errorf("job %d (%s): %s: %s", id, job.Status, wrong, w.story(id))
		}
		if job.Status == admin.JobCompleted {
			done = append(done, id)
		}
	}
	w.wantEffects(done...)
	if killed == 0 || len(done) == 0 {
		t.Errorf("%d processes were killed in the middle of work, and %d jobs are complete", killed, len(done))
	}
}

const (
	txURL  = "POSTHORN_TEST_TX_URL"
	txKind = "POSTHORN_TEST_TX_KIND"
)

func (w *world) spawnTxWorker(kind string) *testchild.Child {
	w.T.Helper()
	c := testchild.Start(w.T, "TestTxWorkerProcess", txURL+"="+w.URL, txKind+"="+kind)
	c.Prints("working")
	return c
}

// TestTxWorkerProcess is what the process runs that others kill. Some calls fail.
func TestTxWorkerProcess(t *testing.T) {
	url := os.Getenv(txURL)
	if url == "" {
		t.Skip("run by others")
	}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	config := posthorn.WorkConfig{Concurrency: 2, BatchSize: 20, LeaseFor: time.Hour}
	handle := func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
		if err := affect(ctx, tx, jobs); err != nil {
			return err
		}
		for _, job := range jobs {
			if job.Title == "stuck" && job.Attempt == 1 {
				if err := job.Progress(ctx, "stuck"); err != nil {
					return err
				}
				select {}
			}
		}
		if rand.IntN(10) == 0 {
			return errors.New("no luck")
		}
		return jobs[0].SetResult("done")
	}
	if os.Getenv(txKind) == "WorkTx" {
		ph.WorkTx(mail, config, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
			return handle(ctx, tx, []posthorn.Job{job})
		})
	} else {
		ph.WorkBatchTx(mail, config, handle)
	}
	fmt.Println("\nworking")
	t.Fatal(ph.Run(t.Context()))
}

// What panics, or joins another error, is no answer for single jobs: no job counts as complete for it.
func TestJobErrorsWithinOtherErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() error{
		"panic":  func() error { panic(posthorn.JobErrors{}) },
		"joined": func() error { return errors.Join(posthorn.JobErrors{}, errors.New("nothing was flushed")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail, MaxRetries: posthorn.NoRetries}, posthorn.NewJob{Title: "b", Tags: mail, MaxRetries: posthorn.NoRetries})
			w.WorkBatch(mail, posthorn.WorkConfig{Concurrency: 1}, func(context.Context, []posthorn.Job) error { return answer() })
			w.Start()
			for _, id := range ids {
				w.status(id, admin.JobFailed)
			}
		})
	}
}

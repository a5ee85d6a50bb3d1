package work_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// An attempt leaves out the steps that earlier attempts have saved, and gets their results.
func TestStepsAreMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.charges (job bigint)")
	type charge struct{ ID int }
	var calls []string
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		first, err := posthorn.Step(ctx, job, "first", func(context.Context) (charge, error) {
			calls = append(calls, "first")
			return charge{7}, nil
		})
		if err != nil {
			return err
		}
		booked, err := posthorn.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			calls = append(calls, "book")
			if _, err := tx.Exec(ctx, "insert into public.charges values ($1)", job.ID); err != nil {
				return 0, err
			}
			if job.Attempt == 1 {
				return 0, errors.New("the ledger is closed")
			}
			return first.ID + 1, nil
		})
		if err != nil {
			return err
		}
		if job.Attempt == 2 {
			return errors.New("no luck")
		}
		return job.SetResult([]int{first.ID, booked})
	})
	stop := w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, RetryDelays: []time.Duration{0}})[0]
	if job := w.status(id, "COMPLETED"); string(job.Result) != "[7, 8]" && string(job.Result) != "[7,8]" || job.Attempt != 3 {
		t.Errorf("result %s of attempt %d", job.Result, job.Attempt)
	}
	stop()
	if diff := cmp.Diff([]string{"first", "book", "book"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if n := testworld.Ask[int](w, "select count(*) from public.charges"); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	if n := testworld.Ask[string](w, "select string_agg(name || ' ' || attempt, ', ') from posthorn.job_steps($1)", id); n != "first 1, book 2" {
		t.Errorf("steps: %s", n)
	}
}

// A step whose transaction fails to commit is not saved.
func TestStepIsSavedWithItsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.charges (job bigint unique deferrable initially deferred)")
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := posthorn.StepTx(ctx, job, "book twice", func(ctx context.Context, tx pgx.Tx) (int, error) {
			_, err := tx.Exec(ctx, "insert into public.charges values ($1), ($1)", job.ID)
			return 0, err
		})
		return err
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, MaxRetries: posthorn.NoRetries})[0]
	if job := w.status(id, "FAILED"); !strings.Contains(job.ErrorMessage, "duplicate key") {
		t.Errorf("it failed with: %s", job.ErrorMessage)
	}
	if n := testworld.Ask[int](w, "select count(*) from posthorn.job_steps($1)", id); n != 0 {
		t.Errorf("%d steps are saved", n)
	}
}

// Steps in transactions leave half of the pool's connections to the program, and so to their own functions.
func TestStepsInTransactionsLeaveConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{MaxConns: 4})
	var arrived atomic.Int32
	enough := make(chan struct{})
	ph.Work(mail, posthorn.WorkConfig{Concurrency: 4}, func(ctx context.Context, job posthorn.Job) error {
		arrived.Add(1)
		_, err := posthorn.StepTx(ctx, job, "book", func(ctx context.Context, _ pgx.Tx) (int, error) {
			select {
			case <-enough:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			_, err := ph.Pool().Exec(ctx, "select 1")
			return 0, err
		})
		return err
	})
	testworld.Run(t, ph)
	ids := w.enqueueTitles("1", "2", "3", "4")
	await.True(t, "all have come to their step", func() bool { return arrived.Load() == 4 })
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	for range 20 { // a step that waited for a connection would get it between two of these
		var free []*pgxpool.Conn
		for range 2 {
			conn, err := ph.Pool().Acquire(ctx)
			if err != nil {
				close(enough)
				t.Fatalf("a connection of the program: %v", err)
			}
			free = append(free, conn)
		}
		for _, conn := range free {
			conn.Release()
		}
	}
	close(enough)
	for _, id := range ids {
		w.status(id, "COMPLETED")
	}
}

// A step in a transaction within another one would need two transactions of the pool at once.
func TestStepInAStepIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := posthorn.StepTx(ctx, job, "outer", func(ctx context.Context, _ pgx.Tx) (int, error) {
			return posthorn.StepTx(ctx, job, "inner", func(context.Context, pgx.Tx) (int, error) { return 0, nil })
		})
		return err
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, MaxRetries: posthorn.NoRetries})[0]
	if job := w.status(id, "FAILED"); !strings.Contains(job.ErrorMessage, `step "inner" of job 1 begins within the transaction of another step`) {
		t.Errorf("it failed with: %s", job.ErrorMessage)
	}
}

// A step has one result, and a name is for one step.
func TestStepsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	errs := make(chan error, 4)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		nothing := func(context.Context) (int, error) { return 0, nil }
		_, err := posthorn.Step(ctx, job, "a", nothing)
		errs <- err
		_, err = posthorn.Step(ctx, job, "a", nothing)
		errs <- err
		errs <- job.Sleep(ctx, "a", time.Hour)
		_, err = posthorn.Step(ctx, job, "b", func(context.Context) (string, error) { return strings.Repeat("x", 1<<16), nil })
		errs <- err
		return nil
	})
	w.Start()
	w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail})
	for _, want := range []string{"", `has used the name "a" before`, `has used the name "a" before`, "is longer than 65536 bytes"} {
		if err := <-errs; err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A job that sleeps has no worker, and goes on behind the sleep when its time has come.
func TestJobSleeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slept := make(chan error, 1)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		err := job.Sleep(ctx, "cool down", 24*time.Hour)
		select {
		case slept <- err:
		default:
		}
		return err
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, MaxRetries: posthorn.NoRetries})[0]
	if err := <-slept; err == nil || !strings.Contains(err.Error(), "sleeps until") {
		t.Fatalf("the first sleep: %v", err)
	}
	w.status(id, "PENDING")
	w.TurnClock(25 * time.Hour)
	if job := w.status(id, "COMPLETED"); job.Attempt != 2 || job.RetryCount != 0 {
		t.Errorf("attempt %d, %d failures", job.Attempt, job.RetryCount)
	}
	if story := w.story(id); story != "PICKED SNOOZED PICKED COMPLETED" {
		t.Errorf("its story: %s", story)
	}
}

// A job that waits for an event has no worker. It goes on when the event comes, and when none came in time.
func TestJobAwaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		e, err := job.Await(ctx, "paid", "payment.settled", job.Title, 24*time.Hour)
		if errors.Is(err, posthorn.ErrTimedOut) {
			return job.SetResult("too late")
		} else if err != nil {
			return err
		}
		var cents int
		if err := e.Decode(&cents); err != nil {
			return err
		}
		return job.SetResult(cents)
	})
	w.Start()
	enqueue := func(title string) int64 {
		return w.enqueue(posthorn.NewJob{Title: title, Tags: mail, MaxRetries: posthorn.NoRetries})[0]
	}
	pay := func(key string) {
		if _, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "payment.settled", Key: key, Payload: 1990}); err != nil {
			t.Fatal(err)
		}
	}
	early, late, never := enqueue("early"), enqueue("late"), enqueue("never")
	pay("early")
	w.status(early, "COMPLETED")
	w.Await("select count(*) = 2 from posthorn.waiting_jobs")
	pay("late")
	job := w.status(late, "COMPLETED")
	if string(job.Result) != "1990" || job.Attempt != 2 || job.RetryCount != 0 {
		t.Errorf("result %s of attempt %d, %d failures", job.Result, job.Attempt, job.RetryCount)
	}
	if story := w.story(late); story != "PICKED SNOOZED PICKED COMPLETED" {
		t.Errorf("its story: %s", story)
	}
	w.TurnClock(25 * time.Hour)
	if job := w.status(never, "COMPLETED"); string(job.Result) != `"too late"` {
		t.Errorf("result %s", job.Result)
	}
}

// An attempt that has ended with a sleep has not failed, whatever its handler returns.
func TestSleepingJobHasNotFailed(t *testing.T) {
	t.Parallel()
	var log testworld.Buffer
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: posthorntest.Database(t), Logger: slog.New(slog.NewTextHandler(&log, nil))})}
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		if err := job.Sleep(ctx, "nap", 24*time.Hour); err == nil {
			return nil
		}
		return errors.New("something else")
	})
	stop := w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, MaxRetries: posthorn.NoRetries})[0]
	await.True(t, "the job sleeps", func() bool { return w.story(id) == "PICKED SNOOZED" })
	stop()
	if said := log.String(); strings.Contains(said, "failed") || strings.Contains(said, "lost") {
		t.Errorf("the log says:\n%s", said)
	}
}

// A step whose result cannot be saved is not made again in vain.
func TestStepThatCannotBeSavedIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := posthorn.Step(ctx, job, job.Title, func(context.Context) (string, error) {
			calls.Add(1)
			return strings.Repeat("x", 1<<16), nil
		})
		return err
	})
	w.Start()
	ids := w.enqueue(posthorn.NewJob{Title: "large", Tags: mail, RetryDelays: []time.Duration{0}})
	w.status(ids[0], "FAILED")
	if n := calls.Load(); n != 1 {
		t.Errorf("the step was made %d times", n)
	}
}

// A step that was made is saved, although the time of its handler is over by then.
func TestStepIsSavedInTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		ctx, cancel := context.WithCancel(ctx)
		_, err := posthorn.Step(ctx, job, "charge", func(context.Context) (int, error) {
			cancel()
			return 7, nil
		})
		return err
	})
	w.Start()
	w.status(w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail, MaxRetries: posthorn.NoRetries})[0], "COMPLETED")
}

// Behind a sleep, a handler that goes on all the same makes no step that could not be saved.
func TestNothingIsSavedBehindASleep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	errs := make(chan error, 2)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_ = job.Sleep(ctx, "nap", 24*time.Hour)
		errs <- context.Cause(ctx)
		_, err := posthorn.Step(context.WithoutCancel(ctx), job, "charge", func(context.Context) (int, error) { return 7, nil })
		errs <- err
		return nil
	})
	w.Start()
	w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail})
	if err := <-errs; err == nil || !strings.Contains(err.Error(), "sleeps until") {
		t.Errorf("the context ended with %v", err)
	}
	if err := <-errs; !errors.Is(err, posthorn.ErrLeaseLost) {
		t.Errorf("the step: %v", err)
	}
}

// Progress stays however an attempt ends.
func TestProgressSurvives(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"failure":  "select posthorn.fail_job($1, 'w', 'no', retry_in => '0')",
		"release":  "select posthorn.release_jobs('w', array[$1::bigint])",
		"snooze":   "select posthorn.snooze_job($1, 'w', '0')",
		"reset":    "select posthorn.reset_job($1)",
		"death":    "select posthorn.expire_jobs(posthorn.now() + interval '1 hour') from (select $1::bigint) x",
		"for good": "select posthorn.reset_job((posthorn.fail_job($1, 'w', 'no', permanent => true)).event_id)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.enqueue(posthorn.NewJob{Title: "import", Tags: mail})[0]
			claim := func() int {
				return testworld.Ask[int](w, "select coalesce((progress->>'row')::int, -1) from posthorn.claim_jobs('default', 'w', '{mail}')")
			}
			if row := claim(); row != -1 {
				t.Errorf("progress %d before the first attempt", row)
			}
			w.Exec(`select posthorn.heartbeat_job($1, 'w', progress => '{"row": 500}')`, id)
			for range 2 { // the second attempt reports nothing
				w.Exec(end, id)
				w.Exec("select posthorn.promote_jobs()")
				if row := claim(); row != 500 {
					t.Errorf("progress %d, want 500", row)
				}
			}
			w.Exec("select posthorn.complete_job($1, 'w')", id)
			if job := w.status(id, "COMPLETED"); string(job.Progress) != `{"row": 500}` {
				t.Errorf("progress of the completed job: %s", job.Progress)
			}
		})
	}
}

// A step whose name could not be saved is not made, and a step cannot end its transaction.
func TestStepsAreRefusedBeforeTheirEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.charges (job bigint)")
	errs := make(chan error, 2)
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := posthorn.Step(ctx, job, strings.Repeat("x", 256), func(context.Context) (int, error) {
			t.Error("a step with a name that is too long was made")
			return 0, nil
		})
		errs <- err
		_, err = posthorn.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			if _, err := tx.Exec(ctx, "insert into public.charges values ($1)", job.ID); err != nil {
				return 0, err
			}
			return 0, tx.Commit(ctx)
		})
		errs <- err
		return nil
	})
	stop := w.Start()
	w.enqueue(posthorn.NewJob{Title: "pay", Tags: mail})
	if err := <-errs; !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("a name that is too long: %v", err)
	}
	if err := <-errs; err == nil {
		t.Error("a step has ended its transaction")
	}
	stop()
	if n := testworld.Ask[int](w, "select count(*) from public.charges"); n != 0 {
		t.Errorf("%d charges, want none", n)
	}
}

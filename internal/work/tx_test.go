package work_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Each job has a transaction of its own, also when many of one take follow each other on one
// connection: what a failed attempt has written is rolled back, and nothing else is.
func TestWorkTx(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint, unique (job) deferrable initially deferred)")
	type handler func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error
	var collided atomic.Bool
	kinds := map[string]struct {
		after handler // it has written the effect of the job
		log   string
		fails string
	}{
		"plain":  {log: "PICKED COMPLETED"},
		"result": {after: func(_ context.Context, _ pgx.Tx, job posthorn.Job) error { return job.SetResult("sent") }, log: "PICKED COMPLETED"},
		"retried": {after: func(_ context.Context, _ pgx.Tx, job posthorn.Job) error {
			if job.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		}, log: "PICKED FAILED PICKED COMPLETED"},
		"collides": {after: func(ctx context.Context, tx pgx.Tx, _ posthorn.Job) error {
			if collided.Swap(true) {
				return nil
			}
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$")
			return err
		}, log: "PICKED COMPLETED"},
		"final": {after: func(context.Context, pgx.Tx, posthorn.Job) error {
			return posthorn.Permanent(errors.New("no such order"))
		}, fails: "no such order"},
		"swallows": {after: func(ctx context.Context, tx pgx.Tx, _ posthorn.Job) error {
			_, _ = tx.Exec(ctx, "select 1 / 0")
			return nil
		}, fails: "a statement failed in the transaction"},
		"constraint": {after: func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
			return affect(ctx, tx, []posthorn.Job{job})
		}, fails: "effects_job_key"},
		"useless result": {after: func(_ context.Context, _ pgx.Tx, job posthorn.Job) error {
			return job.SetResult("\x00")
		}, fails: "a result cannot be saved"},
		"panics": {after: func(context.Context, pgx.Tx, posthorn.Job) error { panic("oh") }, fails: "oh"},
		"ends it": {after: func(ctx context.Context, tx pgx.Tx, _ posthorn.Job) error {
			return tx.Commit(ctx)
		}, fails: "committed or rolled back by whether"},
		"completes": {after: func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
			return job.Complete(ctx, tx)
		}, fails: "is handled in a transaction that completes it"},
		"sleeps": {after: func(ctx context.Context, _ pgx.Tx, job posthorn.Job) error {
			return job.Sleep(ctx, "cool down", time.Hour)
		}, fails: "does not allow Job.Sleep"},
		"steps": {after: func(ctx context.Context, _ pgx.Tx, job posthorn.Job) error {
			_, err := posthorn.Step(ctx, job, "charge", func(context.Context) (int, error) { return 1, nil })
			return err
		}, fails: "does not allow a step"},
	}
	var news []posthorn.NewJob
	for title, kind := range kinds {
		retries := 2
		if kind.fails != "" {
			retries = posthorn.NoRetries
		}
		for range 3 {
			news = append(news, posthorn.NewJob{Title: title, Tags: mail, MaxRetries: retries, RetryDelays: []time.Duration{0}})
		}
	}
	ids := w.enqueue(news...)
	w.WorkTx(mail, posthorn.WorkConfig{Concurrency: 2}, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
		after := kinds[job.Title].after
		if err := affect(ctx, tx, []posthorn.Job{job}); err != nil || after == nil {
			return err
		}
		return after(ctx, tx, job)
	})
	w.Start()
	var done []int64
	for i, id := range ids {
		title := news[i].Title
		kind, status := kinds[title], admin.JobCompleted
		if kind.fails != "" {
			kind.log, status = "PICKED FAILED", admin.JobFailed
		}
		job := w.status(id, status)
		if s := w.story(id); s != kind.log || !strings.Contains(job.ErrorMessage, kind.fails) {
			t.Errorf("%s: the log says %s, and the job failed with %q", title, s, job.ErrorMessage)
		}
		if title == "result" && string(job.Result) != `"sent"` {
			t.Errorf("the result is %s", job.Result)
		}
		if job.Status == admin.JobCompleted {
			done = append(done, id)
		}
	}
	w.wantEffects(done...)
}

// A job that is cancelled while its handler runs has no effect, and neither has one that this attempt
// has completed already. The jobs of the same take have theirs.
func TestJobIsLostInItsTransaction(t *testing.T) {
	t.Parallel()
	for status, end := range map[string]string{
		admin.JobCancelled: "select posthorn.cancel_job($1, 'not needed')",
		admin.JobCompleted: "select posthorn.complete_job(job, worker, attempt) from posthorn.running_jobs where job = $1",
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Exec("create table public.effects (job bigint)")
			ids := w.enqueueTitles("a", "lost", "b")
			w.WorkTx(mail, alone, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
				if err := affect(ctx, tx, []posthorn.Job{job}); err != nil || job.Title != "lost" {
					return err
				}
				_, err := w.Pool().Exec(ctx, end, job.ID)
				return err
			})
			w.Start()
			w.status(ids[1], status)
			w.status(ids[0], admin.JobCompleted)
			w.status(ids[2], admin.JobCompleted)
			w.wantEffects(ids[0], ids[2])
		})
	}
}

// A transaction that begins for the next job does not wait for it: while the handler of the last job of
// a take runs, no other transaction of the client is open.
func TestNoTransactionWaitsForAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint)")
	ids := w.enqueueTitles("a", "b", "last")
	reached, release := make(chan bool), make(chan bool)
	w.WorkTx(mail, posthorn.WorkConfig{Concurrency: 3}, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
		if job.Title == "last" {
			reached <- true
			<-release
		}
		return affect(ctx, tx, []posthorn.Job{job})
	})
	w.Start()
	await.Value(t, "the last job", reached)
	defer close(release)
	for _, id := range ids[:2] {
		w.status(id, admin.JobCompleted)
	}
	await.True(t, "one transaction is open", func() bool {
		return testworld.Ask[int](w, "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'") == 1
	})
}

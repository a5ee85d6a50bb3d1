package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// handleTogether calls the handler with all jobs of a batch. It returns false if they have
// to be handled one by one.
func (k *kind) handleTogether(work context.Context, w *worker.Worker, jobs []*Job) bool {
	if len(jobs) == 1 {
		return false
	}
	ctx, cancel := k.batchContext(work, jobs)
	defer cancel()
	t := k.transactions()
	defer t.end(work)
	err := k.call(work, ctx, t, jobs)
	failed, whole := failuresOf(jobs, err)
	if whole == nil && k.Transactions != nil {
		whole = err // it has rolled back the effects of all jobs
	}
	if whole != nil {
		if work.Err() == nil {
			k.failing.Report(false, "a batch of jobs failed; its jobs are handled one by one", withStack(whole, "jobs", len(jobs), "error", whole)...)
		}
		return false
	}
	k.freeRoom(len(jobs))
	w.SideBySide(context.WithoutCancel(work), len(jobs), func(i int) { k.end(work, jobs[i], failed[jobs[i].ID]) })
	return true
}

// batchContext returns the context of a call with several jobs. It ends with work, and when
// all jobs are lost. A transaction cannot commit without one of them, so there it ends with
// the first.
func (k *kind) batchContext(work context.Context, jobs []*Job) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(work)
	var left atomic.Int64
	left.Store(int64(len(jobs)))
	if k.Transactions != nil {
		left.Store(1)
	}
	forget := make([]func() bool, len(jobs))
	for i, j := range jobs {
		forget[i] = context.AfterFunc(j.Context(), func() {
			if left.Add(-1) == 0 {
				end(context.Cause(j.Context()))
			}
		})
	}
	return ctx, func() {
		for _, stop := range forget {
			stop()
		}
		end(nil)
	}
}

// jobErrors is the error of a handler of batches when some jobs failed.
type jobErrors interface {
	error
	FailedJobs() map[int64]error
}

// namedErrors returns the errors of single jobs that an error is or wraps. What is joined with another
// error, or panics, is an error of the whole call.
func namedErrors(err error) jobErrors {
	if _, panicked := errors.AsType[*worker.PanicError](err); panicked {
		return nil
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if named, ok := err.(jobErrors); ok { //nolint:errorlint // not within joined errors
			return named
		}
	}
	return nil
}

// failuresOf returns the errors of single jobs that the error of a call names, or else the
// error of the whole call.
func failuresOf(jobs []*Job, err error) (failed map[int64]error, whole error) {
	named := namedErrors(err)
	if named == nil {
		return nil, err
	}
	called := make(map[int64]bool, len(jobs))
	for _, j := range jobs {
		called[j.ID] = true
	}
	failed = named.FailedJobs()
	for id := range failed {
		if !called[id] {
			return nil, fmt.Errorf("the handler has named job %d in its JobErrors, but did not get that job in this call: %w", id, err)
		}
	}
	return failed, nil
}

// errorOf returns the error of a job from the error of a call with that job alone.
func (k *kind) errorOf(one []*Job, err error) error {
	if !k.Batches {
		return err
	}
	failed, whole := failuresOf(one, err)
	own := failed[one[0].ID]
	switch {
	case whole != nil:
		return whole
	case own == nil && k.Transactions != nil:
		return err // whatever it names, the effect is rolled back
	}
	return own
}

// noteWaiting notes progress of jobs that wait for their turn after a batch failed: other
// jobs go on, so these are not stuck.
func noteWaiting(jobs []*Job) {
	for _, j := range jobs {
		j.Step()
	}
}

// tries is the number of attempts of a transaction that collides with others.
const tries = 5

// call calls the handler with jobs. A handler with a transaction is called again after a
// collision. If the database did not commit for a reason that is not the handler's, the jobs
// have ended: they go back, except for those that the transaction has completed after all.
func (k *kind) call(work, ctx context.Context, t *transactions, jobs []*Job) error {
	if t == nil {
		return k.callIn(ctx, nil, jobs)
	}
	var handlerErr error
	err := worker.Retry{Collisions: tries}.Do(ctx, func(ctx context.Context) (err error) {
		handlerErr, err = k.transact(ctx, t, jobs)
		if pg.IsCollision(handlerErr) {
			return handlerErr
		}
		return err
	})
	switch {
	case err == nil:
		k.opening.Over()
		return handlerErr
	case errors.Is(err, pg.ErrLeaseLost):
		k.compare(work, jobs)
		return err
	case pg.IsCollision(err), pg.IsFinal(err), ctx.Err() != nil && work.Err() == nil:
		return err
	}
	if work.Err() == nil {
		k.opening.Report(err)
	}
	worker.Pause(work, worker.TroubleWait) // while the jobs are held: others would have the same trouble
	k.giveBack(work, jobs, "the database could not run the transaction")
	return nil
}

// transactions are those in which one goroutine calls the handler, one after another. nil: the
// handler gets none.
type transactions struct {
	*worker.Pipeline
	more bool // another call follows at once, most likely: its transaction begins in the round trip of the commit
}

func (k *kind) transactions() *transactions {
	if k.Transactions == nil {
		return nil
	}
	return &transactions{Pipeline: k.Transactions.Pipeline(k.LeaseFor)}
}

// before notes whether another call follows the next one.
func (t *transactions) before(more bool) *transactions {
	if t != nil {
		t.more = more
	}
	return t
}

func (t *transactions) end(ctx context.Context) {
	if t != nil {
		t.End(ctx)
	}
}

// transact calls the handler in a transaction, which also completes the jobs. It returns an
// error of the handler, or one of the database.
func (k *kind) transact(ctx context.Context, t *transactions, jobs []*Job) (handlerErr, err error) {
	defer func() {
		if handlerErr != nil || err != nil {
			t.End(ctx)
		}
	}()
	if err := t.Begin(ctx); err != nil {
		return nil, err
	}
	if err := t.Run(func(tx pgx.Tx) error { return k.callIn(ctx, tx, jobs) }); err != nil {
		return err, nil
	}
	ctx, cancel := worker.Outlast(ctx, k.LeaseFor) // what the handler has done may still commit
	defer cancel()
	all := func(*Job) bool { return true }
	return worker.Blame(k.settleOnce(ctx, jobs, all, func(ctx context.Context) error {
		_, err := t.Commit(ctx, pg.Ending{Jobs: k.endingOf(jobs), LeaseFor: k.LeaseFor, Another: t.more})
		if errors.Is(err, pg.ErrInvalid) {
			err = &worker.PermanentError{Err: fmt.Errorf("a result cannot be saved: %w", err)}
		}
		return err
	}))
}

// endingOf is the completion of jobs in the transaction of their handler.
func (k *kind) endingOf(jobs []*Job) *pg.JobsEnding {
	results := make([]json.RawMessage, len(jobs))
	for i, j := range jobs {
		results[i] = j.answer()
	}
	return &pg.JobsEnding{Worker: k.Worker, Done: doneJobs(jobs), Results: results}
}

// mayCallAgain reports whether the handler may be called again for a job in one attempt.
func (k *kind) mayCallAgain() bool { return k.Batches || k.Transactions != nil }

// refuse refuses a call that ends or keeps a part of a job by itself.
func (j *Job) refuse(call string) error {
	handled := "in a transaction that completes it"
	if j.kind.Batches {
		handled = "in a batch"
	}
	return pg.Invalid(fmt.Sprintf("job %d is handled %s, which does not allow %s", j.ID, handled, call),
		"Handle jobs that need it with Client.Work.")
}

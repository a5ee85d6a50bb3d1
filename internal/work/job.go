package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Job is a job in the hands of this process.
type Job struct {
	pg.ClaimedJob
	worker *engine
	ctx    context.Context // ends when the job is lost, or there is no more time
	end    context.CancelCauseFunc
	took   time.Duration

	mu     sync.Mutex
	state  state
	began  time.Time
	noted  bool // that it has begun is in the log
	result json.RawMessage
}

// state is where a job is on its way.
type state int

const (
	waiting   state = iota // for a handler
	running                // in one
	reporting              // its end is being recorded
	lost                   // others have it, or nobody
)

func newJob(work context.Context, w *engine, claimed pg.ClaimedJob) *Job {
	j := &Job{ClaimedJob: claimed, worker: w}
	j.ctx, j.end = context.WithCancelCause(work)
	return j
}

// move reports whether the job was in one state, and is in the other now.
func (j *Job) move(from, to state) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != from {
		return false
	}
	j.state = to
	if to == running {
		j.began = time.Now()
	} else {
		j.worker.open.Add(-1)
	}
	return true
}

// runsFor is how long the handler has been at it; 0 if it is not.
func (j *Job) runsFor() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != running {
		return 0
	}
	return time.Since(j.began)
}

func (j *Job) held() pg.HeldJob {
	return pg.HeldJob{ID: j.ID, Worker: j.worker.Worker, Attempt: j.Attempt}
}

// SetResult keeps what is recorded with the end of the job, if it ends well.
func (j *Job) SetResult(result json.RawMessage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = result
}

func (j *Job) answer() json.RawMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result
}

// Progress notes how far the handler is. It fails with [pg.ErrLeaseLost] when the
// job was taken away.
func (j *Job) Progress(ctx context.Context, progress json.RawMessage) error {
	_, err := pg.HeartbeatJob(ctx, j.worker.Pool, j.held(), j.worker.LeaseFor, progress)
	if errors.Is(err, pg.ErrLeaseLost) {
		j.worker.lose(j)
	}
	return err
}

// Complete finishes the job in a transaction of the caller's: it is done if and
// only if that commits.
func (j *Job) Complete(ctx context.Context, db pg.DB) error {
	j.mu.Lock()
	took, result := time.Since(j.began).Milliseconds(), j.result
	j.mu.Unlock()
	_, err := pg.CompleteJob(ctx, db, j.held(), pg.JobDone{ExecutionTimeMS: &took, Result: result})
	return err
}

// handle runs the handler, and sees to it that its answer is recorded.
func (w *engine) handle(work context.Context, j *Job) {
	if !j.move(waiting, running) {
		w.forget(j)
		return
	}
	ctx := w.Observe.Handling(j.ctx, &j.ClaimedJob)
	started := time.Now()
	err := w.call(ctx, j)
	j.took = time.Since(started)
	w.pace.took(j.took)
	w.Observe.Handled(ctx, &j.ClaimedJob, j.took, err)
	switch {
	case !j.move(running, reporting): // lost: what it did counts for nothing here
		w.forget(j)
	case err == nil && j.answer() == nil:
		w.done.add(j)
		w.look()
	case err == nil:
		w.completeOne(work, j)
	case work.Err() != nil: // our own hurry is no failure of the job's
		w.giveBack(work, []*Job{j})
	default:
		w.fail(work, j, failureOf(err))
	}
}

var errTimeout = errors.New("the handler has used up its time")

// call runs the handler. A panic is an error, and so is a handler that comes too
// late.
func (w *engine) call(ctx context.Context, j *Job) (err error) {
	if w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Timeout, errTimeout)
		defer cancel()
	}
	defer func() {
		if value := recover(); value != nil {
			err = &worker.PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == errTimeout {
			err = fmt.Errorf("%w of %v: %w", errTimeout, w.Timeout, err)
		}
	}()
	return w.Handle(ctx, j)
}

// longest is how long a retry may be put off.
const longest = 10 * 365 * 24 * time.Hour

// failureOf turns a handler's error into what the database understands.
func failureOf(err error) pg.JobFailure {
	f := pg.JobFailure{Error: worker.Clip(err.Error())}
	if _, ok := errors.AsType[*worker.PermanentError](err); ok {
		f.Permanent = true
	} else if retry, ok := errors.AsType[*worker.RetryError](err); ok {
		after := min(retry.After, longest)
		f.RetryIn = &after
	}
	if panicked, ok := errors.AsType[*worker.PanicError](err); ok {
		f.Error += "\n\n" + worker.Clip(string(panicked.Stack))
	}
	return f
}

func (w *engine) fail(work context.Context, j *Job, f pg.JobFailure) {
	took := j.took.Milliseconds()
	f.ExecutionTimeMS = &took
	var report pg.JobReport
	err := w.insist(work, "cannot record a failure yet", []*Job{j}, func(ctx context.Context) (err error) {
		report, err = pg.FailJob(ctx, w.Pool, j.held(), f)
		return err
	})
	w.settled(j, err)
	if err == nil {
		w.Observe.Failed(&j.ClaimedJob, report.NextRetryAt == nil)
	}
}

// settled ends what there is to do with a job whose end was recorded, or could
// not be.
func (w *engine) settled(j *Job, err error) {
	switch {
	case errors.Is(err, pg.ErrLeaseLost):
		w.tellLost(j)
	case err != nil:
		w.Log.Error("the end of a job was not recorded; it comes again when its lease has passed", "job", j.ID, "error", err)
	}
	w.forget(j)
}

// lose ends the handler of a job that others have, or nobody.
func (w *engine) lose(j *Job) {
	if j.move(running, lost) || j.move(waiting, lost) {
		w.tellLost(j)
		j.end(pg.ErrLeaseLost)
	}
}

func (w *engine) tellLost(j *Job) {
	w.Observe.LeaseLost()
	w.Log.Warn("job lost: it was cancelled, reset or taken by others", "job", j.ID, "attempt", j.Attempt)
}

package work

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Job is a job that this process has.
type Job struct {
	worker.Hold
	pg.ClaimedJob
	kind  *kind
	took  time.Duration
	noted bool // the log has its start; used by the heartbeat

	reported atomic.Bool // it was reported as lost

	mu     sync.Mutex
	began  time.Time // in a handler
	ending bool      // a transaction of the handler finishes it
	result json.RawMessage
}

// begin notes that a handler has the job.
func (j *Job) begin() {
	j.mu.Lock()
	j.began = time.Now()
	j.mu.Unlock()
	j.Step()
	j.kind.heartbeat.Hasten(j, noteAfter)
}

// state returns how long a handler has had the job, and whether a transaction of the
// handler finishes it.
func (j *Job) state() (running time.Duration, ending bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.began.IsZero() {
		running = time.Since(j.began)
	}
	return running, j.ending
}

func (j *Job) fence() pg.HeldJob {
	return pg.HeldJob{ID: j.ID, Worker: j.kind.Worker, Attempt: j.Attempt}
}

// SetResult sets the result that is saved when the job completes.
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

// Progress records the progress of the handler. It fails with [pg.ErrLeaseLost] if the job
// was taken away.
func (j *Job) Progress(ctx context.Context, progress json.RawMessage) error {
	asked := time.Now()
	err := j.Settle(func() (bool, error) {
		_, err := pg.HeartbeatJob(ctx, j.kind.Pool, j.fence(), &j.kind.LeaseFor, progress)
		if err == nil {
			j.Extended(asked, j.kind.LeaseFor)
		}
		return false, err
	})
	j.kind.reportLost(j, err)
	return err
}

// Complete completes the job in a transaction of the caller: the job is done if and only
// if that commits. After the call the lease is not extended: a heartbeat would wait for
// that transaction, and then not find the job. It fails with [pg.ErrLeaseLost] if the job
// was taken away.
func (j *Job) Complete(ctx context.Context, db pg.DB) error {
	j.mu.Lock()
	took, result := time.Since(j.began).Milliseconds(), j.result
	j.ending = true
	j.mu.Unlock()
	_, err := pg.CompleteJob(ctx, db, j.fence(), pg.JobDone{ExecutionTimeMS: &took, Result: result})
	if errors.Is(err, pg.ErrLeaseLost) {
		j.mu.Lock()
		j.ending = false
		j.mu.Unlock()
	}
	return err
}

// handle calls the handler, and records the result.
func (k *kind) handle(work context.Context, j *Job) {
	if j.Lost() {
		k.freeRoom(1)
		k.forget(j)
		return
	}
	j.begin()
	ctx := k.Observe.Handling(j.Context(), &j.ClaimedJob)
	began := time.Now()
	err := worker.Call(ctx, began, k.Timeout, func(ctx context.Context) error { return k.Handle(ctx, j) })
	j.took = time.Since(began)
	k.duration.add(j.took)
	k.Observe.Handled(ctx, &j.ClaimedJob, j.took, err)
	k.freeRoom(1)
	snooze, snoozed := errors.AsType[*worker.ReleaseError](err)
	switch {
	case j.Lost(): // another worker has it, or it has ended
		k.forget(j)
	case err == nil && j.answer() == nil:
		k.done.add(j)
	case err == nil:
		k.completeOne(work, j)
	case work.Err() != nil: // a handler that this process has interrupted has not failed
		k.giveBack(work, []*Job{j})
	case snoozed:
		k.snooze(work, j, snooze)
	default:
		k.fail(work, j, err)
	}
}

// snooze puts the job off, as the handler asked.
func (k *kind) snooze(work context.Context, j *Job, request *worker.ReleaseError) {
	k.settled(j, k.settleOne(work, j, func(ctx context.Context) error {
		_, err := pg.SnoozeJob(ctx, k.Pool, j.fence(), min(request.After, longest), worker.Clip(request.Error()))
		return err
	}))
}

// longest is the longest delay of a retry or a snooze.
const longest = 10 * 365 * 24 * time.Hour

// failureOf returns the failure that the database records for a handler's error.
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

func (k *kind) fail(work context.Context, j *Job, cause error) {
	k.recordFailure(work, j, failureOf(cause), cause)
}

func (k *kind) recordFailure(work context.Context, j *Job, f pg.JobFailure, cause error) {
	took := j.took.Milliseconds()
	f.ExecutionTimeMS = &took
	var report pg.JobReport
	err := k.settleOne(work, j, func(ctx context.Context) (err error) {
		report, err = pg.FailJob(ctx, k.Pool, j.fence(), f)
		return err
	})
	k.settled(j, err)
	if err != nil || j.Lost() {
		return
	}
	dead := report.NextRetryAt == nil
	k.Observe.Failed(&j.ClaimedJob, dead)
	attributes := []any{"job", j.ID, "title", j.Title, "attempt", j.Attempt, "error", cause}
	if panicked, ok := errors.AsType[*worker.PanicError](cause); ok {
		attributes = append(attributes, "stack", string(panicked.Stack))
	}
	if dead {
		k.failing.Report(true, "a job failed for good", attributes...)
	} else {
		k.failing.Report(false, "a job failed and is tried again", append(attributes, "next_attempt", *report.NextRetryAt)...)
	}
}

// settleOne is settle for one job, which has ended if the function succeeds.
func (k *kind) settleOne(work context.Context, j *Job, record func(ctx context.Context) error) error {
	ctx, cancel := worker.Outlast(work, k.LeaseFor)
	defer cancel()
	return k.settling.Do(ctx, func(ctx context.Context) error {
		return j.Settle(func() (bool, error) {
			return true, k.Observe.Settle(ctx, []*pg.ClaimedJob{&j.ClaimedJob}, record)
		})
	})
}

// settled ends the keeping of a job after an attempt to record its end.
func (k *kind) settled(j *Job, err error) {
	_, ending := j.state()
	switch {
	case errors.Is(err, pg.ErrLeaseLost) && ending:
		k.Log.Warn("a handler completed its job in a transaction and returned an error: the job is completed, or was taken away if that transaction did not commit", "job", j.ID, "attempt", j.Attempt)
	case errors.Is(err, pg.ErrLeaseLost):
		k.reportLost(j, err)
	case err != nil:
		k.Log.Error("the end of a job was not recorded; it comes again when its lease has passed", "job", j.ID, "error", err)
	}
	k.forget(j)
}

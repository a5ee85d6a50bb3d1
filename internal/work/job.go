package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

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
	asleep bool      // the attempt has ended: it goes on later
	result json.RawMessage
	steps  map[string]json.RawMessage // that earlier attempts saved; nil before they are decoded
	named  map[string]bool            // the steps and sleeps of this attempt
	fresh  int                        // those of them that no earlier attempt has saved
}

// begin notes that a handler has the job. A job of a batch may begin again, alone.
func (j *Job) begin() {
	j.mu.Lock()
	j.began = time.Now()
	j.result, j.named, j.fresh = nil, nil, 0
	j.mu.Unlock()
	j.Step()
	if !j.kind.Batches {
		j.kind.heartbeat.Hasten(j, noteAfter)
	}
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

// LeaseFor returns the length of the job's lease.
func (j *Job) LeaseFor() time.Duration { return j.kind.LeaseFor }

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
		if pg.IsCommitted(err) {
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
	if j.kind.mayCallAgain() {
		return j.refuse("Job.Complete")
	}
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

// Recall begins a step: it returns the result that an earlier attempt has saved, if one has. It
// fails if a result under this name could not be saved, and where the handler may be called
// again in one attempt.
func (j *Job) Recall(name string) (result json.RawMessage, saved bool, err error) {
	if j.kind.mayCallAgain() {
		return nil, false, j.refuse("a step")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.use(name); err != nil {
		return nil, false, err
	}
	result, saved = j.steps[name]
	return result, saved, nil
}

// mostSteps is how many steps and sleeps a job may have.
const mostSteps = 1000

// use notes the name of a step or a sleep. The caller holds the lock.
func (j *Job) use(name string) error {
	if j.steps == nil && len(j.Steps) > 0 {
		if err := json.Unmarshal(j.Steps, &j.steps); err != nil {
			return fmt.Errorf("steps of job %d: %w", j.ID, err)
		}
	}
	_, saved := j.steps[name]
	switch {
	case j.named[name]:
		return pg.Invalid(fmt.Sprintf("job %d has used the name %q before in this attempt", j.ID, name),
			"Each step and each sleep of a job needs a name of its own. In a loop, put the number of the round into it; to repeat an effect, do so within its step.")
	case name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return pg.Invalid(fmt.Sprintf("%.100q is no name of a step", name), "Use a few words that say what it does, such as charge.")
	case !saved && len(j.steps)+j.fresh >= mostSteps:
		return pg.Invalid(fmt.Sprintf("job %d has %d steps already", j.ID, mostSteps),
			"Let a step do more, for instance 1,000 rows rather than one, and report the rest as progress.")
	}
	if j.named == nil {
		j.named = map[string]bool{}
	}
	if j.named[name] = true; !saved {
		j.fresh++
	}
	return nil
}

// SaveStep saves the result of a step, in a transaction of the caller if there is one. It fails with
// [pg.ErrLeaseLost] if the attempt has ended.
func (j *Job) SaveStep(ctx context.Context, tx pg.DB, name string, result json.RawMessage) error {
	if tx != nil {
		_, err := pg.SaveStep(ctx, tx, j.fence(), name, result)
		return err
	}
	return j.report(ctx, func(ctx context.Context) (bool, error) {
		_, err := pg.SaveStep(ctx, j.kind.Pool, j.fence(), name, result)
		return false, err
	})
}

// Sleep ends the attempt, unless the sleep with this name is over. The job goes on after d. The
// error then tells the handler to return, and the context of the job ends. It fails in a
// transaction that completes the job.
func (j *Job) Sleep(ctx context.Context, name string, d time.Duration) error {
	if j.kind.Transactions != nil {
		return j.refuse("Job.Sleep")
	}
	j.mu.Lock()
	err := j.use(name)
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return j.suspend(ctx, "sleeps", func(ctx context.Context) (until *time.Time, err error) {
		return pg.SleepJob(ctx, j.kind.Pool, j.fence(), name, min(max(d, 0), longest))
	})
}

// Await returns the first event of a type and key since the job was enqueued. If there is none, it ends
// the attempt as Sleep does, and the job goes on when the event comes, or after the timeout.
func (j *Job) Await(ctx context.Context, a pg.Await) (came pg.Awaited, err error) {
	if j.kind.Transactions != nil {
		return came, j.refuse("Job.Await")
	}
	j.mu.Lock()
	err = j.use(a.Name)
	j.mu.Unlock()
	if err != nil {
		return came, err
	}
	a.Timeout = min(max(a.Timeout, 0), longest)
	err = j.suspend(ctx, "waits for "+a.Type+" of "+a.Key, func(ctx context.Context) (until *time.Time, err error) {
		came, err = pg.AwaitEvent(ctx, j.kind.Pool, j.fence(), a)
		return came.WaitsUntil, err
	})
	return came, err
}

// suspend reports that the attempt ends for a while. The call returns until when at most; nil: the
// attempt goes on.
func (j *Job) suspend(ctx context.Context, does string, call func(ctx context.Context) (until *time.Time, err error)) error {
	var asleep error
	err := j.report(ctx, func(ctx context.Context) (over bool, err error) {
		until, err := call(ctx)
		if pg.IsCommitted(err) && until != nil {
			asleep = &worker.ReleaseError{After: time.Until(*until), Err: fmt.Errorf("job %d %s until %s", j.ID, does, until.UTC().Format(time.RFC3339))}
			j.mu.Lock()
			j.asleep = true
			j.mu.Unlock()
			j.Gone(asleep)
		}
		return asleep != nil, err
	})
	return cmp.Or(asleep, err)
}

// report calls a function that reports on the job, also when ctx has ended by now, and repeats it after
// temporary errors while the job may be held. The function tells whether it has ended the attempt.
// report fails with [pg.ErrLeaseLost] if the attempt had ended before, or may have.
func (j *Job) report(ctx context.Context, call func(ctx context.Context) (over bool, err error)) error {
	ctx, cancel := worker.Outlast(ctx, j.kind.LeaseFor)
	defer cancel()
	err := j.kind.settling.Do(ctx, func(ctx context.Context) error {
		err := fmt.Errorf("the attempt at job %d has ended: %w", j.ID, pg.ErrLeaseLost) // unless the call is made
		_ = j.Settle(func() (over bool, _ error) {
			over, err = call(ctx)
			return over, err
		})
		return err
	})
	if !j.sleeps() {
		j.kind.reportLost(j, err)
	}
	return err
}

func (j *Job) sleeps() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asleep
}

// hasEnded reports whether the attempt has ended before its handler has: the job is lost or
// asleep, or its batch or transaction was completed or given back.
func (j *Job) hasEnded() bool { return j.Lost() || j.sleeps() || j.kind.mayCallAgain() && j.Over() }

// handle calls the handler with one job, and records the result.
func (k *kind) handle(work context.Context, t *transactions, one []*Job) {
	j := one[0]
	if j.hasEnded() {
		k.freeRoom(1)
		k.forget(j)
		return
	}
	err := k.call(work, j.Context(), t, one)
	k.freeRoom(1)
	k.end(work, j, k.errorOf(one, err))
}

// callIn calls the handler with jobs, between Handling and Handled of the observer.
func (k *kind) callIn(ctx context.Context, tx pgx.Tx, jobs []*Job) error {
	for _, j := range jobs {
		j.begin()
	}
	claimed := claimedOf(jobs)
	ctx = k.Observe.Handling(ctx, claimed)
	began := time.Now()
	err := worker.CallTx(ctx, began, k.Timeout, tx, func(ctx context.Context) error { return k.Handle(ctx, tx, jobs) })
	took := time.Since(began)
	for _, j := range jobs {
		j.took = took
	}
	k.duration.add(took)
	k.Observe.Handled(ctx, claimed, took, err)
	return err
}

// end records the result of a job's handler.
func (k *kind) end(work context.Context, j *Job, err error) {
	snooze, snoozed := errors.AsType[*worker.ReleaseError](err)
	switch {
	case j.hasEnded():
		k.forget(j)
	case err == nil && j.answer() == nil:
		k.done.add(j)
	case err == nil:
		k.completeOne(work, j)
	case work.Err() != nil: // a handler that this process has interrupted has not failed
		k.giveBack(work, []*Job{j}, toldToStop)
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
const longest = 3600 * 24 * time.Hour // the 10 years of Postgres, whose months have 30 days

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
	k.Observe.Failed(dead)
	attributes := withStack(cause, "job", j.ID, "title", j.Title, "attempt", j.Attempt, "error", cause)
	if dead {
		k.failing.Report(true, "a job failed for good", attributes...)
	} else {
		k.failing.Report(false, "a job failed and is tried again", append(attributes, "next_attempt", *report.NextRetryAt)...)
	}
}

// withStack adds the stack of a panic to the attributes of a log message.
func withStack(err error, attributes ...any) []any {
	if panicked, ok := errors.AsType[*worker.PanicError](err); ok {
		attributes = append(attributes, "stack", string(panicked.Stack))
	}
	return attributes
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

package posthorn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/internal/worker"
)

// NewJob is a job to be enqueued: work for exactly one worker. Only Title is required.
type NewJob struct {
	// Title describes the work in a few words.
	Title string
	// Description is a longer text for people.
	Description string
	// Tags select the workers: a worker takes jobs that have one of its tags. A job
	// without tags is for workers without tags.
	Tags []string
	// Payload is any value that encodes as JSON, with [Config].Encode. A
	// [json.RawMessage] or []byte must be JSON already. Default: {}.
	Payload any
	// Priority: jobs with a higher priority are taken first. Default: 0.
	Priority int
	// RunAt is the earliest time of the first attempt. Default: at once.
	RunAt time.Time
	// MaxRetries is the number of failures after which the job has failed. Default: 3.
	// With [NoRetries] the first failure is the last one.
	MaxRetries int
	// RetryDelays are the delays before further attempts; the last one repeats. Default:
	// 5 minutes.
	RetryDelays []time.Duration
	// UniqueKey: while a job with the same key is pending, no other job is enqueued. With
	// UniqueFor, no other job is enqueued for that time, even if the first one is done.
	UniqueKey string
	UniqueFor time.Duration
	// FairKey: under each tag, jobs of the same priority take turns by their keys. A key
	// with many jobs does not keep the jobs of other keys waiting. Weight is its share: a
	// key with weight 2 gets twice as many turns as one with 1, the default.
	FairKey string
	Weight  float64
	// Metadata is stored with the job, encoded as JSON. The client adds the trace
	// context, and the node's id as producer; a producer of nil leaves it out.
	Metadata map[string]any
	// After are the ids of jobs of the namespace, up to 10,000: no worker gets the job
	// before all of them are COMPLETED. A job that fails for good, or is cancelled, keeps it
	// waiting. Once the failed job is retried and completes, it goes on.
	After []int64
}

// NoRetries, as [NewJob].MaxRetries, allows one attempt.
const NoRetries = -1

// Enqueue writes jobs, in order and in one round trip, and returns their ids. If db is a
// transaction, the jobs exist if and only if it commits, and no worker takes them
// before.
//
// For a UniqueKey that is in use, the id is that of the existing job. Workers do not take
// that job before the transaction has ended, so its handler sees the changes of the
// transaction.
func (c *Client) Enqueue(ctx context.Context, db DB, jobs ...NewJob) ([]int64, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	ctx, span := c.telemetry.Enqueueing(ctx, len(jobs))
	encoded, err := c.encodeJobs(ctx, jobs)
	if err != nil {
		err = fmt.Errorf("enqueue: %w", err)
		span.End(nil, false, err)
		return nil, err
	}
	ids, err := pg.EnqueueMany(ctx, db, c.namespace, encoded)
	span.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.logWatch.Announce(logwatch.Jobs)
	return ids, nil
}

func (c *Client) encodeJobs(ctx context.Context, jobs []NewJob) ([]pg.NewJob, error) {
	encoded := make([]pg.NewJob, len(jobs))
	metadata := c.metadataEncoder(ctx)
	for i := range jobs {
		j := &jobs[i]
		encoded[i] = pg.NewJob{
			Title: j.Title, Description: j.Description, Tags: j.Tags, Priority: j.Priority, RetryDelays: j.RetryDelays,
			UniqueKey: j.UniqueKey, UniqueFor: j.UniqueFor, FairKey: j.FairKey, Weight: j.Weight, After: j.After,
		}
		if !j.RunAt.IsZero() {
			encoded[i].RunAt = &j.RunAt
		}
		if j.MaxRetries != 0 {
			retries := max(j.MaxRetries, 0)
			encoded[i].MaxRetries = &retries
		}
		var err error
		if encoded[i].Payload, err = c.encodePayload(j.Payload); err != nil {
			return nil, invalid(fmt.Sprintf("job %d (%s): payload: %v", i, j.Title, err), "Give a value that encodes as JSON.")
		}
		if encoded[i].Metadata, err = metadata.encode(ctx, j.Metadata); err != nil {
			return nil, invalid(fmt.Sprintf("job %d (%s): metadata: %v", i, j.Title, err), "Give values that encode as JSON.")
		}
	}
	return encoded, nil
}

// Job is a job that a handler works on.
type Job struct {
	ID          int64
	Attempt     int // from 1
	Title       string
	Description string
	Tags        []string
	Payload     json.RawMessage
	Metadata    json.RawMessage
	Priority    int
	RetryCount  int // failed attempts
	MaxRetries  int
	RunAt       time.Time
	CreatedAt   time.Time
	// LastProgress is the last value that an earlier attempt gave [Job.Progress]; nil if there is none.
	LastProgress json.RawMessage

	attempt attempt
}

// attempt is the running attempt of a job. It is nil in a job that a test has made.
type attempt interface {
	Progress(ctx context.Context, progress json.RawMessage) error
	SetResult(result json.RawMessage)
	Complete(ctx context.Context, db pg.DB) error
	Recall(name string) (result json.RawMessage, saved bool, err error)
	SaveStep(ctx context.Context, tx pg.DB, name string, result json.RawMessage) error
	Sleep(ctx context.Context, name string, d time.Duration) error
	Await(ctx context.Context, a pg.Await) (pg.Awaited, error)
	Open(ctx context.Context, e pg.Event) (Event, error)
	Transact(ctx context.Context, run, last func(tx pgx.Tx) error) error
}

// clientAttempt is an attempt of a job that a client has.
type clientAttempt struct {
	*work.Job
	client *Client
}

// Transact runs a function of the handler and then a statement of Posthorn in a transaction. It is one of
// the handlers' transactions, which leave connections of the pool to those that use it beside them.
func (a clientAttempt) Transact(ctx context.Context, run, last func(tx pgx.Tx) error) error {
	return a.client.transactions.Do(ctx, a.LeaseFor(), run, last)
}

// Open opens an event whose payload may be sealed.
func (a clientAttempt) Open(ctx context.Context, e pg.Event) (Event, error) {
	err := a.client.box.Open(ctx, a.client.namespace, &e)
	switch {
	case err == nil:
		return Event(e), nil
	case sealing.IsFinal(err):
		return Event{}, Permanent(err)
	}
	return Event{}, &worker.ReleaseError{After: unsealDelay, Err: err}
}

// Progress records the progress of the job, for operators and for later attempts, which find
// it in LastProgress: any value that encodes as JSON. It fails with [ErrLeaseLost] if the job was cancelled or reset, or if another
// worker has taken it; the handler's ctx ends then too.
func (j Job) Progress(ctx context.Context, progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil {
		return invalid(fmt.Sprintf("progress of job %d: %v", j.ID, err), "Give a value that encodes as JSON.")
	}
	if j.attempt == nil {
		return nil
	}
	return j.attempt.Progress(ctx, encoded)
}

// SetResult sets the result of the job: any value that encodes as JSON. It is saved when
// the job completes.
func (j Job) SetResult(result any) error {
	encoded, err := json.Marshal(result)
	if err != nil {
		return invalid(fmt.Sprintf("result of job %d: %v", j.ID, err), "Give a value that encodes as JSON.")
	}
	if j.attempt != nil {
		j.attempt.SetResult(encoded)
	}
	return nil
}

// Complete completes the job in the handler's transaction: both commit together, so the
// effect of the transaction happens exactly once. The handler then commits and returns
// nil. Complete fails with [ErrLeaseLost] if the job was cancelled or reset, or if
// another worker has taken it; the handler must roll back then.
func (j Job) Complete(ctx context.Context, tx DB) error {
	if j.attempt == nil {
		return nil
	}
	return j.attempt.Complete(ctx, tx)
}

// Step makes a step of a job, unless it is saved. The first attempt that gets there calls the
// function, and saves its result: any value that encodes as JSON, up to 64 KiB. Later attempts
// get that value, and do not call the function. If the function fails, nothing is saved, and Step
// returns its error.
//
// If the process dies between the end of the function and the save, the function is called again. For
// effects in the same database, [StepTx] has no such gap. A name may be used once in an attempt: to
// repeat an effect at once, do so within its step.
//
// Nothing is replayed: a handler runs again from its beginning, and leaves out the steps that are
// saved. So its code between steps may depend on the time, on chance, and on a new version of
// its program.
func Step[T any](ctx context.Context, job Job, name string, f func(ctx context.Context) (T, error)) (T, error) {
	return step[T](job, name, func() (json.RawMessage, error) {
		value, err := f(ctx)
		if err != nil {
			return nil, err
		}
		encoded, err := encodeStep(job, name, value)
		if err != nil || job.attempt == nil {
			return encoded, err
		}
		return encoded, unsavable(job.attempt.SaveStep(ctx, nil, name, encoded))
	})
}

// StepTx is [Step] with a transaction for the effect, in which the result is saved too: both commit
// together, so the step happens exactly once. The function must not end the transaction, nor begin
// another StepTx. An error rolls it back. It needs a connection, see [Config].MaxConns.
func StepTx[T any](ctx context.Context, job Job, name string, f func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	return step[T](job, name, func() (json.RawMessage, error) {
		if job.attempt == nil {
			return nil, invalid("StepTx needs a job of a client", "Test the handler with a client of package posthorntest.")
		}
		if ctx.Value(stepTxKey{}) != nil {
			return nil, invalid(fmt.Sprintf("step %q of job %d begins within the transaction of another step", name, job.ID),
				"Make the steps one after the other: handlers that hold one transaction and want a second could wait for each other.")
		}
		var encoded json.RawMessage
		err := job.attempt.Transact(ctx, func(tx pgx.Tx) error {
			value, err := f(context.WithValue(ctx, stepTxKey{}, name), tx)
			if err == nil {
				encoded, err = encodeStep(job, name, value)
			}
			return err
		}, func(tx pgx.Tx) error { return unsavable(job.attempt.SaveStep(ctx, tx, name, encoded)) })
		return encoded, err
	})
}

// stepTxKey is the key of the name of a step, in the context of its function.
type stepTxKey struct{}

// step returns the result of a step: that which is saved, or that of make. Its value is decoded in
// both cases, so that an attempt which makes the step has the value that later ones have.
func step[T any](job Job, name string, make func() (json.RawMessage, error)) (value T, err error) {
	var result json.RawMessage
	saved := false
	if job.attempt != nil {
		if result, saved, err = job.attempt.Recall(name); err != nil {
			return value, err
		}
	}
	if !saved {
		if result, err = make(); err != nil {
			return value, err
		}
	}
	if err := json.Unmarshal(result, &value); err != nil {
		return value, Permanent(fmt.Errorf("the result of step %q of job %d does not fit into %T: %w", name, job.ID, value, err))
	}
	return value, nil
}

func encodeStep(job Job, name string, value any) (json.RawMessage, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, Permanent(invalid(fmt.Sprintf("result of step %q of job %d: %v", name, job.ID, err), "Return a value that encodes as JSON."))
	}
	return encoded, nil
}

// unsavable marks the error of a result that no attempt can save: another one would repeat the effect
// in vain.
func unsavable(err error) error {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict) {
		return Permanent(err)
	}
	return err
}

// Sleep lets the job go on after d, without a worker meanwhile. The first attempt that gets there
// ends: Sleep returns an error, which the handler must return. The handler is called again when d has
// passed; then Sleep returns nil, and steps that are saved are left out. An attempt that ends with a
// sleep does not count as a failure, and behind it the job has all its retries again. The name is one
// of the job's steps.
func (j Job) Sleep(ctx context.Context, name string, d time.Duration) error {
	if j.attempt == nil {
		return nil
	}
	return j.attempt.Sleep(ctx, name, d)
}

// Await returns the first event of a type and key that was published since the job was enqueued. If
// there is none, the job waits for it, without a worker: Await returns an error, which the handler must
// return, and the handler is called again when the event has come. Then Await returns the event, and
// steps that are saved are left out. If none comes before the timeout, Await returns [ErrTimedOut] from
// then on. The name is one of the job's steps.
//
// Publishers need to know nothing of the job. An event that was published before the call is found too,
// so no order of the two misses it.
func (j Job) Await(ctx context.Context, name, eventType, key string, timeout time.Duration) (Event, error) {
	if j.attempt == nil {
		return Event{}, invalid("Await needs a job of a client", "Test the handler with a client of package posthorntest.")
	}
	came, err := j.attempt.Await(ctx, pg.Await{Name: name, Type: eventType, Key: key, Timeout: timeout})
	switch {
	case err != nil:
		return Event{}, err
	case came.TimedOut:
		return Event{}, fmt.Errorf("job %d: %s of %s: %w", j.ID, eventType, key, ErrTimedOut)
	}
	return j.attempt.Open(ctx, came.Event())
}

// WorkConfig configures a job handler in this process. The zero value is a sound
// default.
type WorkConfig struct {
	// Concurrency bounds the handlers, or batches, that run at once in this process.
	// Default: 10.
	Concurrency int
	// BatchSize bounds how many short jobs are taken in one call. Long jobs are taken
	// one by one. With [Client.WorkBatch] and [Client.WorkBatchTx], it bounds the jobs
	// that a handler gets at once, however long they take. Default: 1000.
	BatchSize int
	// LeaseFor is how long the jobs of a process that has died wait for another worker.
	// Leases are extended while handlers run, so jobs may take longer. A shorter lease
	// recovers sooner; a longer one survives a longer outage of the database without
	// repeating jobs. Default: one minute.
	LeaseFor time.Duration
	// Timeout of one attempt, or of one batch. Then the handler's context ends, and the
	// handler should return: with an error, or with the transaction of WorkTx or
	// WorkBatchTx, the attempt has failed, and with nil the job is complete. Negative for
	// none. Default: one hour.
	Timeout time.Duration
}

func (c WorkConfig) withDefaults() WorkConfig {
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.LeaseFor = cmp.Or(c.LeaseFor, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, time.Hour)
	return c
}

// JobHandler does a job. It returns nil when the job is complete, and an error for
// another attempt: after the job's next delay, or with [RetryAfter] after a given time.
// With [Permanent], or when no retries are left, the job has failed. A panic is an
// error.
//
// The context ends after [WorkConfig].Timeout, when the client stops, and when the job
// was cancelled or reset, or was taken by another worker. When a worker dies, the handler
// is called again in another one; with [Job.Complete] the effect still happens exactly
// once.
type JobHandler func(ctx context.Context, job Job) error

// Work registers a handler for the jobs that have one of the tags or, without tags, for
// the jobs that have none. [Client.Run] takes jobs of higher priority first, then those
// that have been due for longest.
//
// Leases are extended while handlers run. The job log has an entry for the start of an
// attempt only if the attempt takes longer than a second.
func (c *Client) Work(tags []string, config WorkConfig, handler JobHandler) {
	w := &jobWorker{}
	if handler != nil {
		w.handle = func(ctx context.Context, _ pgx.Tx, jobs []*work.Job) error { return handler(ctx, c.job(jobs[0])) }
	}
	c.work(tags, config, w)
}

// WorkTx is [Client.Work] with a transaction, in which the job is also completed: both commit
// together, so the effect of the transaction happens exactly once. The handler must not end the
// transaction. Posthorn commits if the handler returns nil, and otherwise rolls back.
//
// It costs less than [Job.Complete] in a transaction of the handler: the completion, the commit and
// the begin of the next transaction share a round trip. After a deadlock or a serialization failure
// the handler is called again at once, in a new transaction. So steps, [Job.Sleep] and [Job.Await],
// which keep a part of the job apart from the transaction, are refused: use Work for such jobs.
// [Job.SetResult] and [Job.Progress] work; progress is recorded at once, and stays after a rollback.
//
// A handler needs a connection, see [Config].MaxConns.
func (c *Client) WorkTx(tags []string, config WorkConfig, handler func(ctx context.Context, tx pgx.Tx, job Job) error) {
	w := &jobWorker{transactions: c.transactions}
	if handler != nil {
		w.handle = func(ctx context.Context, tx pgx.Tx, jobs []*work.Job) error { return handler(ctx, tx, c.job(jobs[0])) }
	}
	c.work(tags, config, w)
}

func (c *Client) work(tags []string, config WorkConfig, w *jobWorker) {
	label := "jobs without tags"
	if len(tags) > 0 {
		label = "jobs tagged " + strings.Join(tags, ", ")
	}
	w.tags, w.config, w.jobMetrics = slices.Clone(tags), config.withDefaults(), c.telemetry.Jobs(label)
	w.registration = registration{client: c, label: label, metrics: w.jobMetrics.Group, err: w.check()}
	c.register(w)
}

// WorkOn is [Client.Work] with a decoded payload. A payload that does not fit into T is
// a permanent failure.
func WorkOn[T any](c *Client, tags []string, config WorkConfig, handler func(ctx context.Context, job Job, payload T) error) {
	if handler == nil {
		c.Work(tags, config, nil)
		return
	}
	c.Work(tags, config, func(ctx context.Context, job Job) error {
		var payload T
		if err := c.config.Decode(job.Payload, &payload); err != nil {
			return Permanent(fmt.Errorf("payload of %q does not fit into %T: %w", job.Title, payload, err))
		}
		return handler(ctx, job, payload)
	})
}

// jobWorker is a registered handler of jobs, or of batches of jobs.
type jobWorker struct {
	registration
	tags       []string
	config     WorkConfig
	jobMetrics *observe.Jobs

	handle       func(ctx context.Context, tx pgx.Tx, jobs []*work.Job) error
	batches      bool
	transactions *worker.Transactions
}

func (w *jobWorker) check() error {
	switch c := w.config; {
	case w.handle == nil:
		return invalid("the handler is nil", "Give a function.")
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return invalid("Concurrency must be from 1 to 10000", "Leave it out for 10.")
	case c.BatchSize < 0 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for a minute; leases are extended while handlers run.")
	}
	return nil
}

func (w *jobWorker) run(ctx, stop context.Context) error {
	err := w.err
	if err == nil {
		err = work.Run(stop, pg.Within(ctx, pg.LeaseTime(w.config.LeaseFor)), w.engine())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.label, err)
	}
	return nil
}

func (w *jobWorker) engine() work.Config {
	c := w.client
	return work.Config{
		Pool: c.control, Queues: c.queues, Namespace: c.namespace, Worker: c.config.NodeID, Tags: w.tags,
		Handle: w.handle, Batches: w.batches, Transactions: w.transactions,
		Concurrency: w.config.Concurrency, BatchSize: w.config.BatchSize, LeaseFor: w.config.LeaseFor,
		Timeout: max(w.config.Timeout, 0), Log: c.log, Observe: w.jobMetrics,
	}
}

func (c *Client) job(j *work.Job) Job {
	return Job{
		ID: j.ID, Attempt: j.Attempt, Title: j.Title, Description: j.Description, Tags: j.Tags, Payload: j.Payload,
		Metadata: j.Metadata, Priority: j.Priority, RetryCount: j.RetryCount, MaxRetries: j.MaxRetries,
		RunAt: j.RunAt, CreatedAt: j.CreatedAt, LastProgress: j.ClaimedJob.Progress, attempt: clientAttempt{j, c},
	}
}

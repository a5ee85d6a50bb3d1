package posthorn

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/work"
)

// NewJob is work for exactly one worker. Only Title is required.
type NewJob struct {
	// Title says in a few words what is to be done.
	Title string
	// Description says more of it, to people.
	Description string
	// Tags say which workers want it: those that ask for any of them. A job
	// without tags is for workers that ask for none.
	Tags []string
	// Payload is any value that encodes as JSON, by [Config].Encode if that is set.
	// A [json.RawMessage] or []byte is JSON already and goes in as it is. Default: {}.
	Payload any
	// Priority goes before age: higher ones are taken first. Default: 0.
	Priority int
	// RunAt keeps it from workers until then. Default: at once.
	RunAt time.Time
	// MaxRetries is how many attempts may fail; with the last of them the job has.
	// Default: 3. [NoRetries] lets the first failure be the last.
	MaxRetries int
	// RetryDelays before each further attempt; the last one repeats. Default: 5
	// minutes.
	RetryDelays []time.Duration
	// UniqueKey makes one job of all that are enqueued under it while the first
	// of them is pending, or for as long as UniqueFor says.
	UniqueKey string
	UniqueFor time.Duration
	// Metadata goes along, encoded as JSON. Trace context and producer, the node's id,
	// are added; a producer of nil leaves it out.
	Metadata map[string]any
}

// NoRetries, as [NewJob].MaxRetries, allows one attempt.
const NoRetries = -1

// Enqueue writes jobs, in order and in one round trip, and returns their ids. In
// a transaction the jobs exist if and only if it commits, and no worker has them
// before; db is then the transaction.
//
// Under a UniqueKey that is in use, the id is that of the job which has it. That
// job is then not taken before the transaction has ended, so its worker sees what
// the transaction wrote.
func (c *Client) Enqueue(ctx context.Context, db DB, jobs ...NewJob) ([]int64, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	ctx, watched := c.telemetry.Enqueueing(ctx, len(jobs))
	encoded, err := c.encodeJobs(ctx, jobs)
	if err != nil {
		err = fmt.Errorf("enqueue: %w", err)
		watched.End(nil, false, err)
		return nil, err
	}
	ids, err := pg.EnqueueMany(ctx, db, c.namespace, encoded)
	watched.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.bell.Poke()
	return ids, nil
}

func (c *Client) encodeJobs(ctx context.Context, jobs []NewJob) ([]pg.NewJob, error) {
	encoded := make([]pg.NewJob, len(jobs))
	origin := c.origin(ctx)
	for i := range jobs {
		j := &jobs[i]
		encoded[i] = pg.NewJob{
			Title: j.Title, Description: j.Description, Tags: j.Tags, Priority: j.Priority, RetryDelays: j.RetryDelays,
			UniqueKey: j.UniqueKey, UniqueFor: j.UniqueFor,
		}
		if !j.RunAt.IsZero() {
			encoded[i].RunAt = &j.RunAt
		}
		if j.MaxRetries != 0 {
			most := max(j.MaxRetries, 0)
			encoded[i].MaxRetries = &most
		}
		var err error
		if encoded[i].Payload, err = c.encodePayload(j.Payload); err != nil {
			return nil, invalid(fmt.Sprintf("job %d (%s): payload: %v", i, j.Title, err), "Give a value that encodes as JSON.")
		}
		if encoded[i].Metadata, err = origin.metadata(ctx, j.Metadata); err != nil {
			return nil, invalid(fmt.Sprintf("job %d (%s): metadata: %v", i, j.Title, err), "Give values that encode as JSON.")
		}
	}
	return encoded, nil
}

// Job is a job in the hands of a worker.
type Job struct {
	ID          int64
	Attempt     int // from 1
	Title       string
	Description string
	Tags        []string
	Payload     json.RawMessage
	Metadata    json.RawMessage
	Priority    int
	RetryCount  int // attempts that failed
	MaxRetries  int
	RunAt       time.Time
	CreatedAt   time.Time

	hands hands
}

// hands is what has the job. A test that calls a handler itself has none.
type hands interface {
	Progress(ctx context.Context, progress json.RawMessage) error
	SetResult(result json.RawMessage)
	Complete(ctx context.Context, db pg.DB) error
}

// Progress notes how far the work is, for those who look at the job: any value
// that encodes as JSON. It fails with [ErrLeaseLost] when the job was cancelled,
// reset or taken by others; ctx ends then too.
func (j Job) Progress(ctx context.Context, progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil {
		return invalid(fmt.Sprintf("progress of job %d: %v", j.ID, err), "Give a value that encodes as JSON.")
	}
	if j.hands == nil {
		return nil
	}
	return j.hands.Progress(ctx, encoded)
}

// SetResult keeps what came of the work, any value that encodes as JSON, with the
// job when it is done.
func (j Job) SetResult(result any) error {
	encoded, err := json.Marshal(result)
	if err != nil {
		return invalid(fmt.Sprintf("result of job %d: %v", j.ID, err), "Give a value that encodes as JSON.")
	}
	if j.hands != nil {
		j.hands.SetResult(encoded)
	}
	return nil
}

// Complete finishes the job in a transaction of the handler's: its effect there
// and the end of the job are one, so the effect happens exactly once. The handler
// commits, and returns. It fails with [ErrLeaseLost] when the job was cancelled,
// reset or taken by others: roll back then.
func (j Job) Complete(ctx context.Context, tx DB) error {
	if j.hands == nil {
		return nil
	}
	return j.hands.Complete(ctx, tx)
}

// WorkConfig is how jobs are worked off in this process. The zero value is sound.
type WorkConfig struct {
	// Concurrency is how many jobs are handled at once in this process. Default:
	// 10.
	Concurrency int
	// BatchSize bounds how many jobs are taken ahead where they are so short that
	// taking them costs more than doing them; long ones are taken one by one.
	// Default: 1000.
	BatchSize int
	// LeaseFor is how long after this process has died its jobs go to others. It
	// is extended while handlers run, so it need not cover them. Shorter recovers
	// sooner; longer survives a longer outage of the database without doing jobs
	// twice. Default: one minute.
	LeaseFor time.Duration
	// Timeout of one attempt, after which its context ends. An error that the
	// handler then returns is a failure as any other; nil says that the work is
	// done. Negative for none. Default: one hour.
	Timeout time.Duration
}

func (c WorkConfig) withDefaults() WorkConfig {
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.LeaseFor = cmp.Or(c.LeaseFor, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, time.Hour)
	return c
}

func (c WorkConfig) check() error {
	switch {
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return invalid("Concurrency must be from 1 to 10000", "Leave it out for 10.")
	case c.BatchSize < 0 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for a minute; it is extended while handlers run.")
	}
	return nil
}

// JobHandler does a job. It returns nil when that is done, and an error when it is
// to be tried again: any error for the job's next delay, [RetryAfter] for another,
// [Permanent] for never. A panic is an error.
//
// Its context ends when the client has no more time, when the job's has passed,
// and when the job was cancelled, reset or taken by others. A job is handed out
// again when its worker died; to make its effect happen exactly once all the
// same, see [Job.Complete].
type JobHandler func(ctx context.Context, job Job) error

// Work registers a handler for the jobs that have any of some tags, or that have
// none if none are given. [Client.Run] takes them: those of higher priority first,
// then those that have been due for longest.
//
// Leases are extended while handlers run. That a handler has begun is logged when
// it takes longer than a second; shorter ones say all with their end.
func (c *Client) Work(tags []string, config WorkConfig, handler JobHandler) {
	label := "jobs without tags"
	if len(tags) > 0 {
		label = "jobs tagged " + strings.Join(tags, ", ")
	}
	w := &jobWorker{
		client: c, tags: slices.Clone(tags), name: label, config: config.withDefaults(), handler: handler,
		watch: c.telemetry.Jobs(label),
	}
	w.err = w.config.check()
	if handler == nil {
		w.err = invalid("there is nothing to do jobs with", "Give a function.")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.parts, func(other part) bool { return other.label() == label }) {
		w.err = invalid("there is a handler for these already", "Tell jobs apart by their tags, or within one handler.")
		w.name += " (again)"
	}
	c.parts = append(c.parts, w)
	c.wakeRun()
}

// WorkOn is [Client.Work] with the payload decoded. A payload that does not fit is
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

// jobWorker is a registration of [Client.Work].
type jobWorker struct {
	client  *Client
	tags    []string
	name    string
	config  WorkConfig
	handler JobHandler
	watch   *observe.Jobs
	err     error // what was wrong when it was set up; Run returns it
}

func (w *jobWorker) label() string { return w.name }

func (w *jobWorker) watched() *observe.Group { return w.watch.Group }

// run takes jobs until stop ends; handlers may go on until ctx does.
func (w *jobWorker) run(ctx, stop context.Context) error {
	if w.err != nil {
		return fmt.Errorf("%s: %w", w.name, w.err)
	}
	if err := work.Run(stop, pg.Within(ctx, pg.LeaseTime(w.config.LeaseFor)), w.engine()); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

func (w *jobWorker) engine() work.Config {
	c := w.client
	return work.Config{
		Pool: c.control, Bell: c.bell, Namespace: c.namespace, Worker: c.config.NodeID, Tags: w.tags, Handle: w.handle,
		Concurrency: w.config.Concurrency, BatchSize: w.config.BatchSize, LeaseFor: w.config.LeaseFor,
		Timeout: max(w.config.Timeout, 0), Log: c.log, Observe: w.watch,
	}
}

func (w *jobWorker) handle(ctx context.Context, j *work.Job) error {
	return w.handler(ctx, Job{
		ID: j.ID, Attempt: j.Attempt, Title: j.Title, Description: j.Description, Tags: j.Tags, Payload: j.Payload,
		Metadata: j.Metadata, Priority: j.Priority, RetryCount: j.RetryCount, MaxRetries: j.MaxRetries,
		RunAt: j.RunAt, CreatedAt: j.CreatedAt, hands: j,
	})
}

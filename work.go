package posthorn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/work"
)

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

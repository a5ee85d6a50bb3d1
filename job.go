package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
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
	// Metadata goes along, encoded as JSON. Trace context and producer are added.
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

// JobStatus is a job as it stands.
type JobStatus = pg.Job

// JobEntry is an entry of the log of a job: what was done to it, and by whom.
type JobEntry = pg.JobEntry

// JobFilter says which jobs are meant: all of them, unless it says more.
type JobFilter = pg.JobFilter

// The statuses of jobs, for [JobFilter].Status and [JobStatus].Status.
const (
	JobPending    = "PENDING"
	JobProcessing = "PROCESSING"
	JobCompleted  = "COMPLETED"
	JobFailed     = "FAILED" // for good
	JobCancelled  = "CANCELLED"
)

// Job returns a job as it stands. It fails with [ErrNotFound] when there is none
// in the client's namespace.
func (c *Client) Job(ctx context.Context, id int64) (JobStatus, error) {
	return pg.GetJob(ctx, c.control, c.namespace, id)
}

// Jobs returns a page of the namespace's jobs, oldest first unless the filter says
// otherwise. Jobs that are finished are kept for job_retention_period.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) ([]JobStatus, error) {
	return pg.ListJobs(ctx, c.control, c.namespace, filter)
}

// CountJobs returns how many jobs a filter means, on all pages.
func (c *Client) CountJobs(ctx context.Context, filter JobFilter) (int64, error) {
	return pg.CountJobs(ctx, c.control, c.namespace, filter)
}

// JobLog returns what was done to a job, in order.
func (c *Client) JobLog(ctx context.Context, id int64) ([]JobEntry, error) {
	return pg.JobHistory(ctx, c.control, c.namespace, id)
}

// CancelJob ends a job that is not finished, in the transaction of db. If a worker
// has it, its context ends within seconds, and what it says of the job is refused.
// Again, it changes nothing.
func (c *Client) CancelJob(ctx context.Context, db DB, id int64, reason string) error {
	return pg.CancelJob(ctx, db, c.namespace, id, reason)
}

// RetryJob lets a job begin anew, in the transaction of db: one that has failed
// for good, with its retries as at first, or one that a worker has, which is
// fenced out.
func (c *Client) RetryJob(ctx context.Context, db DB, id int64, reason string) error {
	err := pg.ResetJob(ctx, db, c.namespace, id, reason)
	if err == nil {
		c.bell.Poke()
	}
	return err
}

// JobLimit is how many jobs with a tag may run, over all workers. Its zero value
// allows any number.
type JobLimit = pg.JobLimit

// JobLimitStatus is a tag that is paused or has limits, and what it has used.
type JobLimitStatus = pg.JobLimitStatus

// SetJobLimit sets how many jobs with a tag may run at once, and how many may
// start in a period. Jobs that are held back keep their place.
func (c *Client) SetJobLimit(ctx context.Context, tag string, limit JobLimit) error {
	return pg.SetJobLimit(ctx, c.control, c.namespace, tag, limit)
}

// JobLimits returns the tags that are paused or have limits.
func (c *Client) JobLimits(ctx context.Context) ([]JobLimitStatus, error) {
	return pg.ListJobLimits(ctx, c.control, c.namespace)
}

// PauseJobs stops handing out jobs with a tag, until [Client.ResumeJobs]. Those
// that workers have go on.
func (c *Client) PauseJobs(ctx context.Context, tag string) error {
	return pg.PauseJobTag(ctx, c.control, c.namespace, tag)
}

// ResumeJobs hands out jobs with a tag again, and reports whether it was paused.
func (c *Client) ResumeJobs(ctx context.Context, tag string) (bool, error) {
	return pg.ResumeJobTag(ctx, c.control, c.namespace, tag)
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

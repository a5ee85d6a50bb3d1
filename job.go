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

package observe

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Jobs watches what this process does for the jobs of some tags: as a [Group]
// does, with jobs for events and their titles for types.
type Jobs struct {
	Group   *Group
	handler *consume.Handler
}

// Jobs begins to watch the jobs of some tags.
func (t *Telemetry) Jobs(name string) *Jobs {
	j := &Jobs{Group: t.Group(name, 0), handler: &consume.Handler{Name: name}}
	j.Group.Watch(j.handler)
	return j
}

func asEvent(j *pg.ClaimedJob) pg.Event {
	return pg.Event{ID: j.ID, Stream: "jobs", Type: j.Title, Payload: j.Payload, Metadata: j.Metadata, Delivery: j.Attempt}
}

// Handling begins a span: a child of the one that enqueued the job.
func (j *Jobs) Handling(ctx context.Context, job *pg.ClaimedJob) context.Context {
	j.Group.Took(pg.Lease{})
	return j.Group.Handling(ctx, j.handler, []pg.Event{asEvent(job)})
}

// Handled ends the span and counts.
func (j *Jobs) Handled(ctx context.Context, job *pg.ClaimedJob, took time.Duration, err error) {
	j.Group.Handled(ctx, j.handler, []pg.Event{asEvent(job)}, took, err)
}

// Settle watches what records the end of jobs.
func (j *Jobs) Settle(ctx context.Context, jobs []*pg.ClaimedJob, settle func(ctx context.Context) error) error {
	events := make([]pg.Event, len(jobs))
	for i, job := range jobs {
		events[i] = asEvent(job)
	}
	return j.Group.Settle(ctx, events, nil, settle)
}

// Failed counts.
func (j *Jobs) Failed(job *pg.ClaimedJob, dead bool) {
	failure := pg.Failure{Event: job.ID, Subscription: j.handler.Name, Permanent: dead}
	j.Group.failed(context.Background(), &failure, nil)
}

// LeaseLost counts.
func (j *Jobs) LeaseLost() { j.Group.LeaseLost() }

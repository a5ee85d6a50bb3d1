package observe

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Jobs observes the work of this process for jobs with the same tags. It uses a [Group]:
// a job is recorded as an event whose type is the title of the job.
type Jobs struct {
	Group   *Group
	handler *consume.Handler
}

// Jobs returns the observer of jobs under a name.
func (t *Telemetry) Jobs(name string) *Jobs {
	j := &Jobs{Group: t.Group(name), handler: &consume.Handler{Name: name}}
	j.Group.Watch(j.handler)
	return j
}

func asEvents(jobs []*pg.ClaimedJob) []pg.Event {
	events := make([]pg.Event, len(jobs))
	for i, j := range jobs {
		events[i] = pg.Event{ID: j.ID, Stream: "jobs", Type: j.Title, Payload: j.Payload, Metadata: j.Metadata, Delivery: j.Attempt}
	}
	return events
}

// Handling starts a span for a call of a handler. The span of one job is a child of the span
// that enqueued it; that of several jobs has links to those spans.
func (j *Jobs) Handling(ctx context.Context, jobs []*pg.ClaimedJob) context.Context {
	j.Group.Took(pg.Lease{})
	if j.Group.noSDK.Load() { // asEvents copies much
		return ctx
	}
	return j.Group.Handling(ctx, j.handler, asEvents(jobs))
}

// Handled ends the span of a call, and counts its jobs.
func (j *Jobs) Handled(ctx context.Context, jobs []*pg.ClaimedJob, took time.Duration, err error) {
	j.Group.handled(ctx, j.handler, len(jobs), took, err)
}

// Settle observes a call that records the results of jobs.
func (j *Jobs) Settle(ctx context.Context, jobs []*pg.ClaimedJob, settle func(ctx context.Context) error) error {
	var events []pg.Event
	if !j.Group.noSDK.Load() {
		events = asEvents(jobs)
	}
	return j.Group.Settle(ctx, events, func(ctx context.Context) ([]pg.Fate, error) { return nil, settle(ctx) })
}

// Failed counts a failed attempt, and whether the job has failed for good.
func (j *Jobs) Failed(dead bool) {
	j.Group.failed(context.Background(), j.handler.Name, dead)
}

// LeaseLost counts a lost lease.
func (j *Jobs) LeaseLost() { j.Group.LeaseLost() }

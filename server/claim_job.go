package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type claimJobInput struct {
	in.Namespace
	Tags         string `query:"tags" required:"true" doc:"Separated by commas: the job has any of them"`
	WorkerID     string `query:"worker_id" required:"true" maxLength:"255" doc:"Tells this worker from all others: host:pid" example:"worker-02:8742"`
	LeaseSeconds int    `query:"lease_seconds" minimum:"1" maximum:"86400" default:"300" doc:"How long the job is the worker's"`
	Wait         int    `query:"wait" minimum:"0" maximum:"60" default:"0" doc:"How many seconds to wait for a job if there is none"`
}

type claimJobOutput struct {
	Status      int
	TraceParent string `header:"traceparent" doc:"Of whoever enqueued the job"`
	TraceState  string `header:"tracestate"`
	Body        claimedJobView
}

// claimedJobView is a job in the hands of a worker.
type claimedJobView struct {
	ID         int64           `json:"id" example:"1001"`
	Title      string          `json:"title"`
	Tags       string          `json:"tags"`
	Status     string          `json:"status" example:"PROCESSING"`
	Payload    json.RawMessage `json:"payload"`
	RetryCount int             `json:"retry_count" doc:"How many attempts have failed"`
	MaxRetries int             `json:"max_retries"`
	CreatedAt  time.Time       `json:"created_at"`
	Attempt    int             `json:"attempt" doc:"Send it with what you report: an attempt that was lost is then told from this one"`
	LeaseUntil time.Time       `json:"lease_until" doc:"Heartbeats move it"`
}

func (s *Server) claimJob(ctx context.Context, c caller, input *claimJobInput) (*claimJobOutput, error) {
	tags, err := splitTags(input.Tags)
	if err != nil {
		return nil, err
	}
	claim := jobClaim{c.namespace, input.WorkerID, tags, time.Duration(input.LeaseSeconds) * time.Second}
	var job *pg.ClaimedJob
	if input.Wait == 0 {
		job, err = s.takeJob(ctx, claim)
	} else {
		job, err = s.awaitJob(ctx, c, claim, time.Duration(input.Wait)*time.Second)
	}
	if err != nil || job == nil {
		return &claimJobOutput{Status: http.StatusNoContent}, err
	}
	output := &claimJobOutput{Status: http.StatusOK, Body: claimedJobView{
		ID: job.ID, Title: job.Title, Tags: joinTags(job.Tags), Status: "PROCESSING", Payload: job.Payload,
		RetryCount: job.RetryCount, MaxRetries: job.MaxRetries, CreatedAt: job.CreatedAt.UTC(),
		Attempt: job.Attempt, LeaseUntil: job.LeaseUntil.UTC(),
	}}
	trace := traceIn(job.Metadata)
	output.TraceParent, output.TraceState = trace["traceparent"], trace["tracestate"]
	return output, nil
}

// jobClaim is who asks for which jobs.
type jobClaim struct {
	namespace, worker string
	tags              []string
	leaseFor          time.Duration
}

// takeJob claims one job, if there is one. The claim does not end with the
// client: broken off in the middle, it could leave a job with nobody. One whose
// worker has gone meanwhile is given back.
func (s *Server) takeJob(ctx context.Context, claim jobClaim) (*pg.ClaimedJob, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
	defer cancel()
	jobs, err := pg.ClaimJobs(claiming, s.client.Pool(), claim.namespace, claim.worker, claim.tags, 1, claim.leaseFor)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	if ctx.Err() != nil {
		_, err := pg.ReleaseJobs(claiming, s.client.Pool(), claim.worker, []int64{jobs[0].ID}, []int32{int32(jobs[0].Attempt)},
			"its worker had gone before it was told")
		return nil, err
	}
	return &jobs[0], nil
}

// awaitJob claims one job as soon as there is one. It returns none when there was
// none in time, or when the server is to stop.
func (s *Server) awaitJob(ctx context.Context, c caller, claim jobClaim, patience time.Duration) (*pg.ClaimedJob, error) {
	done, err := s.beginWait()
	if err != nil {
		return nil, err
	}
	defer done()
	waiting, cancel := s.untilDrain(ctx)
	defer cancel()
	waiting, cancel = context.WithTimeout(waiting, patience)
	defer cancel()
	place := s.jobBell.Join(claim.namespace, claim.tags)
	defer place.Leave()
	for {
		job, err := s.takeJob(ctx, claim)
		if err != nil || job != nil {
			place.Found()
			return job, err
		}
		if !place.Wait(waiting) {
			return nil, ctx.Err()
		}
		if _, err := s.reauthorize(ctx, c); err != nil {
			place.Found()
			return nil, err
		}
	}
}

// beginWait counts one more that waits, unless there are too many, or we are to
// stop.
func (s *Server) beginWait() (done func(), err error) {
	if s.isDraining() {
		return nil, errDraining()
	}
	if int(s.jobWaits.Add(1))+s.waits.waiting() > s.options.MaxWaits {
		s.jobWaits.Add(-1)
		return nil, errTooManyWaits()
	}
	return func() { s.jobWaits.Add(-1) }, nil
}

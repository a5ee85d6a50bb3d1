package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/server/internal/in"
)

type claimJobInput struct {
	in.Namespace
	Tags         string `query:"tags" required:"true" doc:"Separated by commas; the job has any of them"`
	WorkerID     string `query:"worker_id" required:"true" maxLength:"255" doc:"A name that no other worker has, such as host:pid" example:"worker-02:8742"`
	LeaseSeconds int    `query:"lease_seconds" minimum:"1" maximum:"86400" default:"300" doc:"How long the lease lasts, unless it is extended by a heartbeat"`
	Wait         int    `query:"wait" minimum:"0" maximum:"60" default:"0" doc:"How many seconds to wait for a job if there is none"`
}

type claimJobOutput struct {
	Status      int
	TraceParent string `header:"traceparent" doc:"The trace of the request that enqueued the job"`
	TraceState  string `header:"tracestate"`
	Body        claimedJobView
}

// claimedJobView is a job that a worker has claimed.
type claimedJobView struct {
	ID         int64           `json:"id" example:"1001"`
	Title      string          `json:"title"`
	Tags       string          `json:"tags"`
	Status     string          `json:"status" example:"PROCESSING"`
	Payload    json.RawMessage `json:"payload"`
	RetryCount int             `json:"retry_count" doc:"How many attempts have failed"`
	MaxRetries int             `json:"max_retries"`
	CreatedAt  time.Time       `json:"created_at"`
	Attempt    int             `json:"attempt" doc:"Send it with every report, so that reports of an attempt that was lost are refused"`
	LeaseUntil time.Time       `json:"lease_until" doc:"The end of the lease; heartbeats extend it"`
	Progress   json.RawMessage `json:"progress,omitempty" doc:"That an earlier attempt reported last"`
	Steps      json.RawMessage `json:"steps,omitempty" doc:"The results of the steps that earlier attempts saved, by their names"`
}

func (s *Server) claimJob(ctx context.Context, c caller, input *claimJobInput) (*claimJobOutput, error) {
	tags, err := splitTags(input.Tags)
	if err != nil {
		return nil, err
	}
	claim := jobClaim{c.namespace, input.WorkerID, tags, time.Duration(input.LeaseSeconds) * time.Second}
	var job *pg.ClaimedJob
	if input.Wait == 0 {
		job, err = s.tryClaimJob(ctx, claim)
	} else {
		job, err = s.awaitJob(ctx, c, claim, time.Duration(input.Wait)*time.Second)
	}
	if err != nil || job == nil {
		return &claimJobOutput{Status: http.StatusNoContent}, err
	}
	output := &claimJobOutput{Status: http.StatusOK, Body: claimedJobView{
		ID: job.ID, Title: job.Title, Tags: joinTags(job.Tags), Status: "PROCESSING", Payload: job.Payload,
		RetryCount: job.RetryCount, MaxRetries: job.MaxRetries, CreatedAt: job.CreatedAt.UTC(),
		Attempt: job.Attempt, LeaseUntil: job.LeaseUntil.UTC(), Progress: job.Progress, Steps: job.Steps,
	}}
	trace := traceIn(job.Metadata)
	output.TraceParent, output.TraceState = trace["traceparent"], trace["tracestate"]
	return output, nil
}

// jobClaim is the claim of a worker.
type jobClaim struct {
	namespace, worker string
	tags              []string
	leaseFor          time.Duration
}

// tryClaimJob claims one job, if there is one. When the client disconnects, the
// statement is not cancelled, because it would then be unknown whether it has claimed a
// job: a job that the worker cannot receive any more is released.
func (s *Server) tryClaimJob(ctx context.Context, claim jobClaim) (*pg.ClaimedJob, error) {
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
			"the worker disconnected before it received the job")
		s.jobQueues.WakeAll()
		return nil, err
	}
	return &jobs[0], nil
}

// awaitJob claims one job as soon as there is one. It returns nil when the time is over
// or the server stops.
func (s *Server) awaitJob(ctx context.Context, c caller, claim jobClaim, wait time.Duration) (*pg.ClaimedJob, error) {
	if err := s.beginWait(&s.jobWaits, s.groupWaits.Load()); err != nil {
		return nil, err
	}
	defer s.jobWaits.Add(-1)
	waiting, cancel := s.untilDrain(ctx)
	defer cancel()
	waiting, cancel = context.WithTimeout(waiting, wait)
	defer cancel()
	waiter := s.jobQueues.Join(work.QueueName(claim.namespace, claim.tags))
	defer waiter.Leave()
	for {
		job, err := s.tryClaimJob(ctx, claim)
		if err != nil || job != nil {
			waiter.Found()
			return job, err
		}
		if !waiter.Wait(waiting) {
			return nil, ctx.Err()
		}
		if _, err := s.reauthorize(ctx, c); err != nil {
			waiter.Found()
			return nil, err
		}
	}
}

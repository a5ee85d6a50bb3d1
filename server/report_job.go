package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// jobBodyInput is the input of operations on a job with a body.
type jobBodyInput struct {
	in.ByID
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte
}

// readReport decodes the report of a worker, and returns it with the job that it is
// about.
func readReport[B interface{ Reporter() in.Worker }](ctx context.Context, c caller, input *jobBodyInput) (body B, job pg.HeldJob, err error) {
	if err = decodeLenient(ctx, input.ContentType, input.RawBody, &body); err != nil {
		return body, job, err
	}
	worker := body.Reporter()
	job = pg.HeldJob{ID: input.ID, Worker: worker.WorkerID, Namespace: c.namespace}
	if worker.WorkerID == "" {
		return body, job, badRequest("worker_id is missing", "Give the one that claimed the job.")
	}
	if worker.Attempt != nil {
		if *worker.Attempt < 1 { // 0 would mean any attempt
			return body, job, badRequest("attempt must be 1 or more", "Give the attempt of the claim, or leave it out.")
		}
		job.Attempt = int(*worker.Attempt)
	}
	return body, job, nil
}

// readEnd returns the status code and execution time of an attempt.
func readEnd(ended in.Ended) (statusCode *int, executionTimeMS *int64, err error) {
	if ended.ExecutionTimeMS != nil && *ended.ExecutionTimeMS < 0 {
		return nil, nil, badRequest("execution_time_ms must not be negative", "Measure it with a monotonic clock.")
	}
	if ended.StatusCode != nil {
		code := int(*ended.StatusCode)
		statusCode = &code
	}
	return statusCode, ended.ExecutionTimeMS, nil
}

// recordedView is a recorded report.
type recordedView struct {
	ID              int64     `json:"id" example:"1001"`
	WorkerID        string    `json:"worker_id" example:"worker-02:8742"`
	Action          string    `json:"action" example:"COMPLETED"`
	StatusCode      *int      `json:"status_code,omitempty"`
	ExecutionTimeMS *int64    `json:"execution_time_ms,omitempty"`
	CreatedAt       time.Time `json:"created_at"`
}

type startBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
}

func (s *Server) startJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[recordedView], error) {
	_, job, err := readReport[startBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	entry, err := pg.StartJob(ctx, s.client.Pool(), job)
	return &bodyOf[recordedView]{recordedView{
		ID: entry.Job, WorkerID: entry.Worker, Action: entry.Action, CreatedAt: entry.CreatedAt.UTC(),
	}}, err
}

type heartbeatBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	LeaseSeconds *int32          `json:"lease_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long the lease lasts from now on. Default: the length of the claim"`
	Progress     json.RawMessage `json:"progress,omitempty" doc:"Any JSON; shown with the job"`
}

// heartbeatView is a lease that a heartbeat has extended.
type heartbeatView struct {
	ID         int64     `json:"id"`
	WorkerID   string    `json:"worker_id"`
	LeaseUntil time.Time `json:"lease_until"`
}

func (s *Server) heartbeatJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[heartbeatView], error) {
	body, job, err := readReport[heartbeatBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	var leaseFor *time.Duration
	if body.LeaseSeconds != nil {
		d := time.Duration(*body.LeaseSeconds) * time.Second
		leaseFor = &d
	}
	until, err := pg.HeartbeatJob(ctx, s.client.Pool(), job, leaseFor, body.Progress)
	return &bodyOf[heartbeatView]{heartbeatView{job.ID, job.Worker, until.UTC()}}, err
}

type completeBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	in.Ended
	Result json.RawMessage `json:"result,omitempty" doc:"Any JSON; shown with the job"`
}

func (s *Server) completeJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[recordedView], error) {
	body, job, err := readReport[completeBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	code, took, err := readEnd(body.Ended)
	if err != nil {
		return nil, err
	}
	report, err := pg.CompleteJob(ctx, s.client.Pool(), job, pg.JobDone{
		StatusCode: code, ExecutionTimeMS: took, Result: body.Result,
	})
	return &bodyOf[recordedView]{recordedView{
		ID: report.Job, WorkerID: report.Worker, Action: report.Action, StatusCode: report.StatusCode,
		ExecutionTimeMS: report.ExecutionTimeMS, CreatedAt: report.CreatedAt.UTC(),
	}}, err
}

type failBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	in.Ended
	ErrorMessage string  `json:"error_message,omitempty" example:"Connection timeout: mail server unreachable. Will retry."`
	Permanent    bool    `json:"permanent,omitempty" doc:"The job is FAILED at once, without further attempts"`
	RetryIn      *period `json:"retry_in,omitempty" doc:"The time until the next attempt. Default: the job's retry_delays"`
}

// failureView is a recorded failure.
type failureView struct {
	ID              int64      `json:"id"`
	WorkerID        string     `json:"worker_id"`
	Action          string     `json:"action" example:"FAILED"`
	StatusCode      *int       `json:"status_code,omitempty"`
	ErrorMessage    string     `json:"error_message,omitempty"`
	ExecutionTimeMS *int64     `json:"execution_time_ms,omitempty"`
	RetryScheduled  bool       `json:"retry_scheduled"`
	NextRetryAt     *time.Time `json:"next_retry_at,omitempty"`
	CreatedAt       time.Time  `json:"created_at"`
}

// exhaustedView is the response when the last attempt failed. It is the only error
// response that is not a problem.
type exhaustedView struct {
	Error      string `json:"error" example:"Max retries exceeded"`
	RetryCount int    `json:"retry_count"`
	MaxRetries int    `json:"max_retries"`
}

type failOutput struct {
	Status int
	Body   any
}

// failedWithEventID is an answer about a failure in the compatible spelling. That about the last attempt is the same.
func failedWithEventID(output *failOutput) *failOutput {
	if failure, ok := output.Body.(failureView); ok {
		output.Body = compatible[failureView]{failure}
	}
	return output
}

func (s *Server) failJob(ctx context.Context, c caller, input *jobBodyInput) (*failOutput, error) {
	body, job, err := readReport[failBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	code, took, err := readEnd(body.Ended)
	if err != nil {
		return nil, err
	}
	report, err := pg.FailJob(ctx, s.client.Pool(), job, pg.JobFailure{
		Error: body.ErrorMessage, StatusCode: code, ExecutionTimeMS: took,
		Permanent: body.Permanent, RetryIn: (*time.Duration)(body.RetryIn),
	})
	if err != nil {
		return nil, err
	}
	scheduled := valueOf(report.RetryScheduled)
	if !scheduled && !report.Repeated && !body.Permanent {
		return &failOutput{http.StatusBadRequest, exhaustedView{
			"Max retries exceeded", valueOf(report.RetryCount), valueOf(report.MaxRetries),
		}}, nil
	}
	return &failOutput{http.StatusOK, failureView{
		ID: report.Job, WorkerID: report.Worker, Action: report.Action, StatusCode: report.StatusCode,
		ErrorMessage: report.ErrorMessage, ExecutionTimeMS: report.ExecutionTimeMS, RetryScheduled: scheduled,
		NextRetryAt: utc(valueOf(report.NextRetryAt)), CreatedAt: report.CreatedAt.UTC(),
	}}, nil
}

// valueOf returns the value of a pointer; nil is zero.
func valueOf[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// utc returns a time in UTC; nil for the zero time.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	at := t.UTC()
	return &at
}

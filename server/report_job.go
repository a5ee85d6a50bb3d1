package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type jobReportInput struct {
	in.Namespace
	ID          int64  `path:"id" minimum:"1" doc:"The number of the job"`
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte
}

// reportBody is what a worker says of its job.
type reportBody interface{ Reporter() in.Worker }

// readReport reads what a worker says, and which job it says that it has.
func readReport[B reportBody](c caller, input *jobReportInput) (body B, held pg.HeldJob, err error) {
	if err = decodeLenient(input.ContentType, input.RawBody, &body); err == nil {
		held, err = heldBy(body.Reporter(), c, input.ID)
	}
	return body, held, err
}

// heldBy is the job that a worker says it has.
func heldBy(worker in.Worker, c caller, id int64) (pg.HeldJob, error) {
	held := pg.HeldJob{ID: id, Worker: worker.WorkerID, Namespace: c.namespace}
	if worker.WorkerID == "" {
		return held, badRequest("worker_id is missing", "Give the one that took the job.")
	}
	if worker.Attempt != nil {
		if *worker.Attempt < 1 { // 0 would mean any
			return held, badRequest("attempt must be 1 or more", "Give the one that came with the job, or leave it out.")
		}
		held.Attempt = int(*worker.Attempt)
	}
	return held, nil
}

// figures are what there is to say of an attempt that ended.
func figures(ended in.Ended) (statusCode *int, executionTimeMS *int64, err error) {
	if ended.ExecutionTimeMS != nil && *ended.ExecutionTimeMS < 0 {
		return nil, nil, badRequest("execution_time_ms must not be negative", "Measure with a clock that only goes forward.")
	}
	if ended.StatusCode != nil {
		code := int(*ended.StatusCode)
		statusCode = &code
	}
	return statusCode, ended.ExecutionTimeMS, nil
}

// recordedView is what was recorded.
type recordedView struct {
	EventID         int64     `json:"event_id" example:"1001"`
	WorkerID        string    `json:"worker_id" example:"worker-02:8742"`
	Action          string    `json:"action" example:"COMPLETED"`
	StatusCode      *int      `json:"status_code,omitempty"`
	ExecutionTimeMS *int64    `json:"execution_time_ms,omitempty"`
	CreatedAt       time.Time `json:"created_at"`
}

type recordedOutput struct{ Body recordedView }

type startBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
}

func (s *Server) startJob(ctx context.Context, c caller, input *jobReportInput) (*recordedOutput, error) {
	_, held, err := readReport[startBody](c, input)
	if err != nil {
		return nil, err
	}
	entry, err := pg.StartJob(ctx, s.client.Pool(), held)
	return &recordedOutput{recordedView{
		EventID: entry.Job, WorkerID: entry.Worker, Action: entry.Action, CreatedAt: entry.CreatedAt.UTC(),
	}}, err
}

type heartbeatBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	LeaseSeconds *int32          `json:"lease_seconds,omitempty" minimum:"1" maximum:"86400" doc:"From now. Default: as long as the job was taken for"`
	Progress     json.RawMessage `json:"progress,omitempty" doc:"Any JSON; shown with the job"`
}

type heartbeatOutput struct {
	Body struct {
		EventID    int64     `json:"event_id"`
		WorkerID   string    `json:"worker_id"`
		LeaseUntil time.Time `json:"lease_until"`
	}
}

// defaultLease is how long a job is a worker's if nothing is said.
const defaultLease = 5 * time.Minute

func (s *Server) heartbeatJob(ctx context.Context, c caller, input *jobReportInput) (*heartbeatOutput, error) {
	body, held, err := readReport[heartbeatBody](c, input)
	if err != nil {
		return nil, err
	}
	var leaseFor *time.Duration
	if body.LeaseSeconds != nil {
		d := time.Duration(*body.LeaseSeconds) * time.Second
		leaseFor = &d
	}
	var output heartbeatOutput
	output.Body.EventID, output.Body.WorkerID = held.ID, held.Worker
	output.Body.LeaseUntil, err = pg.HeartbeatJob(ctx, s.client.Pool(), held, leaseFor, body.Progress)
	output.Body.LeaseUntil = output.Body.LeaseUntil.UTC()
	return &output, err
}

type completeBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	in.Ended
	Result json.RawMessage `json:"result,omitempty" doc:"Any JSON; shown with the job"`
}

func (s *Server) completeJob(ctx context.Context, c caller, input *jobReportInput) (*recordedOutput, error) {
	body, held, err := readReport[completeBody](c, input)
	if err != nil {
		return nil, err
	}
	code, took, err := figures(body.Ended)
	if err != nil {
		return nil, err
	}
	report, err := pg.CompleteJob(ctx, s.client.Pool(), held, pg.JobDone{
		StatusCode: code, ExecutionTimeMS: took, Result: body.Result,
	})
	return &recordedOutput{recordedView{
		EventID: report.Job, WorkerID: report.Worker, Action: report.Action, StatusCode: report.StatusCode,
		ExecutionTimeMS: report.ExecutionTimeMS, CreatedAt: report.CreatedAt.UTC(),
	}}, err
}

type failBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	in.Ended
	ErrorMessage string  `json:"error_message,omitempty" example:"Connection timeout: mail server unreachable. Will retry."`
	Permanent    bool    `json:"permanent,omitempty" doc:"No further attempt makes sense"`
	RetryIn      *period `json:"retry_in,omitempty" doc:"When to try again. Default: as the job's own delays say"`
}

// failureView is what was recorded of a failure.
type failureView struct {
	EventID         int64      `json:"event_id"`
	WorkerID        string     `json:"worker_id"`
	Action          string     `json:"action" example:"FAILED"`
	StatusCode      *int       `json:"status_code,omitempty"`
	ErrorMessage    string     `json:"error_message,omitempty"`
	ExecutionTimeMS *int64     `json:"execution_time_ms,omitempty"`
	RetryScheduled  bool       `json:"retry_scheduled"`
	NextRetryAt     *time.Time `json:"next_retry_at,omitempty"`
	CreatedAt       time.Time  `json:"created_at"`
}

// exhaustedView is the one error of these routes that is no problem detail.
type exhaustedView struct {
	Error      string `json:"error" example:"Max retries exceeded"`
	RetryCount int    `json:"retry_count"`
	MaxRetries int    `json:"max_retries"`
}

type failOutput struct {
	Status int
	Body   any
}

func (s *Server) failJob(ctx context.Context, c caller, input *jobReportInput) (*failOutput, error) {
	body, held, err := readReport[failBody](c, input)
	if err != nil {
		return nil, err
	}
	code, took, err := figures(body.Ended)
	if err != nil {
		return nil, err
	}
	report, err := pg.FailJob(ctx, s.client.Pool(), held, pg.JobFailure{
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
		EventID: report.Job, WorkerID: report.Worker, Action: report.Action, StatusCode: report.StatusCode,
		ErrorMessage: report.ErrorMessage, ExecutionTimeMS: report.ExecutionTimeMS, RetryScheduled: scheduled,
		NextRetryAt: utc(valueOf(report.NextRetryAt)), CreatedAt: report.CreatedAt.UTC(),
	}}, nil
}

// valueOf is a value that may be missing; zero if it is.
func valueOf[T any](v *T) T {
	if v == nil {
		var none T
		return none
	}
	return *v
}

// utc is a time in UTC; none if it is zero.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	moment := t.UTC()
	return &moment
}

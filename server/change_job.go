package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// jobsToChange registers the routes that put a job off, change it, or delete it.
func (s *Server) jobsToChange() {
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/snooze", id: "snooze-job", tag: "jobs",
		summary: "Put a job off, without a failure",
		description: "The job is due again after snooze_for. retry_count stays. " +
			"A repeated request is answered with the recorded entry.",
		scope: scopeJobsWork, body: jsonBody[snoozeBody](s),
	}, s.snoozeJob)
	register(s, operation{
		method: http.MethodPatch, path: "/events/{id}", id: "change-job", tag: "jobs",
		summary:     "Change a pending job",
		description: "Changes the payload, the priority or run_at; absent fields stay as they are. 409: the job is not pending.",
		scope:       scopeJobsCreate, body: jsonBody[jobChangeBody](s),
	}, s.patchJob)
	register(s, operation{
		method: http.MethodDelete, path: "/events/{id}", id: "delete-job", tag: "jobs",
		summary:     "Delete a pending job",
		description: "409: the job is not pending. A finished job is dropped by retention.",
		scope:       scopeJobsCreate, status: http.StatusNoContent,
	}, s.deleteJob)
}

type snoozeBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	SnoozeFor period `json:"snooze_for" doc:"The time until the job is due again"`
	Reason    string `json:"reason,omitempty" maxLength:"1000" doc:"Goes into the log" example:"the bank is closed"`
}

type snoozeOutput struct {
	Body struct {
		EventID     int64      `json:"event_id"`
		WorkerID    string     `json:"worker_id"`
		Action      string     `json:"action" example:"SNOOZED"`
		NextRetryAt *time.Time `json:"next_retry_at"`
		CreatedAt   time.Time  `json:"created_at"`
	}
}

func (s *Server) snoozeJob(ctx context.Context, c caller, input *jobReportInput) (*snoozeOutput, error) {
	body, held, err := readReport[snoozeBody](c, input)
	if err != nil {
		return nil, err
	}
	if body.SnoozeFor == 0 {
		return nil, badRequest("snooze_for is missing", `Give the time until the job is due again, such as "5m".`)
	}
	report, err := pg.SnoozeJob(ctx, s.client.Pool(), held, time.Duration(body.SnoozeFor), body.Reason)
	if err != nil {
		return nil, err
	}
	output := &snoozeOutput{}
	output.Body.EventID, output.Body.WorkerID, output.Body.Action = report.Job, report.Worker, report.Action
	output.Body.NextRetryAt, output.Body.CreatedAt = utc(valueOf(report.NextRetryAt)), report.CreatedAt.UTC()
	return output, nil
}

type jobChangeBody struct {
	_        struct{}        `additionalProperties:"true"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"Any JSON, up to 1 MiB"`
	Priority *int32          `json:"priority,omitempty" doc:"Higher goes first"`
	RunAt    *time.Time      `json:"run_at,omitempty" doc:"Not before"`
}

type patchJobInput struct {
	in.Namespace
	ID          int64  `path:"id" minimum:"1" doc:"The number of the job"`
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte
}

func (s *Server) patchJob(ctx context.Context, c caller, input *patchJobInput) (*jobOutput, error) {
	var body jobChangeBody
	if err := decodeLenient(input.ContentType, input.RawBody, &body); err != nil {
		return nil, err
	}
	if body.Payload == nil && body.Priority == nil && body.RunAt == nil {
		return nil, badRequest("the body changes nothing", "Give payload, priority or run_at.")
	}
	change := admin.JobChange{Payload: body.Payload, RunAt: valueOf(body.RunAt)}
	if body.Priority != nil {
		priority := int(*body.Priority)
		change.Priority = &priority
	}
	return s.changeJob(ctx, c, &manageJobInput{ID: input.ID}, func(a *admin.Admin, ctx context.Context, id int64, _ string) error {
		return a.ChangeJob(ctx, id, change)
	})
}

type deleteJobInput struct {
	in.Namespace
	ID int64 `path:"id" minimum:"1" doc:"The number of the job"`
}

func (s *Server) deleteJob(ctx context.Context, c caller, input *deleteJobInput) (*struct{}, error) {
	return nil, s.admin(c).DeleteJob(ctx, input.ID)
}

package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

// jobsToChange registers the routes that postpone, change, delete, reset and cancel a
// job.
func (s *Server) jobsToChange() {
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/snooze", id: "snooze-job", tag: "jobs",
		summary: "Snooze a job: postpone it without a failure",
		description: "The job is due again after snooze_for. retry_count stays. " +
			"A repeated report returns the recorded one.",
		scope: scopeJobsWork, body: jsonBody[snoozeBody](s),
	}, s.snoozeJob, withEventID)
	change := routeOf(op.ChangeJob)
	change.body = jsonBody[jobChangeBody](s)
	registerJob(s, change, s.patchJob, asItIs)
	remove := routeOf(op.DeleteJobs.Single())
	remove.status = http.StatusNoContent
	registerJob(s, remove, s.deleteJob, asItIs)
	registerJob(s, routeOf(op.RetryJobs.Single()), s.resetJob, asItIs)
	registerJob(s, routeOf(op.CancelJob), s.cancelJob, asItIs)
}

type snoozeBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	SnoozeFor *period `json:"snooze_for" doc:"The time until the job is due again"`
	Reason    string  `json:"reason,omitempty" maxLength:"1000" doc:"Recorded in the log of the job" example:"the bank is closed"`
}

// snoozedView is a recorded snooze.
type snoozedView struct {
	ID          int64      `json:"id"`
	WorkerID    string     `json:"worker_id"`
	Action      string     `json:"action" example:"SNOOZED"`
	NextRetryAt *time.Time `json:"next_retry_at"`
	CreatedAt   time.Time  `json:"created_at"`
}

func (s *Server) snoozeJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[snoozedView], error) {
	body, job, err := readReport[snoozeBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	if body.SnoozeFor == nil {
		return nil, badRequest("snooze_for is missing", `Give the time until the job is due again, such as "5m".`)
	}
	report, err := pg.SnoozeJob(ctx, s.client.Pool(), job, time.Duration(*body.SnoozeFor), body.Reason)
	if err != nil {
		return nil, err
	}
	return &bodyOf[snoozedView]{snoozedView{
		report.Job, report.Worker, report.Action, utc(valueOf(report.NextRetryAt)), report.CreatedAt.UTC(),
	}}, nil
}

type jobChangeBody struct {
	_        struct{}        `additionalProperties:"true"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"Any JSON, up to 1 MiB"`
	Priority *int32          `json:"priority,omitempty" doc:"Jobs of higher priority are claimed first"`
	RunAt    *time.Time      `json:"run_at,omitempty" doc:"The time before which the job is not claimed"`
}

func (s *Server) patchJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[jobView], error) {
	var body jobChangeBody
	if err := decodeLenient(ctx, input.ContentType, input.RawBody, &body); err != nil {
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
	return s.changeJob(ctx, c, &changeJobInput{ByID: input.ByID}, func(a *admin.Admin, ctx context.Context, id int64, _ string) error {
		return a.ChangeJob(ctx, id, change)
	})
}

func (s *Server) deleteJob(ctx context.Context, c caller, input *in.ByID) (*struct{}, error) {
	return nil, s.admin(c).DeleteJob(ctx, input.ID)
}

type changeJobInput struct {
	in.ByID
	Reason string `query:"reason" maxLength:"1000" doc:"Recorded in the log of the job" example:"worker_timeout"`
}

func (s *Server) resetJob(ctx context.Context, c caller, input *changeJobInput) (*bodyOf[jobView], error) {
	return s.changeJob(ctx, c, input, (*admin.Admin).ResetJob)
}

func (s *Server) cancelJob(ctx context.Context, c caller, input *op.CancelJobInput) (*bodyOf[jobView], error) {
	return s.changeJob(ctx, c, &changeJobInput{input.ByID, input.Reason}, func(a *admin.Admin, ctx context.Context, id int64, reason string) error {
		return a.CancelJobAnd(ctx, id, reason, input.JobsAfter)
	})
}

// changeJob changes a job and returns it, in one transaction: otherwise a worker could
// claim the job in between.
func (s *Server) changeJob(ctx context.Context, c caller, input *changeJobInput,
	change func(a *admin.Admin, ctx context.Context, id int64, reason string) error,
) (*bodyOf[jobView], error) {
	var output bodyOf[jobView]
	err := pgx.BeginFunc(ctx, s.client.Pool(), func(tx pgx.Tx) error {
		a := s.admin(c).In(tx)
		if err := change(a, ctx, input.ID, input.Reason); err != nil {
			return err
		}
		job, err := a.Job(ctx, input.ID)
		output.Body = viewOfJob(job)
		return err
	})
	return &output, err
}

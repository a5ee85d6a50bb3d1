package server

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

// jobView is a job. The fields after updated_at are left out when they are empty.
type jobView struct {
	ID          int64           `json:"id" example:"1001"`
	Title       string          `json:"title"`
	Description *string         `json:"description"`
	Tags        string          `json:"tags" example:"email,priority-high,notification"`
	Status      string          `json:"status" enum:"PENDING,PROCESSING,COMPLETED,FAILED,CANCELLED"`
	Payload     json.RawMessage `json:"payload"`
	RetryCount  int             `json:"retry_count" doc:"How many attempts have failed"`
	MaxRetries  int             `json:"max_retries" doc:"How many attempts may fail"`
	NextRetryAt *time.Time      `json:"next_retry_at"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`

	Priority     int             `json:"priority,omitempty"`
	RunAt        *time.Time      `json:"run_at,omitempty" doc:"The time before which it is not claimed, if it is later than created_at"`
	UniqueKey    string          `json:"unique_key,omitempty"`
	FairKey      string          `json:"fair_key,omitempty" doc:"Under each tag, jobs of the same priority take turns by this key"`
	Weight       float64         `json:"weight,omitempty" doc:"The share of fair_key"`
	WorkerID     string          `json:"worker_id,omitempty" doc:"The worker that has it, while it is PROCESSING"`
	Attempt      int             `json:"attempt,omitempty" doc:"The current attempt, while it is PROCESSING"`
	LeaseUntil   *time.Time      `json:"lease_until,omitempty" doc:"The end of the lease, while it is PROCESSING"`
	Stalled      bool            `json:"stalled,omitempty" doc:"Its worker has sent no report and no heartbeat for 30 seconds"`
	State        string          `json:"state,omitempty" enum:"ready,later,retry,asleep,waiting for an event,behind other jobs,held back by a limit,paused,running,completed,failed,cancelled" doc:"Why it does not run, or how it ended"`
	Why          string          `json:"why,omitempty" doc:"A sentence about the state, for people"`
	Progress     json.RawMessage `json:"progress,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty" doc:"The error of the last failed attempt"`
	WaitsFor     []int64         `json:"waits_for,omitempty" doc:"Jobs that must be COMPLETED before it is claimed, up to 100; GET /v1/jobs/{id}/waits has their statuses"`
	Logs         []jobEntryView  `json:"logs,omitzero" doc:"The newest 10,000 entries of the log of the job, in order, if include_logs is given"`
}

func viewOfJob(j admin.JobStatus) jobView {
	view := jobView{
		ID: j.ID, Title: j.Title, Tags: joinTags(j.Tags), Status: j.Status, Payload: j.Payload,
		RetryCount: j.RetryCount, MaxRetries: j.MaxRetries, NextRetryAt: utc(j.NextRetryAt),
		CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(),
		Priority: j.Priority, UniqueKey: j.UniqueKey, FairKey: j.FairKey, Weight: j.Weight, Stalled: j.Stalled, State: j.State, Why: j.Why, Progress: j.Progress, Result: j.Result,
		ErrorMessage: j.ErrorMessage, WaitsFor: j.WaitsFor,
	}
	if strings.HasPrefix(j.UniqueKey, idempotencyKeys) {
		view.UniqueKey = "" // made of the Idempotency-Key, which is not part of the job
	}
	if j.Description != "" {
		view.Description = &j.Description
	}
	if j.RunAt.After(j.CreatedAt) {
		view.RunAt = utc(j.RunAt)
	}
	if j.Status == "PROCESSING" {
		view.WorkerID, view.Attempt, view.LeaseUntil = j.Worker, j.Attempt, utc(j.LeaseUntil)
	}
	return view
}

// jobEntryView is an entry in the log of a job.
type jobEntryView struct {
	ID              int64     `json:"id" example:"5001"`
	WorkerID        string    `json:"worker_id,omitempty"`
	Action          string    `json:"action" enum:"PICKED,STARTED,COMPLETED,FAILED,EXPIRED,RESET,CANCELLED,SNOOZED,CHANGED"`
	StatusCode      *int      `json:"status_code,omitempty"`
	ErrorMessage    string    `json:"error_message,omitempty"`
	ExecutionTimeMS *int64    `json:"execution_time_ms,omitempty"`
	Reason          string    `json:"reason,omitempty" doc:"Of RESET, CANCELLED, SNOOZED and CHANGED"`
	CreatedAt       time.Time `json:"created_at"`
}

func viewOfEntry(e admin.JobEntry) jobEntryView {
	return jobEntryView{
		ID: e.ID, WorkerID: e.Worker, Action: e.Action, StatusCode: e.StatusCode, ErrorMessage: e.ErrorMessage,
		ExecutionTimeMS: e.ExecutionTimeMS, Reason: e.Reason, CreatedAt: e.CreatedAt.UTC(),
	}
}

type getJobInput struct {
	in.ByID
	IncludeLogs bool `query:"include_logs" doc:"true: the response includes the newest 10,000 entries of the log of the job"`
}

func (s *Server) getJob(ctx context.Context, c caller, input *getJobInput) (*bodyOf[jobView], error) {
	job, err := s.admin(c).Job(ctx, input.ID)
	if err != nil {
		return nil, err
	}
	output := &bodyOf[jobView]{viewOfJob(job)}
	if !input.IncludeLogs {
		return output, nil
	}
	history, err := s.admin(c).JobLog(ctx, input.ID)
	output.Body.Logs = make([]jobEntryView, len(history))
	for i, entry := range history {
		output.Body.Logs[i] = viewOfEntry(entry)
	}
	return output, err
}

type jobWaitsView struct {
	Waits []admin.JobWait `json:"waits"`
}

func (s *Server) waitsOfJob(ctx context.Context, c caller, input *in.ByID) (*bodyOf[jobWaitsView], error) {
	waits, err := op.ListJobWaits.Call(ctx, s.admin(c), &op.ByID{ID: input.ID})
	return &bodyOf[jobWaitsView]{jobWaitsView{waits}}, err
}

func (s *Server) jobTimeline(ctx context.Context, c caller, input *in.ByID) (*bodyOf[admin.JobTimeline], error) {
	timeline, err := op.GetJobTimeline.Call(ctx, s.admin(c), &op.ByID{ID: input.ID})
	return &bodyOf[admin.JobTimeline]{timeline}, err
}

type listJobsInput struct {
	in.Namespace
	admin.JobFilter
}

// listedJobView is a job in a list.
type listedJobView struct {
	ID          int64      `json:"id"`
	Title       string     `json:"title"`
	Status      string     `json:"status"`
	Tags        string     `json:"tags"`
	RetryCount  int        `json:"retry_count"`
	NextRetryAt *time.Time `json:"next_retry_at,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	Stalled     bool       `json:"stalled,omitempty"`
	State       string     `json:"state"`
	Why         string     `json:"why"`
}

type jobsView struct {
	Jobs   []listedJobView `json:"jobs"`
	Total  int64           `json:"total" doc:"The number of jobs on all pages"`
	Limit  int             `json:"limit"`
	Offset int64           `json:"offset"`
}

func (s *Server) listJobs(ctx context.Context, c caller, input *listJobsInput) (*bodyOf[jobsView], error) {
	filter := input.JobFilter
	if err := cleanTags(filter.Tags); err != nil {
		return nil, err
	}
	jobs, err := s.admin(c).Jobs(ctx, filter)
	if err != nil {
		return nil, err
	}
	var output bodyOf[jobsView]
	output.Body.Limit, output.Body.Offset = input.Limit, input.Offset
	output.Body.Jobs = make([]listedJobView, len(jobs))
	for i, j := range jobs {
		output.Body.Jobs[i] = listedJobView{
			ID: j.ID, Title: j.Title, Status: j.Status, Tags: joinTags(j.Tags), RetryCount: j.RetryCount,
			NextRetryAt: utc(j.NextRetryAt), CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(), Stalled: j.Stalled, State: j.State, Why: j.Why,
		}
	}
	output.Body.Total, err = s.admin(c).CountJobs(ctx, filter)
	return &output, err
}

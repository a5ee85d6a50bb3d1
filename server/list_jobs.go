package server

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

// jobView is a job with all there is to say of it. From priority on, it has
// what says something.
type jobView struct {
	ID          int64           `json:"id" example:"1001"`
	Title       string          `json:"title"`
	Description *string         `json:"description"`
	Tags        string          `json:"tags" example:"email,priority-high,notification"`
	Status      string          `json:"status" enum:"PENDING,PROCESSING,COMPLETED,FAILED,CANCELLED"`
	Payload     json.RawMessage `json:"payload"`
	RetryCount  int             `json:"retry_count" doc:"How many attempts have failed"`
	MaxRetries  int             `json:"max_retries" doc:"How many may"`
	NextRetryAt *time.Time      `json:"next_retry_at"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`

	Priority     int             `json:"priority,omitempty"`
	RunAt        *time.Time      `json:"run_at,omitempty" doc:"If it was to run later than it was enqueued"`
	UniqueKey    string          `json:"unique_key,omitempty"`
	WorkerID     string          `json:"worker_id,omitempty" doc:"Who has it, while it is PROCESSING"`
	Attempt      int             `json:"attempt,omitempty" doc:"While it is PROCESSING"`
	LeaseUntil   *time.Time      `json:"lease_until,omitempty" doc:"While it is PROCESSING"`
	Stalled      bool            `json:"stalled,omitempty" doc:"Its worker has said nothing for 30 seconds"`
	Progress     json.RawMessage `json:"progress,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty" doc:"Why it has FAILED"`
	Logs         []jobEntryView  `json:"logs,omitzero" doc:"What was done to it, in order; with include_logs"`
}

func viewOfJob(j admin.JobStatus) jobView {
	view := jobView{
		ID: j.ID, Title: j.Title, Tags: joinTags(j.Tags), Status: j.Status, Payload: j.Payload,
		RetryCount: j.RetryCount, MaxRetries: j.MaxRetries, NextRetryAt: utc(j.NextRetryAt),
		CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(),
		Priority: j.Priority, UniqueKey: j.UniqueKey, Stalled: j.Stalled, Progress: j.Progress, Result: j.Result,
		ErrorMessage: j.ErrorMessage,
	}
	if strings.HasPrefix(j.UniqueKey, idempotencyKeys) {
		view.UniqueKey = "" // it was no part of the job
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

// jobEntryView is an entry of the log of a job.
type jobEntryView struct {
	ID              int64     `json:"id" example:"5001"`
	WorkerID        string    `json:"worker_id,omitempty"`
	Action          string    `json:"action" enum:"PICKED,STARTED,COMPLETED,FAILED,EXPIRED,RESET,CANCELLED"`
	StatusCode      *int      `json:"status_code,omitempty"`
	ErrorMessage    string    `json:"error_message,omitempty"`
	ExecutionTimeMS *int64    `json:"execution_time_ms,omitempty"`
	Reason          string    `json:"reason,omitempty" doc:"Of RESET and CANCELLED"`
	CreatedAt       time.Time `json:"created_at"`
}

func viewOfEntry(e admin.JobEntry) jobEntryView {
	return jobEntryView{
		ID: e.ID, WorkerID: e.Worker, Action: e.Action, StatusCode: e.StatusCode, ErrorMessage: e.ErrorMessage,
		ExecutionTimeMS: e.ExecutionTimeMS, Reason: e.Reason, CreatedAt: e.CreatedAt.UTC(),
	}
}

type getJobInput struct {
	in.Namespace
	ID          int64 `path:"id" minimum:"1" doc:"The number of the job"`
	IncludeLogs bool  `query:"include_logs" doc:"With what was done to it"`
}

type jobOutput struct{ Body jobView }

func (s *Server) getJob(ctx context.Context, c caller, input *getJobInput) (*jobOutput, error) {
	job, err := s.admin(c).Job(ctx, input.ID)
	if err != nil {
		return nil, err
	}
	output := &jobOutput{viewOfJob(job)}
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

type listJobsInput struct {
	in.Namespace
	Status  string `query:"status" enum:"PENDING,PROCESSING,COMPLETED,FAILED,CANCELLED"`
	Tags    string `query:"tags" doc:"Separated by commas: the job has any of them"`
	Stalled string `query:"stalled" enum:"true,false" doc:"Only those whose worker has said nothing for 30 seconds, or only others"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"20"`
	Offset  int64  `query:"offset" minimum:"0" maximum:"1000000000" default:"0"`
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
}

type listJobsOutput struct {
	Body struct {
		Events []listedJobView `json:"events"`
		Total  int64           `json:"total" doc:"How many there are, on all pages"`
		Limit  int             `json:"limit"`
		Offset int64           `json:"offset"`
	}
}

func (s *Server) listJobs(ctx context.Context, c caller, input *listJobsInput) (*listJobsOutput, error) {
	filter := admin.JobFilter{Status: input.Status, Limit: input.Limit, Offset: input.Offset}
	if input.Tags != "" {
		var err error
		if filter.Tags, err = splitTags(input.Tags); err != nil {
			return nil, err
		}
	}
	if input.Stalled != "" {
		stalled := input.Stalled == "true"
		filter.Stalled = &stalled
	}
	jobs, err := s.admin(c).Jobs(ctx, filter)
	if err != nil {
		return nil, err
	}
	var output listJobsOutput
	output.Body.Limit, output.Body.Offset = input.Limit, input.Offset
	output.Body.Events = make([]listedJobView, len(jobs))
	for i, j := range jobs {
		output.Body.Events[i] = listedJobView{
			ID: j.ID, Title: j.Title, Status: j.Status, Tags: joinTags(j.Tags), RetryCount: j.RetryCount,
			NextRetryAt: utc(j.NextRetryAt), CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(), Stalled: j.Stalled,
		}
	}
	output.Body.Total, err = s.admin(c).CountJobs(ctx, filter)
	return &output, err
}

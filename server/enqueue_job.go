package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// newJob is a job to enqueue.
type newJob struct {
	_           struct{}        `additionalProperties:"true"`
	Title       string          `json:"title" doc:"The task in a few words" example:"Send Email Notification"`
	Description *string         `json:"description,omitempty"`
	Tags        string          `json:"tags" doc:"Separated by commas. Workers claim jobs by their tags" example:"email,priority-high,notification"`
	Payload     json.RawMessage `json:"payload,omitempty" doc:"Any JSON, up to 1 MiB. Default: {}"`
	MaxRetries  *int32          `json:"max_retries,omitempty" doc:"How many attempts may fail. Default: 3"`
	Priority    int32           `json:"priority,omitempty" doc:"Jobs of higher priority are claimed first. Default: 0"`
	RunAt       *time.Time      `json:"run_at,omitempty" doc:"The time before which the job is not claimed. Default: now"`
	UniqueKey   *string         `json:"unique_key,omitempty" doc:"While a job with this key is pending, enqueueing another one returns the pending job"`
	UniqueFor   *period         `json:"unique_for,omitempty" doc:"Keeps unique_key in use for this time, even when the job is finished"`
	FairKey     *string         `json:"fair_key,omitempty" doc:"Under each tag, jobs of the same priority take turns by this key, such as the name of a tenant"`
	Weight      *float64        `json:"weight,omitempty" doc:"The share of fair_key: 2 is twice as many turns as 1. From 0.001 to 1000. Default: 1"`
	RetryDelays []period        `json:"retry_delays,omitempty" maxItems:"1000" doc:"The delay after each failed attempt; the last one applies to all further attempts. Default: 5 minutes"`
	After       []int64         `json:"after,omitempty" maxItems:"10000" doc:"The ids of jobs that must be COMPLETED before this one is claimed" example:"[1001]"`
}

type enqueueInput struct {
	in.Namespace
	ContentType    string `header:"Content-Type" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Requests with the same key within a day enqueue one job"`
	TraceParent    string `header:"traceparent" doc:"Returned to the worker that claims the job, as tracestate is"`
	RawBody        []byte
}

type enqueueOutput struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same key enqueued this job"`
	Body     jobView
}

func (s *Server) enqueueJob(ctx context.Context, c caller, input *enqueueInput) (*enqueueOutput, error) {
	var body newJob
	if err := decodeLenient(ctx, input.ContentType, input.RawBody, &body); err != nil {
		return nil, err
	}
	job, err := convertJob(&body, input, traceOf(ctx))
	if err != nil {
		return nil, err
	}
	made, err := pg.EnqueueJob(ctx, s.client.Pool(), c.namespace, job)
	if err != nil {
		return nil, err
	}
	output := &enqueueOutput{Status: http.StatusCreated, Location: fmt.Sprint(jobsPath+"/", made.ID)}
	if made.New {
		// Not read from the database, where a worker may have claimed it already.
		output.Body = viewOfJob(admin.JobStatus{
			ID: made.ID, Title: job.Title, Description: job.Description, Tags: made.Tags, Status: "PENDING",
			Payload: payloadOf(job), Priority: job.Priority, RunAt: runAt(job, made), MaxRetries: *job.MaxRetries,
			UniqueKey: job.UniqueKey, FairKey: job.FairKey, Weight: weightOf(job), CreatedAt: made.CreatedAt, UpdatedAt: made.CreatedAt,
		})
		return output, nil
	}
	existing, err := s.admin(c).Job(ctx, made.ID)
	if err != nil {
		return nil, err
	}
	if input.IdempotencyKey != "" {
		if !isReplay(job, existing) {
			return nil, newProblem(http.StatusConflict, "this Idempotency-Key was used for another job",
				fmt.Sprintf("It enqueued job %d. Use a new key for each job, and repeat a key only with the same job.", existing.ID))
		}
		output.Replayed = "true"
	}
	existing.State, existing.Why = "", "" // as in the answer to the first call
	output.Status, output.Body = http.StatusOK, viewOfJob(existing)
	return output, nil
}

// atEvents is the answer in the compatible spelling: the same job, at its path there.
func atEvents(output *enqueueOutput) *enqueueOutput {
	output.Location = compatiblePath + strings.TrimPrefix(output.Location, jobsPath)
	return output
}

const (
	idempotencyKeys = "idempotency-key:" // the prefix of unique keys that are made of Idempotency-Key
	idempotentFor   = 24 * time.Hour
	defaultRetries  = 3
)

func convertJob(body *newJob, input *enqueueInput, trace json.RawMessage) (pg.NewJob, error) {
	tags, err := splitTags(body.Tags)
	if err != nil {
		return pg.NewJob{}, err
	}
	retries := defaultRetries
	if body.MaxRetries != nil {
		retries = int(*body.MaxRetries)
	}
	job := pg.NewJob{
		Title: body.Title, Tags: tags, Payload: body.Payload, Priority: int(body.Priority), RunAt: body.RunAt,
		MaxRetries: &retries, Metadata: trace, After: body.After,
	}
	if body.Description != nil {
		job.Description = *body.Description
	}
	for _, delay := range body.RetryDelays {
		job.RetryDelays = append(job.RetryDelays, time.Duration(delay))
	}
	if err := setFairKey(&job, body); err != nil {
		return job, err
	}
	return job, setKey(&job, body, input.IdempotencyKey)
}

func setFairKey(job *pg.NewJob, body *newJob) error {
	switch {
	case body.FairKey != nil && *body.FairKey == "":
		return badRequest("fair_key is empty", "Leave it out, or give a key, such as the name of a tenant.")
	case body.FairKey != nil:
		job.FairKey = *body.FairKey
	}
	if body.Weight != nil {
		job.Weight = *body.Weight
		if job.Weight == 0 {
			return badRequest("weight must be 0.001 to 1000", "Leave it out for 1.")
		}
	}
	return nil
}

// weightOf is the weight of a new job as the database shows it.
func weightOf(job pg.NewJob) float64 {
	if job.FairKey == "" {
		return 0
	}
	return cmp.Or(job.Weight, 1)
}

func setKey(job *pg.NewJob, body *newJob, idempotencyKey string) error {
	switch {
	case body.UniqueKey != nil && idempotencyKey != "":
		return badRequest("the request has both unique_key and Idempotency-Key", "Give one: with unique_key, too, a request can be repeated safely.")
	case !isText(idempotencyKey):
		return badRequest("Idempotency-Key is not valid UTF-8", "Use letters and digits.")
	case idempotencyKey != "":
		job.UniqueKey, job.UniqueFor = idempotencyKeys+idempotencyKey, idempotentFor
	case body.UniqueKey != nil && *body.UniqueKey == "":
		return badRequest("unique_key is empty", "Leave it out, or give a key, such as the id of an order.")
	case body.UniqueKey != nil:
		job.UniqueKey = *body.UniqueKey
	case body.UniqueFor != nil:
		return badRequest("the request has unique_for without unique_key", "Give both, or none.")
	}
	if body.UniqueFor != nil && idempotencyKey == "" {
		job.UniqueFor = time.Duration(*body.UniqueFor)
		if job.UniqueFor == 0 {
			return badRequest("unique_for must be from a second to 10 years", "Leave it out to keep the key in use while the job is pending.")
		}
	}
	return nil
}

func payloadOf(job pg.NewJob) json.RawMessage {
	if len(job.Payload) == 0 {
		return json.RawMessage("{}")
	}
	return job.Payload
}

func runAt(job pg.NewJob, made pg.Enqueued) time.Time {
	if job.RunAt == nil {
		return made.CreatedAt
	}
	return *job.RunAt
}

// isReplay tells whether an existing job is the one that a request describes.
func isReplay(job pg.NewJob, existing admin.JobStatus) bool {
	var sent, stored bytes.Buffer
	_ = json.Compact(&sent, payloadOf(job)) // both are valid JSON
	_ = json.Compact(&stored, existing.Payload)
	return job.Title == existing.Title && job.Description == existing.Description && bytes.Equal(sent.Bytes(), stored.Bytes())
}

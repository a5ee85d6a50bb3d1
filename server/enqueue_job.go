package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// newJob is what is enqueued.
type newJob struct {
	_           struct{}        `additionalProperties:"true"`
	Title       string          `json:"title" doc:"What is to be done, in a few words" example:"Send Email Notification"`
	Description *string         `json:"description,omitempty"`
	Tags        string          `json:"tags" doc:"Which workers want it: separated by commas" example:"email,priority-high,notification"`
	Payload     json.RawMessage `json:"payload,omitempty" doc:"Any JSON, up to 1 MiB. Default: {}"`
	MaxRetries  *int32          `json:"max_retries,omitempty" doc:"How many attempts may fail. Default: 3"`
	Priority    int32           `json:"priority,omitempty" doc:"Higher goes first. Default: 0"`
	RunAt       *time.Time      `json:"run_at,omitempty" doc:"Not before. Default: now"`
	UniqueKey   *string         `json:"unique_key,omitempty" doc:"Makes one job of all that are enqueued under it while it is pending"`
	UniqueFor   *period         `json:"unique_for,omitempty" doc:"How long unique_key counts, whatever becomes of the job"`
	RetryDelays []period        `json:"retry_delays,omitempty" doc:"How long to wait after each failed attempt; the last one counts for all that follow. Default: 5 minutes"`
}

type enqueueInput struct {
	in.Namespace
	ContentType    string `header:"Content-Type" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Makes one job of all requests that have it, for a day"`
	TraceParent    string `header:"traceparent" doc:"The worker gets it, and tracestate"`
	RawBody        []byte
}

type enqueueOutput struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true when the same request made this job before"`
	Body     jobView
}

func (s *Server) enqueueJob(ctx context.Context, c caller, input *enqueueInput) (*enqueueOutput, error) {
	var body newJob
	if err := decodeLenient(input.ContentType, input.RawBody, &body); err != nil {
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
	output := &enqueueOutput{Status: http.StatusCreated, Location: fmt.Sprint("/events/", made.ID)}
	if made.New {
		// It is not read back: a worker may have it by now.
		output.Body = viewOfJob(admin.JobStatus{
			ID: made.ID, Title: job.Title, Description: job.Description, Tags: made.Tags, Status: "PENDING",
			Payload: payloadOf(job), Priority: job.Priority, RunAt: runAt(job, made), MaxRetries: *job.MaxRetries,
			UniqueKey: job.UniqueKey, CreatedAt: made.CreatedAt, UpdatedAt: made.CreatedAt,
		})
		return output, nil
	}
	known, err := s.admin(c).Job(ctx, made.ID)
	if err != nil {
		return nil, err
	}
	if input.IdempotencyKey != "" {
		if !isReplay(job, known) {
			return nil, newProblem(http.StatusConflict, "this Idempotency-Key was used for another job",
				fmt.Sprintf("It made job %d. Use a new key for each job, and the same one only to send the same again.", known.ID))
		}
		output.Replayed = "true"
	}
	output.Status, output.Body = http.StatusOK, viewOfJob(known)
	return output, nil
}

// idempotencyKeys are unique keys under a name of their own.
const (
	idempotencyKeys = "idempotency-key:"
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
		MaxRetries: &retries, Metadata: trace,
	}
	if body.Description != nil {
		job.Description = *body.Description
	}
	for _, delay := range body.RetryDelays {
		job.RetryDelays = append(job.RetryDelays, time.Duration(delay))
	}
	return job, setKey(&job, body, input.IdempotencyKey)
}

func setKey(job *pg.NewJob, body *newJob, idempotencyKey string) error {
	switch {
	case body.UniqueKey != nil && idempotencyKey != "":
		return badRequest("unique_key and Idempotency-Key are both there", "Give one: unique_key also makes it safe to send a job again.")
	case !isText(idempotencyKey):
		return badRequest("Idempotency-Key is not valid UTF-8", "Use letters and digits.")
	case idempotencyKey != "":
		job.UniqueKey, job.UniqueFor = idempotencyKeys+idempotencyKey, idempotentFor
	case body.UniqueKey != nil && *body.UniqueKey == "":
		return badRequest("unique_key is empty", "Leave it out, or give the id of what the job is about.")
	case body.UniqueKey != nil:
		job.UniqueKey = *body.UniqueKey
	case body.UniqueFor != nil:
		return badRequest("unique_for is there without unique_key", "Give both, or none.")
	}
	if body.UniqueFor != nil && idempotencyKey == "" {
		job.UniqueFor = time.Duration(*body.UniqueFor)
		if job.UniqueFor == 0 {
			return badRequest("unique_for must be from a second to 10 years", "Leave it out: the key is then in use while the job is pending.")
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

// isReplay reports whether a job is what the same request made before.
func isReplay(job pg.NewJob, known admin.JobStatus) bool {
	var sent, stored bytes.Buffer
	_ = json.Compact(&sent, payloadOf(job)) // both were decoded before
	_ = json.Compact(&stored, known.Payload)
	return job.Title == known.Title && job.Description == known.Description && bytes.Equal(sent.Bytes(), stored.Bytes())
}

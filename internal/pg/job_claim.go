package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClaimedJob is a job as it is handed to a worker.
type ClaimedJob struct {
	ID          int64           `json:"id"`
	Attempt     int             `json:"attempt"` // from 1; with the worker, it fences
	Title       string          `json:"title"`
	Description string          `json:"description,omitempty"`
	Tags        []string        `json:"tags"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Priority    int             `json:"priority"`
	RetryCount  int             `json:"retry_count"`
	MaxRetries  int             `json:"max_retries"`
	RunAt       time.Time       `json:"run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	LeaseUntil  time.Time       `json:"lease_until"`
}

// ClaimJobs hands a worker the oldest due jobs that have any of some tags, those
// of higher priority first; without tags, jobs that have none.
func ClaimJobs(ctx context.Context, db DB, namespace, worker string, tags []string, maxJobs int, leaseFor time.Duration) ([]ClaimedJob, error) {
	return Collect(ctx, db, "claim jobs", pgx.RowToStructByPos[ClaimedJob], `
		select id, attempt, title, coalesce(description, ''), tags, payload, metadata, priority, retry_count, max_retries, run_at,
			created_at, lease_until
		from posthorn.claim_jobs($1::text, $2::text, $3::text[], $4::int, $5::text::interval)`,
		namespace, worker, tagsOf(tags), maxJobs, Period(leaseFor))
}

// HeldJob is a worker's hold of a job: what fences it from all others.
type HeldJob struct {
	ID        int64
	Worker    string
	Attempt   int    // 0: whichever the worker has
	Namespace string // none: whichever the job is in
}

// StartJob records that a worker has begun with its job; again, it returns the
// same entry.
func StartJob(ctx context.Context, db DB, h HeldJob) (JobEntry, error) {
	rows, err := Collect(ctx, db, "start job", pgx.RowToStructByPos[JobEntry],
		"select"+entryFields+" from posthorn.start_job($1::bigint, $2::text, $3::int, $4::text)",
		h.ID, h.Worker, Optional(h.Attempt), Optional(h.Namespace))
	if err != nil {
		return JobEntry{}, err
	}
	return rows[0], nil
}

// HeartbeatJob extends the lease of a job by leaseFor, or by the length of its
// claim if that is nil, and returns the new deadline. It notes the progress, if any
// is given.
func HeartbeatJob(ctx context.Context, db DB, h HeldJob, leaseFor *time.Duration, progress json.RawMessage) (time.Time, error) {
	return Value[time.Time](ctx, db, "heartbeat job",
		"select posthorn.heartbeat_job($1::bigint, $2::text, $3::int, $4::text::interval, $5::json, $6::text)",
		h.ID, h.Worker, Optional(h.Attempt), OptionalPeriod(leaseFor), Document(progress), Optional(h.Namespace))
}

// JobReport is what was recorded of an attempt that ended.
type JobReport struct {
	LogID           int64      `json:"log_id"`
	Job             int64      `json:"event_id"`
	Worker          string     `json:"worker_id"`
	Action          string     `json:"action"`
	Attempt         int        `json:"attempt"`
	StatusCode      *int       `json:"status_code,omitempty"`
	ErrorMessage    string     `json:"error_message,omitempty"`
	ExecutionTimeMS *int64     `json:"execution_time_ms,omitempty"`
	RetryScheduled  *bool      `json:"retry_scheduled,omitempty"` // of failures, as what follows
	NextRetryAt     *time.Time `json:"next_retry_at,omitempty"`
	RetryCount      *int       `json:"retry_count,omitempty"`
	MaxRetries      *int       `json:"max_retries,omitempty"`
	CreatedAt       time.Time  `json:"created_at"`
	Repeated        bool       `json:"-"` // the same was recorded before
}

const reportFields = `
	log_id, event_id, worker_id, action, attempt, status_code, coalesce(error_message, ''), execution_time_ms,
	retry_scheduled, next_retry_at, retry_count, max_retries, created_at, repeated`

func report(ctx context.Context, db DB, verb, call string, args ...any) (JobReport, error) {
	rows, err := Collect(ctx, db, verb, pgx.RowToStructByPos[JobReport], "select"+reportFields+" from "+call, args...)
	if err != nil {
		return JobReport{}, err
	}
	return rows[0], nil
}

// JobDone is what a worker says of a job that it has done; all of it is optional.
type JobDone struct {
	StatusCode      *int
	ExecutionTimeMS *int64
	Result          json.RawMessage
}

// CompleteJob finishes a job that a worker has done. Said again, it returns what
// was recorded. It fails with [ErrLeaseLost] when the worker does not have it.
func CompleteJob(ctx context.Context, db DB, h HeldJob, d JobDone) (JobReport, error) {
	return report(ctx, db, "complete job",
		"posthorn.complete_job($1::bigint, $2::text, $3::int, $4::int, $5::bigint, $6::json, $7::text)",
		h.ID, h.Worker, Optional(h.Attempt), d.StatusCode, d.ExecutionTimeMS, Document(d.Result), Optional(h.Namespace))
}

// CompleteJobs finishes several jobs of one worker, each fenced by its attempt,
// and returns the ids of those that it had. executionTimesMS may be nil.
func CompleteJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32, executionTimesMS []int64) ([]int64, error) {
	return Collect(ctx, db, "complete jobs", pgx.RowTo[int64],
		"select posthorn.complete_jobs($1::text, $2::bigint[], $3::int[], $4::bigint[])", worker, jobs, attempts, executionTimesMS)
}

// JobFailure is what a worker says of an attempt that failed.
type JobFailure struct {
	Error           string
	StatusCode      *int
	ExecutionTimeMS *int64
	Permanent       bool           // no further attempt makes sense
	RetryIn         *time.Duration // nil: as the job's own delays say
}

// FailJob records that an attempt failed. Said again, it returns what was
// recorded. It fails with [ErrLeaseLost] when the worker does not have the job.
func FailJob(ctx context.Context, db DB, h HeldJob, f JobFailure) (JobReport, error) {
	return report(ctx, db, "fail job", `
		posthorn.fail_job($1::bigint, $2::text, $3::text, $4::int, $5::int, $6::bigint, $7::boolean, $8::text::interval, $9::text)`,
		h.ID, h.Worker, Optional(Storable(f.Error)), Optional(h.Attempt), f.StatusCode, f.ExecutionTimeMS, f.Permanent, OptionalPeriod(f.RetryIn), Optional(h.Namespace))
}

// ReleaseJobs gives back jobs of one worker that it did not finish, and returns
// the ids of those that it had. They count as not tried.
func ReleaseJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32, reason string) ([]int64, error) {
	return Collect(ctx, db, "release jobs", pgx.RowTo[int64],
		"select posthorn.release_jobs($1::text, $2::bigint[], $3::int[], $4::text)", worker, jobs, attempts, Optional(Storable(reason)))
}

// HeartbeatJobs moves the deadlines of several jobs of one worker to that long
// from now, and returns the ids of those that it still has.
func HeartbeatJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32, leaseFor time.Duration) ([]int64, error) {
	return Collect(ctx, db, "heartbeat jobs", pgx.RowTo[int64],
		"select posthorn.heartbeat_jobs($1::text, $2::bigint[], $3::int[], $4::text::interval)", worker, jobs, attempts, Period(leaseFor))
}

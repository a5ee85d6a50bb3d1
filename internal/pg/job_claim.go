package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClaimedJob is a job that was handed out to a worker.
type ClaimedJob struct {
	ID          int64           `json:"id"`
	Attempt     int             `json:"attempt"` // from 1; it fences, together with the worker
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
	Progress    json.RawMessage `json:"progress,omitempty"` // that an earlier attempt reported last
	Steps       json.RawMessage `json:"steps,omitempty"`    // the results of steps that earlier attempts saved, by name
}

const jobFields = `
	id, attempt, title, coalesce(description, ''), tags, payload, metadata, priority, retry_count, max_retries, run_at,
	created_at, lease_until, progress, steps
`

// scanJob scans the columns of jobFields. JSON is taken as bytes, which are not parsed.
func scanJob(row pgx.CollectableRow) (j ClaimedJob, err error) {
	return j, row.Scan(&j.ID, &j.Attempt, &j.Title, &j.Description, &j.Tags, (*[]byte)(&j.Payload), (*[]byte)(&j.Metadata),
		&j.Priority, &j.RetryCount, &j.MaxRetries, &j.RunAt, &j.CreatedAt, &j.LeaseUntil,
		(*[]byte)(&j.Progress), (*[]byte)(&j.Steps))
}

// ClaimJobs hands out to a worker the oldest due jobs that have one of some tags, higher
// priorities first. Without tags, it hands out jobs that have none.
func ClaimJobs(ctx context.Context, db DB, namespace, worker string, tags []string, maxJobs int, leaseFor time.Duration) ([]ClaimedJob, error) {
	jobs, err := Collect(ctx, db, "claim jobs", scanJob, claimJobsSQL, namespace, worker, tagsOf(tags), maxJobs, Period(leaseFor))
	return jobs, claimError(err)
}

const claimJobsSQL = "select" + jobFields + "from posthorn.claim_jobs($1::text, $2::text, $3::text[], $4::int, $5::text::interval)"

// HeldJob identifies a job that a worker has. Reports of other workers are refused.
type HeldJob struct {
	ID        int64
	Worker    string
	Attempt   int    // 0: the attempt that the worker has
	Namespace string // "": the namespace of the job
}

// JobEntry is an entry of the job log.
type JobEntry struct {
	ID        int64
	Job       int64
	Worker    string
	Action    string
	CreatedAt time.Time
}

// StartJob records that a worker has started its job. A second call returns the same
// entry.
func StartJob(ctx context.Context, db DB, h HeldJob) (JobEntry, error) {
	rows, err := Collect(ctx, db, "start job", pgx.RowToStructByPos[JobEntry],
		"select id, event_id, worker_id, action, created_at from posthorn.start_job($1::bigint, $2::text, $3::int, $4::text)",
		h.ID, h.Worker, Optional(h.Attempt), Optional(h.Namespace))
	if err != nil {
		return JobEntry{}, err
	}
	return rows[0], nil
}

// HeartbeatJob moves the deadline of a job to leaseFor from now, or to the length of its
// claim from now if that is nil, and returns it. It records the progress, if it is given.
func HeartbeatJob(ctx context.Context, db DB, h HeldJob, leaseFor *time.Duration, progress json.RawMessage) (time.Time, error) {
	return Value[time.Time](ctx, db, "heartbeat job",
		"select posthorn.heartbeat_job($1::bigint, $2::text, $3::int, $4::text::interval, $5::json, $6::text)",
		h.ID, h.Worker, Optional(h.Attempt), OptionalPeriod(leaseFor), Document(progress), Optional(h.Namespace))
}

// JobReport is the record of an attempt that ended.
type JobReport struct {
	Job             int64
	Worker          string
	Action          string
	StatusCode      *int
	ErrorMessage    string
	ExecutionTimeMS *int64
	RetryScheduled  *bool // only of failures, like the next three
	NextRetryAt     *time.Time
	RetryCount      *int
	MaxRetries      *int
	CreatedAt       time.Time
	Repeated        bool // the report was recorded before
}

const reportFields = `
	event_id, worker_id, action, status_code, coalesce(error_message, ''), execution_time_ms,
	retry_scheduled, next_retry_at, retry_count, max_retries, created_at, repeated`

// report returns the report also with an [ErrUnconfirmed].
func report(ctx context.Context, db DB, verb, call string, args ...any) (JobReport, error) {
	rows, err := db.Query(ctx, "select"+reportFields+" from "+call, args...)
	if err != nil {
		return JobReport{}, Translate(verb, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[JobReport])
	return r, Translate(verb, err)
}

// JobDone is the report of a job that succeeded. All fields are optional.
type JobDone struct {
	StatusCode      *int
	ExecutionTimeMS *int64
	Result          json.RawMessage
}

// CompleteJob finishes a job that succeeded. A second call returns the same report. It
// fails with [ErrLeaseLost] when the worker does not have the job.
func CompleteJob(ctx context.Context, db DB, h HeldJob, d JobDone) (JobReport, error) {
	return report(ctx, db, "complete job",
		"posthorn.complete_job($1::bigint, $2::text, $3::int, $4::int, $5::bigint, $6::json, $7::text)",
		h.ID, h.Worker, Optional(h.Attempt), d.StatusCode, d.ExecutionTimeMS, Document(d.Result), Optional(h.Namespace))
}

// CompleteJobs finishes several jobs of one worker, each fenced by its attempt, and returns
// the ids of those that the worker had.
func CompleteJobs(ctx context.Context, db DB, worker string, done DoneJobs) ([]int64, error) {
	return Collect(ctx, db, "complete jobs", pgx.RowTo[int64], completeJobsSQL, worker, done.IDs, done.Attempts, done.ExecutionTimesMS)
}

const completeJobsSQL = "select posthorn.complete_jobs($1::text, $2::bigint[], $3::int[], $4::bigint[])"

// JobFailure is the report of an attempt that failed.
type JobFailure struct {
	Error           string
	StatusCode      *int
	ExecutionTimeMS *int64
	Permanent       bool           // it is not retried
	RetryIn         *time.Duration // nil: after the job's own delay
}

// FailJob records that an attempt failed. A second call returns the same report. It fails
// with [ErrLeaseLost] when the worker does not have the job.
func FailJob(ctx context.Context, db DB, h HeldJob, f JobFailure) (JobReport, error) {
	return report(ctx, db, "fail job", `
		posthorn.fail_job($1::bigint, $2::text, $3::text, $4::int, $5::int, $6::bigint, $7::boolean, $8::text::interval, $9::text)`,
		h.ID, h.Worker, Optional(Storable(f.Error)), Optional(h.Attempt), f.StatusCode, f.ExecutionTimeMS, f.Permanent, OptionalPeriod(f.RetryIn), Optional(h.Namespace))
}

// ReleaseJobs gives back jobs that one worker did not finish, and returns the ids of those
// that the worker had. The attempts do not count.
func ReleaseJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32, reason string) ([]int64, error) {
	return Collect(ctx, db, "release jobs", pgx.RowTo[int64],
		"select posthorn.release_jobs($1::text, $2::bigint[], $3::int[], $4::text)", worker, jobs, attempts, Optional(Storable(reason)))
}

// HeartbeatJobs moves the deadlines of several jobs of one worker to leaseFor from now, and
// returns the ids of those that the worker still has.
func HeartbeatJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32, leaseFor time.Duration) ([]int64, error) {
	return Collect(ctx, db, "heartbeat jobs", pgx.RowTo[int64],
		"select posthorn.heartbeat_jobs($1::text, $2::bigint[], $3::int[], $4::text::interval)", worker, jobs, attempts, Period(leaseFor))
}

// HeldJobs returns the ids of those jobs that the worker still has, and changes nothing.
func HeldJobs(ctx context.Context, db DB, worker string, jobs []int64, attempts []int32) ([]int64, error) {
	return Collect(Within(ctx, pollTime), db, "held jobs", pgx.RowTo[int64],
		"select posthorn.held_jobs($1::text, $2::bigint[], $3::int[])", worker, jobs, attempts)
}

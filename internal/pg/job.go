package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// NewJob is what gets enqueued. Only Title is required.
type NewJob struct {
	Title       string          `json:"title"`
	Description string          `json:"description,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"` // default {}
	Priority    int             `json:"priority,omitempty"`
	RunAt       *time.Time      `json:"run_at,omitempty"`      // default: now
	MaxRetries  *int            `json:"max_retries,omitempty"` // attempts that may fail; default 3
	RetryDelays []time.Duration `json:"-"`                     // default: 5 minutes each
	UniqueKey   string          `json:"unique_key,omitempty"`
	UniqueFor   time.Duration   `json:"-"` // 0: while the job is pending
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

const defaultRetries = 3

func (j *NewJob) payload() json.RawMessage {
	if len(j.Payload) == 0 {
		return empty
	}
	return j.Payload
}

func (j *NewJob) maxRetries() int {
	if j.MaxRetries == nil {
		return defaultRetries
	}
	return *j.MaxRetries
}

func (j *NewJob) uniqueFor() *string {
	if j.UniqueFor == 0 {
		return nil
	}
	text := period(j.UniqueFor)
	return &text
}

// retryDelays is an array literal, since not every driver has arrays of periods.
func (j *NewJob) retryDelays() *string {
	if len(j.RetryDelays) == 0 {
		return nil
	}
	periods := make([]string, len(j.RetryDelays))
	for i, d := range j.RetryDelays {
		periods[i] = period(d)
	}
	literal := arrayLiteral(periods)
	return &literal
}

// Enqueue writes one job in the transaction of db and returns its id. Under a
// unique key that is in use, the id is that of the job which has it.
func Enqueue(ctx context.Context, db DB, namespace string, j NewJob) (int64, error) {
	return one[int64](ctx, db, "enqueue", `
		select posthorn.enqueue($1::text, $2::text, $3::json, $4::text[], $5::text, $6::int, $7::timestamptz, $8::int, $9::text,
			$10::text::interval, $11::text::interval[], $12::json)`,
		namespace, j.Title, j.payload(), tagsOf(j.Tags), optional(j.Description), j.Priority, j.RunAt, j.maxRetries(),
		optional(j.UniqueKey), j.uniqueFor(), j.retryDelays(), object(j.Metadata))
}

func tagsOf(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

// EnqueueMany writes jobs in order, in the transaction of db, and returns their
// ids. It is one statement, so all of them are written or none is.
func EnqueueMany(ctx context.Context, db DB, namespace string, jobs []NewJob) ([]int64, error) {
	switch len(jobs) {
	case 0:
		return nil, nil
	case 1:
		id, err := Enqueue(ctx, db, namespace, jobs[0])
		if err != nil {
			return nil, err
		}
		return []int64{id}, nil
	}
	c := jobColumnsOf(jobs)
	if !c.special {
		return list(ctx, db, "enqueue", pgx.RowTo[int64], `
			select posthorn.enqueue_batch($1::text, $2::text[], $3::json[], $4::text[], $5::text::int[], $6::text::timestamptz[],
				$7::text::int[], $8::json[])`,
			namespace, c.titles, c.payloads, c.tags, c.priorities.literal(), c.runAt.literal(), c.maxRetries.literal(), c.metadata)
	}
	return list(ctx, db, "enqueue", pgx.RowTo[int64], `
		select posthorn.enqueue($1::text, j.title, j.payload, j.tags::text[], j.description, j.priority, j.run_at, j.max_retries,
			j.unique_key, j.unique_for::interval, j.retry_delays::interval[], j.metadata)
		from unnest($2::text[], $3::json[], $4::text[], $5::text::int[], $6::text::timestamptz[], $7::text::int[], $8::json[],
			$9::text[], $10::text[], $11::text[], $12::text[])
			with ordinality j (title, payload, tags, priority, run_at, max_retries, metadata,
				description, unique_key, unique_for, retry_delays, nth)
		order by j.nth`,
		namespace, c.titles, c.payloads, c.tags, c.priorities.literal(), c.runAt.literal(), c.maxRetries.literal(), c.metadata,
		c.descriptions, c.uniqueKeys, c.uniqueFor, c.retryDelays)
}

// jobColumns are jobs as arrays.
type jobColumns struct {
	titles     []string
	payloads   []json.RawMessage
	tags       []string // array literals
	priorities texts
	runAt      texts
	maxRetries texts
	metadata   []json.RawMessage

	special      bool // some job has one of these
	descriptions []*string
	uniqueKeys   []*string
	uniqueFor    []*string
	retryDelays  []*string
}

func jobColumnsOf(jobs []NewJob) jobColumns {
	n := len(jobs)
	c := jobColumns{
		titles: make([]string, n), payloads: make([]json.RawMessage, n), tags: make([]string, n),
		priorities: make(texts, n), runAt: make(texts, n), maxRetries: make(texts, n), metadata: make([]json.RawMessage, n),
		descriptions: make([]*string, n), uniqueKeys: make([]*string, n), uniqueFor: make([]*string, n), retryDelays: make([]*string, n),
	}
	for i := range jobs {
		j := &jobs[i]
		c.titles[i], c.payloads[i], c.tags[i] = j.Title, j.payload(), arrayLiteral(j.Tags)
		c.priorities[i], c.maxRetries[i] = strconv.Itoa(j.Priority), strconv.Itoa(j.maxRetries())
		c.runAt[i] = "null"
		if j.RunAt != nil {
			c.runAt[i] = `"` + j.RunAt.UTC().Format("2006-01-02 15:04:05.999999Z07:00") + `"`
		}
		if len(j.Metadata) > 0 {
			c.metadata[i] = j.Metadata
		}
		c.descriptions[i], c.uniqueKeys[i] = optional(j.Description), optional(j.UniqueKey)
		c.uniqueFor[i], c.retryDelays[i] = j.uniqueFor(), j.retryDelays()
		c.special = c.special || j.Description != "" || j.UniqueKey != "" || j.UniqueFor != 0 || len(j.RetryDelays) > 0
	}
	return c
}

// texts are the elements of an array literal that need no escaping.
type texts []string

func (t texts) literal() string { return "{" + strings.Join(t, ",") + "}" }

// Job is a job as it stands.
type Job struct {
	ID           int64           `json:"id"`
	Title        string          `json:"title"`
	Description  string          `json:"description,omitempty"`
	Tags         []string        `json:"tags"`
	Status       string          `json:"status"` // PENDING, PROCESSING, COMPLETED, FAILED or CANCELLED
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Priority     int             `json:"priority"`
	RunAt        time.Time       `json:"run_at"`
	RetryCount   int             `json:"retry_count"` // attempts that failed
	MaxRetries   int             `json:"max_retries"`
	RetryDelays  []time.Duration `json:"-"` // none: 5 minutes each
	NextRetryAt  *time.Time      `json:"next_retry_at"`
	UniqueKey    string          `json:"unique_key,omitempty"`
	Attempt      int             `json:"attempt"` // the one that runs, or ended last; 0 before the first
	Worker       string          `json:"worker_id,omitempty"`
	PickedAt     *time.Time      `json:"picked_at,omitempty"`
	StartedAt    *time.Time      `json:"started_at,omitempty"`
	LeaseUntil   *time.Time      `json:"lease_until,omitempty"`
	Progress     json.RawMessage `json:"progress,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"`
	Stalled      bool            `json:"stalled,omitempty"` // its worker has said nothing for 30 seconds
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	FinishedAt   *time.Time      `json:"finished_at,omitempty"`
}

const jobFields = `
	id, title, coalesce(description, ''), tags, status, payload, metadata, priority, run_at, retry_count, max_retries,
	(select array_agg((extract(epoch from d) * 1000000)::bigint * 1000) from unnest(retry_delays) d), next_retry_at,
	coalesce(unique_key, ''), attempt, coalesce(worker_id, ''), picked_at, started_at, lease_until, progress, result,
	coalesce(error_message, ''), stalled, created_at, updated_at, finished_at`

// GetJob returns a job. It fails with [ErrNotFound] when there is none, or when
// it is in another namespace than the one that is given, if one is.
func GetJob(ctx context.Context, db DB, namespace string, id int64) (Job, error) {
	found, err := list(ctx, db, "show job", pgx.RowToStructByPos[Job],
		"select"+jobFields+" from posthorn.get_job($1::bigint, $2::text)", id, optional(namespace))
	if err != nil {
		return Job{}, err
	}
	if len(found) == 0 { // it was dropped meanwhile
		return Job{}, fmt.Errorf("show job: %w", &Error{
			Message: fmt.Sprintf("job %d does not exist", id), sentinel: ErrNotFound,
			hint: "Ids are what enqueue returned. Finished jobs are kept for job_retention_period.",
		})
	}
	return found[0], nil
}

// JobFilter says which jobs are meant: all of them, unless it says more.
type JobFilter struct {
	Status      string
	Tags        []string // any of them
	Stalled     *bool
	Limit       int // of ListJobs; default 20
	Skip        int64
	NewestFirst bool
}

// ListJobs returns a page of a namespace's jobs, oldest first unless the filter
// says otherwise.
func ListJobs(ctx context.Context, db DB, namespace string, f JobFilter) ([]Job, error) {
	if f.Limit == 0 {
		f.Limit = 20
	}
	return list(ctx, db, "list jobs", pgx.RowToStructByPos[Job], "select"+jobFields+`
		from posthorn.list_jobs($1::text, $2::text, $3::text[], $4::boolean, $5::int, $6::bigint, $7::boolean)`,
		namespace, optional(f.Status), tagsOf(f.Tags), f.Stalled, f.Limit, f.Skip, f.NewestFirst)
}

// CountJobs returns how many jobs a filter means, on all pages.
func CountJobs(ctx context.Context, db DB, namespace string, f JobFilter) (int64, error) {
	return one[int64](ctx, db, "count jobs", "select posthorn.count_jobs($1::text, $2::text, $3::text[], $4::boolean)",
		namespace, optional(f.Status), tagsOf(f.Tags), f.Stalled)
}

// JobEntry is an entry of the job log: what was done to a job.
type JobEntry struct {
	ID              int64      `json:"id"`
	Job             int64      `json:"event_id"`
	Worker          string     `json:"worker_id,omitempty"`
	Action          string     `json:"action"` // PICKED, STARTED, COMPLETED, FAILED, EXPIRED, RESET or CANCELLED
	Attempt         int        `json:"attempt"`
	StatusCode      *int       `json:"status_code,omitempty"`
	ExecutionTimeMS *int64     `json:"execution_time_ms,omitempty"`
	RetryCount      *int       `json:"retry_count,omitempty"`   // of failures
	NextRetryAt     *time.Time `json:"next_retry_at,omitempty"` // of failures; none: it was the last
	ErrorMessage    string     `json:"error_message,omitempty"`
	Reason          string     `json:"reason,omitempty"` // of RESET and CANCELLED
	CreatedAt       time.Time  `json:"created_at"`
}

const entryFields = `
	id, event_id, coalesce(worker_id, ''), action, attempt, status_code, execution_time_ms, retry_count, next_retry_at,
	coalesce(error_message, ''), coalesce(reason, ''), created_at`

// JobHistory returns what was done to a job, in order.
func JobHistory(ctx context.Context, db DB, namespace string, id int64) ([]JobEntry, error) {
	return list(ctx, db, "show job", pgx.RowToStructByPos[JobEntry],
		"select"+entryFields+" from posthorn.job_history($1::bigint, $2::text)", id, optional(namespace))
}

// JobNews returns a number that rises whenever jobs become ready. It moves
// before the transaction commits that makes them so.
func JobNews(ctx context.Context, db DB) (int64, error) {
	return one[int64](Within(ctx, lookTime), db, "look for jobs", "select posthorn.job_news()")
}

// ResetJob makes a job pending again that a worker has, or that has failed for
// good. The worker is fenced out.
func ResetJob(ctx context.Context, db DB, namespace string, id int64, reason string) error {
	return run(ctx, db, "reset job", "select posthorn.reset_job($1::bigint, $2::text, $3::text)",
		id, optional(storable(reason)), optional(namespace))
}

// CancelJob ends a job that is not finished. A worker that has it is fenced out.
// Again, it changes nothing.
func CancelJob(ctx context.Context, db DB, namespace string, id int64, reason string) error {
	return run(ctx, db, "cancel job", "select posthorn.cancel_job($1::bigint, $2::text, $3::text)",
		id, optional(storable(reason)), optional(namespace))
}

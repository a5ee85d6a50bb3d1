package pg

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// NewJob is a job to enqueue. Only Title is required.
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
	FairKey     string          `json:"fair_key,omitempty"` // takes turns with other keys
	Weight      float64         `json:"weight,omitempty"`   // its share; 0: 1
	After       []int64         `json:"after,omitempty"`    // jobs that must be completed before
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

func (j *NewJob) uniqueFor() *string { return OptionalPeriod(Optional(j.UniqueFor)) }

// retryDelays returns the delays as an array literal.
func (j *NewJob) retryDelays() *string {
	if len(j.RetryDelays) == 0 {
		return nil
	}
	periods := make([]string, len(j.RetryDelays))
	for i, d := range j.RetryDelays {
		periods[i] = Period(d)
	}
	literal := arrayLiteral(periods)
	return &literal
}

// after returns the ids of the jobs before the job as an array literal.
func (j *NewJob) after() *string {
	if len(j.After) == 0 {
		return nil
	}
	ids := make(texts, len(j.After))
	for i, id := range j.After {
		ids[i] = strconv.FormatInt(id, 10)
	}
	literal := ids.literal()
	return &literal
}

// Enqueue enqueues one job in the transaction of db and returns its id. If another job has
// the unique key, it returns the id of that job.
func Enqueue(ctx context.Context, db DB, namespace string, j NewJob) (int64, error) {
	return Value[int64](ctx, db, "enqueue", `
		select posthorn.enqueue($1::text, $2::text, $3::json, $4::text[], $5::text, $6::int, $7::timestamptz, $8::int, $9::text,
			$10::text::interval, $11::text::interval[], $12::json, $13::text, $14::float8, $15::bigint[])`,
		j.arguments(namespace)...)
}

// arguments are those of the functions enqueue and enqueue_job.
func (j *NewJob) arguments(namespace string) []any {
	return []any{
		namespace, j.Title, j.payload(), tagsOf(j.Tags), Optional(j.Description), j.Priority, j.RunAt, j.maxRetries(),
		Optional(j.UniqueKey), j.uniqueFor(), j.retryDelays(), Document(j.Metadata),
		Optional(j.FairKey), Optional(j.Weight), j.After,
	}
}

func tagsOf(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

// EnqueueMany enqueues jobs in order, in the transaction of db, and returns their ids. It
// is one statement, so it enqueues all jobs or none.
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
		return Collect(ctx, db, "enqueue", pgx.RowTo[int64], `
			select posthorn.enqueue_batch($1::text, $2::text[], $3::json[], $4::text[], $5::text::int[], $6::text::timestamptz[],
				$7::text::int[], $8::json[], $9::text[], $10::float8[])`,
			namespace, c.titles, c.payloads, c.tags, c.priorities.literal(), c.runAt.literal(), c.maxRetries.literal(), c.metadata,
			c.fairKeys, c.weights)
	}
	return Collect(ctx, db, "enqueue", pgx.RowTo[int64], `
		select posthorn.enqueue($1::text, j.title, j.payload, j.tags::text[], j.description, j.priority, j.run_at, j.max_retries,
			j.unique_key, j.unique_for::interval, j.retry_delays::interval[], j.metadata, j.fair_key, j.weight, j.after::bigint[])
		from unnest($2::text[], $3::json[], $4::text[], $5::text::int[], $6::text::timestamptz[], $7::text::int[], $8::json[],
			$9::text[], $10::float8[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
			with ordinality j (title, payload, tags, priority, run_at, max_retries, metadata, fair_key, weight,
				description, unique_key, unique_for, retry_delays, after, nth)
		order by j.nth`,
		namespace, c.titles, c.payloads, c.tags, c.priorities.literal(), c.runAt.literal(), c.maxRetries.literal(), c.metadata,
		c.fairKeys, c.weights, c.descriptions, c.uniqueKeys, c.uniqueFor, c.retryDelays, c.after)
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
	fairKeys   []*string  // nil: no job has one
	weights    []*float64 // nil: no job has one

	special      bool // a job has one of these
	descriptions []*string
	uniqueKeys   []*string
	uniqueFor    []*string
	retryDelays  []*string
	after        []*string
}

func jobColumnsOf(jobs []NewJob) jobColumns {
	n := len(jobs)
	c := jobColumns{
		titles: make([]string, n), payloads: make([]json.RawMessage, n), tags: make([]string, n),
		priorities: make(texts, n), runAt: make(texts, n), maxRetries: make(texts, n), metadata: make([]json.RawMessage, n),
		descriptions: make([]*string, n), uniqueKeys: make([]*string, n), uniqueFor: make([]*string, n), retryDelays: make([]*string, n), after: make([]*string, n),
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
		if j.FairKey != "" || j.Weight != 0 {
			if c.fairKeys == nil {
				c.fairKeys, c.weights = make([]*string, n), make([]*float64, n)
			}
			c.fairKeys[i], c.weights[i] = Optional(j.FairKey), Optional(j.Weight)
		}
		c.descriptions[i], c.uniqueKeys[i] = Optional(j.Description), Optional(j.UniqueKey)
		c.uniqueFor[i], c.retryDelays[i], c.after[i] = j.uniqueFor(), j.retryDelays(), j.after()
		c.special = c.special || j.Description != "" || j.UniqueKey != "" || j.UniqueFor != 0 || len(j.RetryDelays) > 0 || len(j.After) > 0
	}
	return c
}

// texts are the elements of an array literal that need no escaping.
type texts []string

func (t texts) literal() string { return "{" + strings.Join(t, ",") + "}" }

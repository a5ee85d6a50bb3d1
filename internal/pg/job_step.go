package pg

import (
	"context"
	"encoding/json"
	"time"
)

// SaveStep saves the result of a step of a job that a worker has, in the transaction of db, and
// returns the result that the step has: a step that is saved already stays as it is. It fails with
// [ErrLeaseLost] if the worker does not have the job.
func SaveStep(ctx context.Context, db DB, h HeldJob, name string, result json.RawMessage) (json.RawMessage, error) {
	return Value[json.RawMessage](ctx, db, "save step",
		"select posthorn.save_step($1::bigint, $2::text, $3::text, $4::json, $5::int, $6::text)",
		h.ID, h.Worker, name, Document(result), Optional(h.Attempt), Optional(h.Namespace))
}

// SleepJob ends the attempt of a worker at a job, and returns when the job goes on. It returns nil if
// the sleep with this name is over: then the attempt goes on.
func SleepJob(ctx context.Context, db DB, h HeldJob, name string, d time.Duration) (*time.Time, error) {
	return Value[*time.Time](ctx, db, "sleep",
		"select posthorn.sleep_job($1::bigint, $2::text, $3::text, $4::text::interval, $5::int, $6::text)",
		h.ID, h.Worker, name, Period(d), Optional(h.Attempt), Optional(h.Namespace))
}

// Awaited is the state of a job's wait for an event.
type Awaited struct {
	EventID     int64           `json:"event_id"` // 0: none has come
	Stream      string          `json:"stream"`
	Type        string          `json:"type"`
	Key         string          `json:"key"`
	Tags        []string        `json:"tags"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	TimedOut    bool            `json:"timed_out"`
	WaitsUntil  *time.Time      `json:"waits_until"` // nil: the attempt goes on
}

// Event returns the event that has come.
func (a *Awaited) Event() Event {
	return Event{ID: a.EventID, Stream: a.Stream, Type: a.Type, Key: a.Key, Tags: a.Tags, Payload: a.Payload, Metadata: a.Metadata, PublishedAt: a.PublishedAt}
}

// Await is a wait of a job for an event, under a name within the job.
type Await struct {
	Name, Type, Key string
	Timeout         time.Duration
	Hidden          []string // streams whose events do not count
}

// AwaitEvent returns the first event of a type and key since the job was enqueued. If there is none,
// it ends the attempt, and the job goes on when the event comes, or after the timeout.
func AwaitEvent(ctx context.Context, db DB, h HeldJob, a Await) (Awaited, error) {
	return Value[Awaited](ctx, db, "await event",
		"select to_json(posthorn.await_event($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text::interval, $7::int, $8::text, coalesce($9::text[], '{}')))",
		h.ID, h.Worker, a.Name, a.Type, a.Key, Period(a.Timeout), Optional(h.Attempt), Optional(h.Namespace), a.Hidden)
}

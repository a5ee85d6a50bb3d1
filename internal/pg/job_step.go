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

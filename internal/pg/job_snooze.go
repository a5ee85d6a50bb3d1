package pg

import (
	"context"
	"time"
)

// SnoozeJob puts off a job that a worker has, without a failure. A repeated call
// returns the recorded entry. It fails with [ErrLeaseLost] if the worker does not have
// the job.
func SnoozeJob(ctx context.Context, db DB, h HeldJob, d time.Duration, reason string) (JobReport, error) {
	return report(ctx, db, "snooze job", "posthorn.snooze_job($1::bigint, $2::text, $3::text::interval, $4::int, $5::text, $6::text)",
		h.ID, h.Worker, Period(d), Optional(h.Attempt), Optional(Storable(reason)), Optional(h.Namespace))
}

package pg

import (
	"context"
	"time"
)

// Progress is how far the log was when somebody looked.
type Progress struct {
	Seen    *string // the snapshot; nil for none so far
	Drawn   int64   // the last id of an event that was drawn, committed or not
	Arrived bool    // events became visible since the look before
}

// AwaitEvents waits for events that p does not show, for as long as patience,
// and returns how far the log is then.
func AwaitEvents(ctx context.Context, db DB, p Progress, patience time.Duration) (Progress, error) {
	var now Progress
	err := db.QueryRow(Within(ctx, lookTime+patience),
		"select seen::text, arrived, drawn from posthorn.await_events($1::text::pg_snapshot, $2::text::interval)",
		p.Seen, Period(patience)).Scan(&now.Seen, &now.Arrived, &now.Drawn)
	return now, Translate("look for news", err)
}

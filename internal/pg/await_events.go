package pg

import (
	"context"
	"time"
)

// Progress is the end of the log at the time of a query.
type Progress struct {
	Seen    *string // the snapshot of the query; nil before the first one
	Drawn   int64   // the last id that was drawn for an event, committed or not
	Arrived bool    // events became visible since the query before
}

// AwaitEvents waits until there are events after p, or until patience has passed, and
// returns the end of the log.
func AwaitEvents(ctx context.Context, db DB, p Progress, patience time.Duration) (Progress, error) {
	var now Progress
	err := db.QueryRow(Within(ctx, pollTime+patience),
		"select seen::text, arrived, drawn from posthorn.await_events($1::text::pg_snapshot, $2::text::interval)",
		p.Seen, Period(patience)).Scan(&now.Seen, &now.Arrived, &now.Drawn)
	return now, Translate("await events", err)
}

package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Maintained is one thing that maintenance did, or could not do.
type Maintained struct {
	Action    string `json:"action"` // created, dropped, kept or postponed
	Partition string `json:"partition"`
	Detail    string `json:"detail"`
}

// MaintainEventsTable makes partitions ahead, and drops those past retention
// that nobody is owed.
func MaintainEventsTable(ctx context.Context, db DB) ([]Maintained, error) {
	return Collect(ctx, db, "maintain events table", pgx.RowToStructByPos[Maintained],
		"select action, partition, detail from posthorn.maintain_events_table()")
}

package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Moment is a place in the log: a time, or one of its ends.
type Moment = pgtype.Timestamptz

// The ends of the log.
var (
	Beginning = Moment{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	End       = Moment{InfinityModifier: pgtype.Infinity, Valid: true}
)

// At is the moment of a time.
func At(t time.Time) Moment { return Moment{Time: t, Valid: true} }

// Seek moves a group: it is handed every event published from then on. Whoever
// works on something of the group loses the lease; what has failed stays owed.
func Seek(ctx context.Context, db DB, namespace, group string, to Moment) error {
	return run(Within(ctx, longTime), db, "seek", "select posthorn.seek($1::text, $2::text, $3::timestamptz)", namespace, group, to)
}

// Now is the time that everything is decided by: the database's.
func Now(ctx context.Context, db DB) (time.Time, error) {
	return one[time.Time](ctx, db, "read the time", "select posthorn.now()")
}

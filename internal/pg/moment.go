package pg

import (
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

// At returns the moment of a time.
func At(t time.Time) Moment { return Moment{Time: t, Valid: true} }

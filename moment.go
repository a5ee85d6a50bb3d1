package posthorn

import (
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// Moment is a place in the log: a time, or one of its ends.
type Moment = admin.Moment

// The ends of the log.
var (
	Beginning = pg.Beginning
	End       = pg.End
)

// At is the moment of a time.
func At(t time.Time) Moment { return pg.At(t) }

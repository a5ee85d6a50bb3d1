package consume

import (
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Failure turns the error of whoever had an event into what settle understands.
func Failure(event int64, err error) pg.Failure { return failure(event, "", err) }

// Released hands an event back that nobody tried. It counts as no delivery.
func Released(event int64) pg.Failure { return released(event, "") }

// Sizer finds out how many events to take at once, see sizer. It is safe for use
// by any number of goroutines.
type Sizer struct{ sizer sizer }

// NewSizer returns one that begins small and grows up to most.
func NewSizer(most int) *Sizer {
	return &Sizer{sizer{size: min(firstBatch, most), most: most}}
}

// Next is how many to take.
func (s *Sizer) Next() int { return s.sizer.next() }

// Took tells how long n events took.
func (s *Sizer) Took(n int, d time.Duration) { s.sizer.took(n, d) }

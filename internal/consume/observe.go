package consume

import (
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Observer hears of what happens. Its methods are called from many goroutines
// and must not block.
type Observer interface {
	// Took: a lease was taken.
	Took(lease pg.Lease)
	// Handled: a handler was called, for so many events, and returned.
	Handled(handler string, events int, took time.Duration, err error)
	// LeaseLost: a lease was taken over by others while we worked on it.
	LeaseLost()
}

// Unobserved is an Observer to whom nothing matters.
type Unobserved struct{}

// Took does nothing.
func (Unobserved) Took(pg.Lease) {}

// Handled does nothing.
func (Unobserved) Handled(string, int, time.Duration, error) {}

// LeaseLost does nothing.
func (Unobserved) LeaseLost() {}

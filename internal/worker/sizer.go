package worker

import (
	"sync"
	"time"
)

// Sizer finds out how much to take at once: enough that taking is cheap beside
// the work, little enough that a batch is done in about a second, so that other
// nodes get their part and little is repeated after a crash. It is safe for use by
// any number of goroutines.
type Sizer struct {
	mu         sync.Mutex
	size, most int
}

const (
	firstBatch = 10
	tooShort   = 100 * time.Millisecond
	tooLong    = time.Second
)

// NewSizer returns one that begins small and grows up to most.
func NewSizer(most int) *Sizer { return &Sizer{size: min(firstBatch, most), most: most} }

// Next is how much to take.
func (s *Sizer) Next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Took learns from a batch of n things.
func (s *Sizer) Took(n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d > tooLong:
		s.size = max(1, min(s.size, n)/2)
	case d < tooShort && n >= s.size:
		s.size = min(2*s.size, s.most)
	}
}

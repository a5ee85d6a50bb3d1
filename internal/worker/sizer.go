package worker

import (
	"sync"
	"time"
)

// Sizer adapts the size of batches: large enough that taking them costs little, and
// small enough that one takes about a second, so that other nodes get a share and a
// crash repeats little. It is safe for use by any number of goroutines.
type Sizer struct {
	mu         sync.Mutex
	size, most int
}

const (
	firstBatch = 10
	tooShort   = 100 * time.Millisecond
	tooLong    = time.Second
)

// NewSizer returns a Sizer that begins with a small size and grows up to most.
func NewSizer(most int) *Sizer { return &Sizer{size: min(firstBatch, most), most: most} }

// Next returns the size of the next batch.
func (s *Sizer) Next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Took adapts the size to the duration of a batch of n items.
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

package work

import (
	"sync"
	"time"
)

// pace is how long jobs take.
type pace struct {
	mu      sync.Mutex
	average time.Duration
}

func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.average == 0 {
		p.average = d
	}
	p.average = max(1, (7*p.average+d)/8)
}

// moment is how far ahead jobs are taken: far enough that a claim is back in
// time, near enough that others get their part and little is repeated.
const moment = 100 * time.Millisecond

// ahead is how many jobs will be begun in the next moment.
func (p *pace) ahead(concurrency, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.average == 0 || p.average >= moment {
		return 0
	}
	return int(min(int64(most), int64(concurrency)*int64(moment/p.average)))
}

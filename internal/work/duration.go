package work

import (
	"sync"
	"time"
)

// averageDuration is the moving average of the duration of jobs.
type averageDuration struct {
	mu      sync.Mutex
	average time.Duration
}

func (a *averageDuration) add(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.average == 0 {
		a.average = d
	}
	a.average = max(1, (7*a.average+d)/8)
}

// lookAhead is how long before their start jobs are taken: long enough that a claim
// returns in time, short enough that other processes get their part and that few jobs are
// repeated after a crash.
const lookAhead = 100 * time.Millisecond

// jobsAhead is the number of jobs that will start within lookAhead, at most the limit.
func (a *averageDuration) jobsAhead(concurrency, limit int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.average == 0 || a.average >= lookAhead {
		return 0
	}
	return int(min(int64(limit), int64(concurrency)*int64(lookAhead/a.average)))
}

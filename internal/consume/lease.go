package consume

import (
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// lease is a lease that is being worked on.
type lease struct {
	worker.Hold
	pg.Lease
	routes []*route

	head int // events at the head that are settled; changes in Settle and in heartbeats only

	mu       sync.Mutex
	done     []bool       // by event
	failures []pg.Failure // that the database was not told of
}

// finish notes that events are done, but for what failed.
func (g *group) finish(held *lease, start, end int, failures []pg.Failure) {
	held.mu.Lock()
	for i := start; i < end; i++ {
		held.done[i] = true
	}
	first := len(held.failures) == 0 && len(failures) > 0
	held.failures = append(held.failures, failures...)
	held.mu.Unlock()
	held.Step()
	if first {
		g.heartbeat.Hasten(held, failureWait)
	}
}

// leave notes that the events from one on go back as they were.
func (held *lease) leave(from int) {
	held.mu.Lock()
	defer held.mu.Unlock()
	for i := from; i < len(held.Events); i++ {
		held.failures = append(held.failures, released(held.Events[i].ID, ""))
	}
}

// settlement is what there is to tell the database of a lease.
type settlement struct {
	head     int   // events at the head that are done
	upTo     int64 // the id of the last of them
	failures []pg.Failure
}

// unsettled returns what the database was not told yet. The caller runs in Settle
// or in a heartbeat.
func (held *lease) unsettled() settlement {
	held.mu.Lock()
	defer held.mu.Unlock()
	s := settlement{head: held.head}
	for s.head < len(held.done) && held.done[s.head] {
		s.head++
	}
	if s.head > 0 {
		s.upTo = held.Events[s.head-1].ID
	}
	s.failures = held.failures[:len(held.failures):len(held.failures)]
	return s
}

// settled notes what the database was told. The caller runs as that of unsettled.
func (held *lease) settled(s settlement) {
	held.mu.Lock()
	defer held.mu.Unlock()
	held.head = s.head
	held.failures = held.failures[len(s.failures):]
}

// clean reports whether all that is left to say of a lease is that it is done.
func (held *lease) clean() bool {
	held.mu.Lock()
	defer held.mu.Unlock()
	return len(held.failures) == 0
}

// failureWait is how long a failure waits for others to be settled with it.
const failureWait = 50 * time.Millisecond

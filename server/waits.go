package server

import (
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/waitqueue"
)

// groupName is the key of the wait queue of requests that wait for events of a group.
type groupName struct{ namespace, group string }

// pollInterval is how often one request of each group claims without news: for retries
// that are due, expired leases, and events whose transactions were open for long.
const pollInterval = time.Second

func newGroupQueues(watch *logwatch.Watcher) *waitqueue.Queues[groupName] {
	return waitqueue.New[groupName](pollInterval, func() (<-chan struct{}, func()) { return watch.Follow(logwatch.Events) })
}

// beginWait counts a request that begins to wait. It fails if the server stops, or if too
// many requests wait, including those that are counted elsewhere.
func (s *Server) beginWait(count *atomic.Int64, elsewhere int64) error {
	if s.isDraining() {
		return errDraining()
	}
	if count.Add(1)+elsewhere > int64(s.options.MaxWaits) {
		count.Add(-1)
		return errTooManyWaits()
	}
	return nil
}

func errTooManyWaits() *problem {
	return unavailable("too many requests are waiting already", "Try again, or send the request without wait.")
}

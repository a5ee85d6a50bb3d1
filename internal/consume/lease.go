package consume

import (
	"context"
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
	failures []pg.Failure // not settled yet
}

// leave gives back the events from an index on, without a failure. They count as done: a heartbeat
// that makes retries of them must also take them out of the lease. Otherwise they would be handled
// twice if the process dies before the lease ends.
func (l *lease) leave(from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := from; i < len(l.Events); i++ {
		l.done[i] = true
		l.failures = append(l.failures, released(l.Events[i].ID, ""))
	}
}

// settlement is the part of a lease that is done and not settled yet.
type settlement struct {
	head     int   // events at the head that are done
	upTo     int64 // the id of the last of them
	failures []pg.Failure
}

// unsettled returns the events that are done and not settled yet. It is called in
// Settle or in a heartbeat.
func (l *lease) unsettled() settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := settlement{head: l.head}
	for s.head < len(l.done) && l.done[s.head] {
		s.head++
	}
	if s.head > 0 {
		s.upTo = l.Events[s.head-1].ID
	}
	s.failures = l.failures[:len(l.failures):len(l.failures)]
	return s
}

// settled notes that the database has a settlement. It is called in Settle or in a
// heartbeat.
func (l *lease) settled(s settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = s.head
	l.failures = l.failures[len(s.failures):]
}

// clean reports whether all failures of a lease are settled.
func (l *lease) clean() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.failures) == 0
}

// Release gives back the rest of a lease.
func (g *group) Release(work context.Context, l *lease) {
	defer g.heartbeat.Remove(l)
	ctx, cancel := worker.Outlast(work, worker.LastWords)
	defer cancel()
	err := l.Settle(func() (bool, error) { return true, pg.Release(ctx, g.Pool, l.Lease) })
	if err == nil || l.Lost() {
		g.releasing.Over()
	} else {
		g.releasing.Report(err)
	}
}

// elsewhere gives an event to the node that has the handler.
func elsewhere(event int64, subscription string) pg.Failure {
	after := handOverIn
	return pg.Failure{Event: event, Subscription: subscription, Released: true, RetryIn: &after}
}

// handOverIn is the delay of an event for another node, so that a node without the
// handler does not take it repeatedly.
var handOverIn = time.Second

// released gives back an event that was not handled.
func released(event int64, subscription string) pg.Failure {
	return pg.Failure{Event: event, Subscription: subscription, Released: true}
}

// Failures turns the error of a program that fetched an event into arguments of
// posthorn.settle: one for each subscription of the attempt, or one for the whole
// event.
func Failures(e *pg.Event, err error) []pg.Failure {
	if len(e.Subscriptions) == 0 {
		return []pg.Failure{failure(e.ID, "", err)}
	}
	failures := make([]pg.Failure, len(e.Subscriptions))
	for i, name := range e.Subscriptions {
		failures[i] = failure(e.ID, name, err)
	}
	return failures
}

// Released gives back an event that was not handled. The attempt does not count.
func Released(event int64) pg.Failure { return released(event, "") }

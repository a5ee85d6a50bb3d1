package server

import (
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
)

// groupWaits are the requests that wait for events of groups. They hold no database
// connection. Of the requests that wait for one group, one at a time has the turn to
// claim: whenever events may have arrived, the first of the queue gets the turn, and
// when it has found events, the next one. So one statement at a time runs for a group,
// however many requests wait.
type groupWaits struct {
	client *posthorn.Client
	max    int

	mu     sync.Mutex
	queues map[groupName]*waitQueue
	count  int           // of requests
	stop   chan struct{} // ends run; nil while no request waits
}

type groupName struct{ namespace, group string }

// waitQueue has the requests that wait for one group, in order of arrival.
type waitQueue struct {
	waiters []*waiter
	active  *waiter // has the turn
	pending bool    // events may have arrived since the last turn began
}

type waiter struct {
	group groupName
	turn  chan struct{} // receives when the waiter gets the turn
}

// pollInterval is how often one request of each group gets the turn without a
// notification: for retries that are due, expired leases, and events whose transactions
// were open for long.
const pollInterval = time.Second

func newGroupWaits(client *posthorn.Client, limit int) *groupWaits {
	return &groupWaits{client: client, max: limit, queues: map[groupName]*waitQueue{}}
}

// join adds a waiter. It must call foundNothing after each turn in which it claimed
// nothing, and leave at the end.
func (w *groupWaits) join(group groupName) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.max {
		return nil, errTooManyWaits()
	}
	w.count++
	if w.stop == nil {
		w.stop = make(chan struct{})
		go w.run(w.stop)
	}
	q := w.queues[group]
	if q == nil {
		q = &waitQueue{pending: true} // events may have arrived before the waiter joined
		w.queues[group] = q
	}
	me := &waiter{group, make(chan struct{}, 1)}
	q.waiters = append(q.waiters, me)
	q.nextIfPending()
	return me, nil
}

func errTooManyWaits() *problem {
	return unavailable("too many requests are waiting already", "Try again, or send the request without wait.")
}

// next gives the first waiter the turn. If another one has it, the first waiter gets
// it afterwards.
func (q *waitQueue) next() {
	q.pending = true
	q.nextIfPending()
}

func (q *waitQueue) nextIfPending() {
	if q.pending && q.active == nil && len(q.waiters) > 0 {
		q.pending = false
		q.active = q.waiters[0]
		q.active.turn <- struct{}{}
	}
}

// foundNothing ends a turn in which the waiter claimed nothing.
func (w *groupWaits) foundNothing(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[me.group]
	if q.active == me {
		q.active = nil
	}
	q.nextIfPending()
}

// leave removes a waiter. If it has the turn, the next one gets it: the waiter has
// claimed events, so there may be more, or it has not claimed yet.
func (w *groupWaits) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[me.group]
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == me })
	if q.active == me {
		q.active = nil
		q.pending = true
	}
	q.nextIfPending()
	if len(q.waiters) == 0 {
		delete(w.queues, me.group)
	}
	if w.count--; w.count == 0 {
		close(w.stop)
		w.stop = nil
	}
}

// waiting returns how many requests wait.
func (w *groupWaits) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// wake gives one request of a group the turn, because events may be available.
func (w *groupWaits) wake(group groupName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[group]; q != nil {
		q.next()
	}
}

// wakeAll gives one request of each group the turn.
func (w *groupWaits) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		q.next()
	}
}

func (w *groupWaits) run(stop chan struct{}) {
	newEvents, end := listen.Of(w.client).NewEvents()
	defer end()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-newEvents:
		case <-ticker.C:
		}
		w.wakeAll()
	}
}

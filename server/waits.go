package server

import (
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
)

// waits are the requests that wait for events of groups. They hold no
// connection. Whatever may have been published wakes one of each group; when it
// has found something, it wakes the next. So one statement at a time looks for a
// group, however many wait.
type waits struct {
	client *posthorn.Client
	max    int

	mu     sync.Mutex
	groups map[groupName]*queue
	count  int
	stop   chan struct{} // ends what wakes them; nil while nobody waits
}

type groupName struct{ namespace, group string }

// queue is who waits for a group, in the order they came.
type queue struct {
	waiters []*waiter
	looking *waiter // who has the turn
	again   bool    // there was news since
}

type waiter struct {
	group groupName
	turn  chan struct{} // receives when it is to look
}

// lookAnyway is how often one of each group looks without news: for retries that
// are due, leases that have expired and events whose transactions were long open.
const lookAnyway = time.Second

func newWaits(client *posthorn.Client, most int) *waits {
	return &waits{client: client, max: most, groups: map[groupName]*queue{}}
}

// join begins to wait. Call looked after each turn, and leave in the end.
func (w *waits) join(group groupName) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.max {
		return nil, unavailable("too many requests wait already", "Try again, or ask without wait.")
	}
	w.count++
	if w.stop == nil {
		w.stop = make(chan struct{})
		go w.run(w.stop)
	}
	q := w.groups[group]
	if q == nil {
		q = &queue{again: true} // something may have come before it waited
		w.groups[group] = q
	}
	me := &waiter{group, make(chan struct{}, 1)}
	q.waiters = append(q.waiters, me)
	if q.again {
		q.next()
	}
	return me, nil
}

// next gives the first waiter the turn, unless somebody has it.
func (q *queue) next() {
	if q.looking != nil || len(q.waiters) == 0 {
		q.again = true
		return
	}
	q.again = false
	q.looking = q.waiters[0]
	q.looking.turn <- struct{}{}
}

// looked ends a turn that found nothing.
func (w *waits) looked(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.groups[me.group]
	if q.looking == me {
		q.looking = nil
	}
	if q.again {
		q.next()
	}
}

// leave ends the waiting. If it has the turn, the next one gets it: either it has
// found something, so there may be more, or it has not looked.
func (w *waits) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.groups[me.group]
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == me })
	if q.looking == me {
		q.looking = nil
		q.again = true
	}
	if q.again {
		q.next()
	}
	if len(q.waiters) == 0 {
		delete(w.groups, me.group)
	}
	if w.count--; w.count == 0 {
		close(w.stop)
		w.stop = nil
	}
}

// waiting is how many wait.
func (w *waits) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// news wakes one of a group, if anybody waits.
func (w *waits) news(group groupName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.groups[group]; q != nil {
		q.next()
	}
}

// newsForAll wakes one of each group.
func (w *waits) newsForAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.groups {
		q.next()
	}
}

func (w *waits) run(stop chan struct{}) {
	news, end := listen.Of(w.client).News()
	defer end()
	ticker := time.NewTicker(lookAnyway)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-news:
		case <-ticker.C:
		}
		w.newsForAll()
	}
}

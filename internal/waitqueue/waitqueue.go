// Package waitqueue has the wait queues of workers and requests that claim as soon as
// there may be something to claim. Of the waiters of a queue, one at a time has the turn
// to claim: so a thousand waiters cost one claim. The package owns whose turn it is; its
// users claim, and limit how many wait.
package waitqueue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Queues are wait queues, one for each key. News, or a tick, gives the first waiter of
// each queue the turn. Queues are safe for concurrent use.
type Queues[K comparable] struct {
	interval  time.Duration
	subscribe func() (news <-chan struct{}, end func())

	mu      sync.Mutex
	queues  map[K]*queue[K]
	members int           // waiters that have not left
	began   chan struct{} // tells the listener that a waiter has begun to wait
	stop    func()        // ends the listener; nil while there is none
	closed  bool
	running sync.WaitGroup
}

// New returns queues without waiters. While they have waiters, they subscribe to news; and
// at each interval the first waiter of each queue claims without news, because news can be
// lost, and nothing announces that a lease has expired.
func New[K comparable](interval time.Duration, subscribe func() (news <-chan struct{}, end func())) *Queues[K] {
	return &Queues[K]{interval: interval, subscribe: subscribe, queues: map[K]*queue[K]{}}
}

// Close ends the subscription to news. Waiters wait until their contexts end.
func (q *Queues[K]) Close() {
	q.mu.Lock()
	q.closed = true
	q.stopListening()
	q.mu.Unlock()
	q.running.Wait()
}

// Join adds a waiter to the queue of a key. The waiter has to leave. A new queue begins with
// news, so that its first waiter misses none, even if it has claimed before it joined.
func (q *Queues[K]) Join(key K) *Waiter[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.queues[key]
	if own == nil {
		own = &queue[K]{key: key, news: true}
		q.queues[key] = own
	}
	own.members++
	q.members++
	q.startListening()
	return &Waiter[K]{queues: q, queue: own, turn: make(chan struct{}, 1)}
}

// startListening starts the listener, unless it runs. The caller holds the lock.
func (q *Queues[K]) startListening() {
	if q.stop != nil || q.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	news, end := q.subscribe()
	q.stop = func() { cancel(); end() }
	began := make(chan struct{}, 1) // of this listener alone: an earlier one may not have returned yet
	q.began = began
	q.running.Go(func() { q.listen(ctx, news, began) })
}

// stopListening ends the listener. The caller holds the lock.
func (q *Queues[K]) stopListening() {
	if q.stop != nil {
		q.stop()
		q.stop = nil
	}
}

// listen wakes the queues until ctx ends. It leaves news unread while nobody waits, so
// that the source of the news rests.
func (q *Queues[K]) listen(ctx context.Context, news, began <-chan struct{}) {
	tick := time.NewTicker(q.interval)
	defer tick.Stop()
	for {
		wanted := news
		if !q.someWait() {
			wanted = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-began:
			continue
		case <-wanted:
		case <-tick.C:
		}
		q.WakeAll()
	}
}

func (q *Queues[K]) someWait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.queues {
		if len(one.waiting) > 0 {
			return true
		}
	}
	return false
}

// WakeAll gives the first waiter of each queue the turn, at once or after the present turn,
// because there may be something to claim.
func (q *Queues[K]) WakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.queues {
		one.wake()
	}
}

// Wake gives the first waiter of one queue the turn, at once or after the present turn.
func (q *Queues[K]) Wake(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one := q.queues[key]; one != nil {
		one.wake()
	}
}

// queue has the waiters of one key. It is guarded by the lock of Queues.
type queue[K comparable] struct {
	key     K
	members int // waiters that have not left
	waiting []*Waiter[K]
	active  *Waiter[K] // has the turn
	news    bool       // there was news, and no turn has begun since
}

func (q *queue[K]) wake() {
	q.news = true
	q.next()
}

// next begins the turn of the first waiter, if there is news and no other turn.
func (q *queue[K]) next() {
	if !q.news || q.active != nil || len(q.waiting) == 0 {
		return
	}
	q.news = false
	q.active, q.waiting = q.waiting[0], q.waiting[1:]
	q.active.turn <- struct{}{}
}

// endTurn ends the turn of a waiter, and reports whether the waiter had it.
func (q *queue[K]) endTurn(w *Waiter[K]) bool {
	if q.active != w {
		return false
	}
	q.active = nil
	return true
}

// Waiter is a member of a queue. It claims, and waits after each claim that finds nothing.
// After a claim that finds something it calls Found or Done, or leaves: until then no other
// waiter gets a turn. One goroutine at a time may wait.
type Waiter[K comparable] struct {
	queues *Queues[K]
	queue  *queue[K]
	turn   chan struct{} // receives when the waiter gets the turn
}

// Wait waits for the turn of this waiter to claim. It returns false when ctx has ended. A
// waiter that waits again without a call of Found has found nothing in its turn.
func (w *Waiter[K]) Wait(ctx context.Context) bool {
	w.begin()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
		w.giveUp()
		return false
	}
}

func (w *Waiter[K]) begin() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.queue.endTurn(w)
	w.queue.waiting = append(w.queue.waiting, w)
	w.queue.next()
	select {
	case w.queues.began <- struct{}{}:
	default: // the listener has not received the last value yet
	}
}

func (w *Waiter[K]) giveUp() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	select {
	case <-w.turn: // the turn came at the last moment
		w.passOn()
	default:
		w.queue.waiting = slices.DeleteFunc(w.queue.waiting, func(other *Waiter[K]) bool { return other == w })
	}
}

// Done reports that a claim has found everything that there was: the turn ends, and the
// next one comes with news. A waiter that waits again need not call it.
func (w *Waiter[K]) Done() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.queue.endTurn(w)
	w.queue.next()
}

// Pass gives the turn to the next waiter, if this one has it and cannot claim now.
func (w *Waiter[K]) Pass() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.passOn()
}

// passOn gives the turn to the next waiter, if this one has it.
func (w *Waiter[K]) passOn() {
	if w.queue.endTurn(w) {
		w.queue.wake()
	}
}

// Found reports that a claim has found something, or has failed: the next waiter claims,
// because there may be more.
func (w *Waiter[K]) Found() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.queue.endTurn(w)
	w.queue.wake()
}

// Leave removes the waiter from its queue. If it has the turn, the next waiter gets it.
func (w *Waiter[K]) Leave() {
	q := w.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	w.passOn()
	if w.queue.members--; w.queue.members == 0 {
		delete(q.queues, w.queue.key)
	}
	if q.members--; q.members == 0 {
		q.stopListening()
	}
}

package work

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
)

// Queues are the wait queues of workers and requests that wait for jobs: one queue for
// each set of tags in a namespace. News lets the first waiter of each queue claim, so a
// thousand waiters cost one claim. Queues are safe for concurrent use.
type Queues struct {
	watch *logwatch.Watcher

	someone chan struct{} // receives when a waiter begins to wait

	mu      sync.Mutex
	queues  map[string]*queue
	waiters int
	stop    func() // ends the goroutine that listens; nil if no waiter has joined
	closed  bool
	running sync.WaitGroup
}

// NewQueues returns queues that are woken by a watcher. The caller must close them.
func NewQueues(watch *logwatch.Watcher) *Queues {
	return &Queues{watch: watch, someone: make(chan struct{}, 1), queues: map[string]*queue{}}
}

// Close ends the listening. Waiters wait until their contexts end.
func (q *Queues) Close() {
	q.mu.Lock()
	q.closed = true
	q.stopListening()
	q.mu.Unlock()
	q.running.Wait()
}

// Join adds a waiter to the queue of a set of tags. It has to leave.
func (q *Queues) Join(namespace string, tags []string) *Waiter {
	name := queueName(namespace, tags)
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.queues[name]
	if own == nil {
		own = &queue{name: name}
		q.queues[name] = own
	}
	own.members++
	q.waiters++
	q.startListening()
	return &Waiter{queues: q, queue: own, turn: make(chan struct{}, 1)}
}

// queueName is unique, since tags have no control characters.
func queueName(namespace string, tags []string) string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return namespace + "\n" + strings.Join(slices.Compact(tags), "\n")
}

// startListening listens for news, unless a goroutine does. The caller holds the lock.
func (q *Queues) startListening() {
	if q.stop != nil || q.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	news, unsubscribe := q.watch.Subscribe(logwatch.Jobs)
	release := q.watch.KeepRunning()
	q.stop = func() {
		cancel()
		unsubscribe()
		release()
	}
	q.running.Go(func() { q.listen(ctx, news) })
}

func (q *Queues) stopListening() {
	if q.stop != nil {
		q.stop()
		q.stop = nil
	}
}

// regularly is the interval in which waiters claim without news: claims also return jobs
// whose leases have expired, and news can be lost. It is a variable for tests, which set
// it before they begin.
var regularly = time.Second

// listen wakes the queues until ctx ends. It leaves news unread while nobody waits, so
// that the watcher rests.
func (q *Queues) listen(ctx context.Context, news <-chan struct{}) {
	tick := time.NewTicker(regularly)
	defer tick.Stop()
	for {
		wanted := news
		if !q.someWait() {
			wanted = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-q.someone:
			continue
		case <-wanted:
		case <-tick.C:
		}
		q.mu.Lock()
		for _, one := range q.queues {
			one.wake()
		}
		q.mu.Unlock()
	}
}

func (q *Queues) someWait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.queues {
		if len(one.waiting) > 0 {
			return true
		}
	}
	return false
}

// queue is the waiters for the same jobs. One of them claims at a time. It is guarded by
// the lock of Queues.
type queue struct {
	name     string
	members  int
	waiting  []*Waiter
	claiming *Waiter // was woken, and has not reported the result
	news     bool    // there was news, and no waiter has begun to claim since
}

func (q *queue) wake() {
	q.news = true
	q.wakeFirst()
}

// wakeFirst wakes the first waiter, if there is news and no waiter is claiming.
func (q *queue) wakeFirst() {
	if !q.news || q.claiming != nil || len(q.waiting) == 0 {
		return
	}
	q.news = false
	q.claiming = q.waiting[0]
	q.waiting = q.waiting[1:]
	q.claiming.turn <- struct{}{}
}

// ended is called when the claim of a waiter has ended.
func (q *queue) ended(w *Waiter) {
	if q.claiming == w {
		q.claiming = nil
	}
}

// Waiter is a member of a queue. One goroutine at a time may wait.
//
//	w := queues.Join(namespace, tags) // before the first claim, so that no news is missed
//	defer w.Leave()
//	for {
//		jobs, err := pg.ClaimJobs(…)
//		if err != nil || len(jobs) > 0 {
//			w.Found()
//			return jobs, err
//		}
//		if !w.Wait(ctx) {
//			return nil, ctx.Err()
//		}
//	}
type Waiter struct {
	queues *Queues
	queue  *queue
	turn   chan struct{}
}

// Wait waits until it is this waiter's turn to claim. It returns false when ctx has
// ended. A waiter that was woken before has found nothing.
func (w *Waiter) Wait(ctx context.Context) bool {
	w.queues.mu.Lock()
	w.queue.ended(w)
	w.queue.waiting = append(w.queue.waiting, w)
	w.queue.wakeFirst()
	w.queues.mu.Unlock()
	select {
	case w.queues.someone <- struct{}{}:
	default: // listen has not looked since
	}
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	select {
	case <-w.turn: // it was woken at the last moment: another waiter claims instead
		w.queue.news = true
		w.queue.ended(w)
	default:
		w.queue.waiting = slices.DeleteFunc(w.queue.waiting, func(other *Waiter) bool { return other == w })
	}
	w.queue.wakeFirst()
	return false
}

// Found reports that a claim found jobs, or failed, so that there may be more: the next
// waiter claims.
func (w *Waiter) Found() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.queue.ended(w)
	w.queue.wake()
}

// Leave removes the waiter from its queue. If it was woken, the next waiter is.
func (w *Waiter) Leave() {
	q := w.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.queue.claiming == w {
		w.queue.claiming = nil
		w.queue.news = true
	}
	w.queue.wakeFirst()
	if w.queue.members--; w.queue.members == 0 {
		delete(q.queues, w.queue.name)
	}
	if q.waiters--; q.waiters == 0 {
		q.stopListening()
	}
}

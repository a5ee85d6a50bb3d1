// Package logwatch notices that events were published, or jobs became ready. A watcher
// asks the database for news, often while there is some and seldom while there is none,
// so that it also notices the work of plain SQL. A client that publishes or enqueues
// wakes the subscribers in its own process at once, and those in other processes by
// NOTIFY. The NOTIFY is never sent in the publisher's transaction, where it would make
// all commits wait for each other.
//
// The package does not promise that everything is noticed at once: a notification or a
// connection can be lost. Workers therefore also look for work by themselves.
package logwatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// After a transaction has written events or jobs, the watcher asks all the time for a
// while, since it may not have committed; then the pauses double up to maxPause. Each question
// lets the server look every millisecond for at most serverWait: short enough for any
// statement_timeout, and for a vacuum that waits for the snapshot.
const (
	minPause       = 2 * time.Millisecond // between two questions through a pooler
	maxPause       = 50 * time.Millisecond
	serverWait     = 10 * time.Millisecond
	activeFor      = time.Second
	notifyInterval = 500 * time.Millisecond // shorter than activeFor, so that listeners stay active
	retryDelay     = 2 * time.Second
	idleTimeout    = 10 * time.Second
)

// News is a kind of news.
type News int

// The kinds of news: events were published, or jobs became ready.
const (
	Events News = iota
	Jobs
)

// Watcher wakes its subscribers when there may be news. While all of them have unread news
// it does not ask the database. It is safe for concurrent use.
type Watcher struct {
	pool *pg.Pool
	log  *slog.Logger

	mu            sync.Mutex
	subscribers   map[chan struct{}]News
	notifying     bool // a notification is being sent
	notifyPending bool // another notification has to follow
	closed        bool
	goroutines    sync.WaitGroup
	ctx           context.Context // ends with Close
	stop          context.CancelFunc

	running     chan struct{}      // semaphore: one Run at a time uses a connection
	waiters     int                // calls of KeepRunning that were not released
	stopKept    context.CancelFunc // stops the Run of KeepRunning; nil if there is none
	idleTimer   *time.Timer        // calls stopIdle
	idleTimeout time.Duration
}

// New returns a watcher of the database of pool. The caller must close it.
func New(pool *pg.Pool, log *slog.Logger) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{
		pool: pool, log: log, subscribers: map[chan struct{}]News{}, ctx: ctx, stop: stop,
		running: make(chan struct{}, 1), idleTimeout: idleTimeout,
	}
}

// Close stops the watcher and waits until its goroutines have ended. A notification
// that is being sent is cancelled.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.closed = true
	if w.idleTimer != nil {
		w.idleTimer.Stop()
	}
	w.mu.Unlock()
	w.stop()
	w.goroutines.Wait()
}

// Subscribe returns a channel that receives when there may be news of a kind, and a
// function that ends the subscription. The channel buffers one value, so a subscriber
// that is busy misses nothing.
func (w *Watcher) Subscribe(kind News) (news <-chan struct{}, unsubscribe func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers[c] = kind
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subscribers, c)
	}
}

func (w *Watcher) wake(kind News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, wanted := range w.subscribers {
		if wanted != kind {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // a value is waiting in the channel
		}
	}
}

// Announce reports that this process has published events or enqueued jobs. It wakes the
// subscribers in this process and notifies other processes: at most once in
// notifyInterval, so that one notification stands for many events and jobs.
func (w *Watcher) Announce(kind News) {
	w.wake(kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || !w.pool.Direct(): // a pooler does not support LISTEN
	case w.notifying:
		w.notifyPending = true
	default:
		w.notifying = true
		w.goroutines.Go(w.notify)
	}
}

func (w *Watcher) notify() {
	for {
		if err := pg.Notify(w.ctx, w.pool); err != nil && w.ctx.Err() == nil {
			w.log.Debug("notify other processes of news", "error", err)
		}
		worker.Pause(w.ctx, notifyInterval)
		w.mu.Lock()
		if !w.notifyPending || w.closed {
			w.notifying = false
			w.mu.Unlock()
			return
		}
		w.notifyPending = false
		w.mu.Unlock()
	}
}

// Run watches until ctx ends, on a connection of its own with the settings of the
// pool. Of several concurrent calls one watches and the others wait for it to end.
func (w *Watcher) Run(ctx context.Context) {
	select {
	case w.running <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-w.running }()
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("watch for news, workers poll meanwhile", "error", err)
			worker.Pause(ctx, retryDelay)
		}
	}
}

// KeepRunning makes sure that the watcher runs until release is called, for callers
// that wait without [Watcher.Run]. After the last release it goes on for the idle
// timeout, since most callers wait again soon.
func (w *Watcher) KeepRunning() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters++
	if w.stopKept == nil && !w.closed {
		var ctx context.Context
		ctx, w.stopKept = context.WithCancel(w.ctx)
		w.idleTimer = time.AfterFunc(w.idleTimeout, w.stopIdle)
		w.goroutines.Go(func() { w.Run(ctx) })
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.waiters--; w.waiters == 0 && w.stopKept != nil {
			w.idleTimer.Reset(w.idleTimeout)
		}
	}
}

// Follow subscribes to news of a kind, and keeps the watcher running until the subscription
// ends.
func (w *Watcher) Follow(kind News) (news <-chan struct{}, end func()) {
	news, unsubscribe := w.Subscribe(kind)
	release := w.KeepRunning()
	return news, func() { unsubscribe(); release() }
}

// stopIdle ends the Run that KeepRunning has started, unless a caller waits.
func (w *Watcher) stopIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters == 0 && w.stopKept != nil {
		w.stopKept()
		w.stopKept = nil
	}
}

func (w *Watcher) watch(ctx context.Context) error {
	pooled, err := w.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryDelay)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if w.pool.Direct() {
		if err := pg.Listen(ctx, conn); err != nil {
			return err
		}
	}
	// The queries outlive ctx by retryDelay: cancelling one would break the connection,
	// and each takes milliseconds.
	queryCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(retryDelay, cancel) })()
	p := poller{conn: conn, listens: w.pool.Direct(), pause: minPause}
	for {
		if !w.awaitReader(ctx) {
			return nil
		}
		events, jobs, err := p.poll(ctx, queryCtx)
		if err != nil {
			return err
		}
		if events {
			w.wake(Events)
		}
		if jobs {
			w.wake(Jobs)
		}
	}
}

// awaitReader waits while each subscriber has news that it has not read: programs that are
// busy read none, and asking would cost them a part of the server. It returns false when
// ctx has ended.
func (w *Watcher) awaitReader(ctx context.Context) bool {
	for pause := minPause / 16; w.allHaveNews(); pause = min(2*pause, minPause) {
		if !worker.Pause(ctx, pause) {
			return false
		}
	}
	return true
}

func (w *Watcher) allHaveNews() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.subscribers {
		if len(c) == 0 {
			return false
		}
	}
	return len(w.subscribers) > 0
}

// poller asks for news on one connection.
type poller struct {
	conn    *pgx.Conn
	listens bool // the connection receives notifications
	news    pg.News
	active  time.Time // last time that a transaction wrote something new, or a notification came
	pause   time.Duration
}

// poll waits for the pause and asks once. It reports whether there may be new events, and
// jobs.
func (p *poller) poll(ctx, queryCtx context.Context) (events, jobs bool, err error) {
	pause, onServer := p.pause, time.Duration(0)
	if p.listens && p.pause == minPause { // through a pooler, a wait on the server would occupy a connection
		pause, onServer = 0, serverWait
	}
	notified, err := p.wait(ctx, pause)
	if err != nil {
		return false, false, err
	}
	before := p.news
	if p.news, err = pg.AwaitNews(queryCtx, p.conn, before, onServer); err != nil {
		return false, false, err
	}
	now := time.Now()
	if notified || p.news.Moved(before) {
		p.active = now
	}
	if now.Sub(p.active) < activeFor {
		p.pause = minPause
	} else {
		p.pause = min(2*p.pause, maxPause)
	}
	return notified || p.news.Events, notified || p.news.Jobs, nil
}

// wait returns after the pause or at the first notification. It removes all received
// notifications from the connection.
func (p *poller) wait(ctx context.Context, pause time.Duration) (notified bool, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for p.listens {
		if _, err := p.conn.WaitForNotification(waitCtx); err != nil {
			if waitCtx.Err() == nil {
				return notified, err
			}
			break
		}
		notified = true
		cancel()
	}
	<-waitCtx.Done()
	return notified, ctx.Err()
}

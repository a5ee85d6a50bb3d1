// Package logwatch notices that events were published, or jobs became ready. A watcher
// asks the database for news, often while there is some and seldom while there is none,
// so that it also notices the work of plain SQL. A client that publishes or enqueues
// wakes the subscribers in its own process at once, and those in other processes by
// NOTIFY. The NOTIFY is never sent in the publisher's transaction, where it would make
// all commits wait for each other.
//
// Of the processes of one database, one asks so for all, as long as its connection is open: it
// notifies the others of news at once, and they ask every followPause only. If it dies, another
// one takes its turn at its next question. The SQL function watch_in_turn has the protocol. Through
// a pooler each process asks for itself.
//
// The package does not promise that everything is noticed at once: a notification or a
// connection can be lost. Workers therefore also look for work by themselves.
package logwatch

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// After a transaction has written events or jobs, the watcher asks all the time for a
// while, since it may not have committed; then the pauses double up to maxPause, and after a minute they are longer. Each question
// lets the server look every millisecond for at most serverWait: short enough for any
// statement_timeout, and for a vacuum that waits for the snapshot.
const (
	minPause       = 2 * time.Millisecond // between two questions through a pooler
	maxPause       = 50 * time.Millisecond
	restPause      = 200 * time.Millisecond // after restAfter without news
	restAfter      = time.Minute
	followPause    = 500 * time.Millisecond // while another process asks for all
	busyPause      = 5 * time.Millisecond   // of a process that asks for others, between news for which it has no time itself
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
	followPause time.Duration
}

// New returns a watcher of the database of pool. The caller must close it.
func New(pool *pg.Pool, log *slog.Logger) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{
		pool: pool, log: log, subscribers: map[chan struct{}]News{}, ctx: ctx, stop: stop,
		running: make(chan struct{}, 1), idleTimeout: idleTimeout, followPause: followPause,
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
	p := poller{conn: conn, listens: w.pool.Direct(), pause: minPause, followPause: w.followPause}
	for w.awaitReader(ctx, p.mayRest()) {
		found, err := p.poll(ctx, queryCtx, w.allHaveNews)
		if err != nil {
			return err
		}
		if found.events {
			w.wake(Events)
		}
		if found.jobs {
			w.wake(Jobs)
		}
	}
	return nil
}

// awaitReader waits while each subscriber has news that it has not read, at most for a time: programs
// that are busy read none, and asking would cost them a part of the server. It returns false when
// ctx has ended.
func (w *Watcher) awaitReader(ctx context.Context, most time.Duration) bool {
	began := time.Now()
	for pause := minPause / 16; w.allHaveNews() && time.Since(began) < most; pause = min(2*pause, minPause) {
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

// kinds are kinds of news.
type kinds struct{ events, jobs bool }

func (k kinds) some() bool { return k.events || k.jobs }

// poller asks for news on one connection.
type poller struct {
	conn        *pgx.Conn
	listens     bool // the connection receives notifications
	news        pg.News
	active      time.Time // last time that a transaction wrote something new, or a notification came
	pause       time.Duration
	asked       time.Time // when a connection asked last, or left the question out since all subscribers had news
	followPause time.Duration
}

// mayRest returns how long the connection may ask nothing while all subscribers are busy.
func (p *poller) mayRest() time.Duration {
	switch p.news.Turn() {
	case pg.WatchesForAll:
		if p.hasTold() {
			return busyPause
		}
		return 0
	case pg.WatchesAlone:
		return p.followPause // then others may follow
	case pg.Follows:
		return 0 // it asks seldom, and has to receive its notifications
	default:
		return math.MaxInt64
	}
}

// hasTold reports whether the last question found news, and notified others of it.
func (p *poller) hasTold() bool {
	return p.news.Turn() == pg.WatchesForAll && (p.news.Events || p.news.Jobs)
}

// poll waits for the pause and asks once. It returns the kinds of which there may be news.
func (p *poller) poll(ctx, queryCtx context.Context, busy func() bool) (kinds, error) {
	if p.news.Turn() == pg.Follows {
		return p.follow(ctx, queryCtx, busy)
	}
	pause, onServer := p.pause, time.Duration(0)
	if p.listens && p.pause == minPause { // through a pooler, a wait on the server would occupy a connection
		pause, onServer = 0, serverWait
	}
	if p.hasTold() { // one notification for the news of two milliseconds
		pause = minPause
	}
	told, err := p.wait(ctx, pause)
	if err != nil {
		return kinds{}, err
	}
	return p.ask(queryCtx, onServer, told)
}

// follow waits for a notification, and asks if it has not done so for a while: the process that asks for
// all may be stopped, or gone. Then this one may get the turn.
func (p *poller) follow(ctx, queryCtx context.Context, busy func() bool) (kinds, error) {
	told, err := p.wait(ctx, time.Until(p.asked.Add(p.followPause)))
	switch {
	case err != nil || time.Since(p.asked) < p.followPause:
		return told, err
	case busy():
		p.asked = time.Now()
		return told, nil
	default:
		return p.ask(queryCtx, 0, told)
	}
}

// ask asks once, after a notification has told of some kinds.
func (p *poller) ask(ctx context.Context, onServer time.Duration, told kinds) (found kinds, err error) {
	before := p.news
	if p.listens {
		p.news, err = pg.AwaitNewsInTurn(ctx, p.conn, before, onServer)
	} else {
		p.news, err = pg.AwaitNews(ctx, p.conn, before, onServer)
	}
	if err != nil {
		return kinds{}, err
	}
	p.asked = time.Now()
	if told.some() || p.news.Moved(before) {
		p.active = p.asked
	}
	p.pause = pauseAfter(p.pause, p.asked.Sub(p.active))
	return kinds{told.events || p.news.Events, told.jobs || p.news.Jobs}, nil
}

// pauseAfter returns the pause that follows another one, when there has been no news for a time.
func pauseAfter(last, quiet time.Duration) time.Duration {
	switch {
	case quiet < activeFor:
		return minPause
	case quiet < restAfter:
		return min(2*last, maxPause)
	default:
		return restPause
	}
}

// wait returns after the pause, or at the first notification of another connection. It removes all
// received notifications from the connection.
func (p *poller) wait(ctx context.Context, pause time.Duration) (told kinds, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for p.listens {
		n, err := p.conn.WaitForNotification(waitCtx)
		if err != nil {
			if waitCtx.Err() == nil {
				return told, err
			}
			break
		}
		if n.PID == p.conn.PgConn().PID() {
			continue
		}
		events, jobs := pg.Told(n)
		told.events, told.jobs = told.events || events, told.jobs || jobs
		cancel()
	}
	<-waitCtx.Done()
	return told, ctx.Err()
}

// Package wake tells when to look for work. It asks whether an event has become
// visible: quickly while events arrive, slowly while none do, so that it also
// hears of what plain SQL publishes. Clients that publish say so, at once in their
// own process and by a notification to others; never inside a publisher's
// transaction, where a notification would make all commits wait for each other.
//
// It owns no promise: whoever relies on it alone looks too late after a missed
// notification or a broken connection. Workers look by themselves now and then.
package wake

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// How often it looks: quickly for a while after an id was drawn, since what was
// drawn may not be committed yet, then ever more slowly. While it is quick, the
// server looks for it every millisecond, and answers after stay at the latest: short
// enough for any statement_timeout, and for a vacuum that waits for the snapshot.
const (
	quick    = 2 * time.Millisecond // through a pooler
	stay     = 10 * time.Millisecond
	slow     = 50 * time.Millisecond
	stayFor  = time.Second
	coalesce = 500 * time.Millisecond // at most one notification in that time: who heard one reads quickly for longer
	patience = 2 * time.Second        // before connecting again
	linger   = 10 * time.Second       // how long it goes on for those who may wait again soon
)

// Watch tells its subscribers when something may have been published. It is safe
// for use by any number of goroutines.
type Watch struct {
	pool *pg.Pool
	log  *slog.Logger

	mu          sync.Mutex
	subscribers map[chan struct{}]bool
	notifying   bool // a notification is on its way
	again       bool // and another has to follow
	closed      bool
	sending     sync.WaitGroup
	stop        context.CancelFunc
	ctx         context.Context // ends with Close

	turn   chan struct{}      // who holds it watches
	needed int                // how many wait for news, see Keep
	kept   context.CancelFunc // ends what runs for them; nil while nothing does
	idle   *time.Timer        // calls it when nobody has waited for a while
	linger time.Duration      // how long that is
}

// New returns a watch that uses pool. It has to be closed.
func New(pool *pg.Pool, log *slog.Logger) *Watch {
	ctx, stop := context.WithCancel(context.Background())
	return &Watch{
		pool: pool, log: log, subscribers: map[chan struct{}]bool{}, ctx: ctx, stop: stop,
		turn: make(chan struct{}, 1), linger: linger,
	}
}

// Close waits until the last notification has been sent, or given up.
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed = true
	if w.idle != nil {
		w.idle.Stop()
	}
	w.mu.Unlock()
	w.stop()
	w.sending.Wait()
}

// Subscribe returns a channel that receives whenever something may have been
// published, and what ends that. News that nobody waits for is kept, once.
func (w *Watch) Subscribe() (news <-chan struct{}, end func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers[c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subscribers, c)
	}
}

// wake tells everyone in this process.
func (w *Watch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.subscribers {
		select {
		case c <- struct{}{}:
		default: // it has news already
		}
	}
}

// Published says that this process has published: its own workers look at once,
// and those elsewhere hear of it, soon and together with what follows.
func (w *Watch) Published() {
	w.wake()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || !w.pool.Direct(): // through a pooler nobody would hear it
	case w.notifying:
		w.again = true
	default:
		w.notifying = true
		w.sending.Go(w.notify)
	}
}

func (w *Watch) notify() {
	for {
		if err := pg.Notify(w.ctx, w.pool); err != nil && w.ctx.Err() == nil {
			w.log.Debug("others were not told of news", "error", err)
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(coalesce):
		}
		w.mu.Lock()
		if !w.again || w.closed {
			w.notifying = false
			w.mu.Unlock()
			return
		}
		w.again = false
		w.mu.Unlock()
	}
}

// Run watches until ctx ends, on a connection of its own made like those of the
// pool. While it runs more than once, one of them watches.
func (w *Watch) Run(ctx context.Context) {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-w.turn }()
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("cannot hear of news, workers look now and then", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(patience):
			}
		}
	}
}

// Keep sees to it that the watch runs, for those who wait without [Watch.Run].
// After the last of them has had enough it goes on for a little, since most of
// them wait again soon.
func (w *Watch) Keep() (enough func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needed++
	if w.kept == nil && !w.closed {
		var ctx context.Context
		ctx, w.kept = context.WithCancel(w.ctx)
		w.idle = time.AfterFunc(w.linger, w.rest)
		w.sending.Go(func() { w.Run(ctx) })
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.needed--; w.needed == 0 && w.kept != nil {
			w.idle.Reset(w.linger)
		}
	}
}

// rest ends what Keep has begun, unless somebody waits.
func (w *Watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.needed == 0 && w.kept != nil {
		w.kept()
		w.kept = nil
	}
}

func (w *Watch) watch(ctx context.Context) error {
	pooled, err := w.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if w.pool.Direct() {
		if err := pg.Listen(ctx, conn); err != nil {
			return err
		}
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })()
	p := poll{conn: conn, listens: w.pool.Direct(), pause: quick}
	for {
		news, err := p.next(ctx, asking)
		if err != nil {
			return err
		}
		if news {
			w.wake()
		}
	}
}

// poll is how one connection looks for news.
type poll struct {
	conn    *pgx.Conn
	listens bool
	seen    pg.Progress
	moved   time.Time // when the sequence last did
	pause   time.Duration
}

// next looks once more, and reports whether there is news. asking outlasts ctx:
// to break off a question would break the connection, and none takes long.
func (p *poll) next(ctx, asking context.Context) (bool, error) {
	pause, there := p.pause, time.Duration(0)
	if p.listens && p.pause == quick { // a pooler has better uses for its connections
		pause, there = 0, stay
	}
	notified, err := p.wait(ctx, pause)
	if err != nil {
		return false, err
	}
	now, err := pg.AwaitEvents(asking, p.conn, p.seen, there)
	if err != nil {
		return false, err
	}
	at := time.Now()
	if notified || now.Drawn != p.seen.Drawn {
		p.moved = at
	}
	p.seen = now
	if at.Sub(p.moved) < stayFor {
		p.pause = quick
	} else {
		p.pause = min(2*p.pause, slow)
	}
	return notified || now.Arrived, nil
}

// wait ends after a pause, or with a notification. It takes all that have come.
func (p *poll) wait(ctx context.Context, pause time.Duration) (notified bool, err error) {
	waiting, enough := context.WithTimeout(ctx, pause)
	defer enough()
	for p.listens {
		if _, err := p.conn.WaitForNotification(waiting); err != nil {
			if waiting.Err() == nil {
				return notified, err
			}
			break
		}
		notified = true
		enough()
	}
	<-waiting.Done()
	return notified, ctx.Err()
}

package work

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// How often the bell looks for news: quickly for a while after some, slowly
// otherwise. It rings with news, as long after them as echoes say, since what
// has moved the sequence may not be committed yet, and in any case once in
// always.
const (
	quick   = 5 * time.Millisecond
	slow    = 50 * time.Millisecond
	stayFor = 300 * time.Millisecond
	linger  = 10 * time.Second // how long it goes on for those who may wait again soon
)

var always = time.Second // a variable for tests, which set it before they begin

var echoes = []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// Bell tells those who wait for jobs when to look for them. It is safe for use by
// any number of goroutines, and looks for news only while somebody waits.
type Bell struct {
	db  pg.DB
	log *slog.Logger

	mu      sync.Mutex
	lines   map[string]*line
	waiters int
	moved   time.Time // when there was news last
	stop    context.CancelFunc
	polling sync.WaitGroup
	rung    chan struct{} // receives when Poke was called
	closed  bool
	idle    *time.Timer
}

// NewBell returns a bell that asks db, which is a pool. It has to be closed.
func NewBell(db pg.DB, log *slog.Logger) *Bell {
	return &Bell{db: db, log: log, lines: map[string]*line{}, rung: make(chan struct{}, 1)}
}

// Close ends the bell. Those who wait go on waiting, until their contexts end.
func (b *Bell) Close() {
	b.mu.Lock()
	b.closed = true
	b.rest()
	b.mu.Unlock()
	b.polling.Wait()
}

// Join stands in line with all that wait for the same. The waiter has to leave.
func (b *Bell) Join(namespace string, tags []string) *Waiter {
	name := lineName(namespace, tags)
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[name]
	if l == nil {
		l = &line{name: name}
		b.lines[name] = l
	}
	l.members++
	if b.waiters++; b.waiters == 1 {
		b.wake()
	}
	return &Waiter{bell: b, line: l, turn: make(chan struct{}, 1)}
}

// lineName has no doubles: no tag has control characters.
func lineName(namespace string, tags []string) string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return namespace + "\n" + strings.Join(slices.Compact(tags), "\n")
}

// Poke says that this process has enqueued jobs: those who wait look at once.
func (b *Bell) Poke() {
	b.news()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// wake sees to it that somebody looks for news. The caller holds the lock.
func (b *Bell) wake() {
	if b.idle != nil {
		b.idle.Stop()
		b.idle = nil
	}
	if b.stop != nil || b.closed {
		return
	}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.polling.Go(func() { b.poll(ctx) })
}

// rest ends the looking. The caller holds the lock.
func (b *Bell) rest() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// left is called when the last waiter has gone. The caller holds the lock.
func (b *Bell) left() {
	b.idle = time.AfterFunc(linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiters == 0 {
			b.rest()
		}
	})
}

// news notes that there was some, and rings.
func (b *Bell) news() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved = time.Now()
	b.ring()
}

// ring lets the first in each line look. The caller holds the lock.
func (b *Bell) ring() {
	for _, l := range b.lines {
		l.ring()
	}
}

// poll looks for news until ctx ends.
func (b *Bell) poll(ctx context.Context) {
	seen, failing := int64(-1), false
	trouble := worker.Trouble{Log: b.log, Message: "cannot look for news of jobs yet"}
	rung := time.Now()
	for {
		pause := b.pause(&rung)
		if failing {
			pause = worker.TroubleWait
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.rung:
			timer.Stop()
			rung = time.Now()
			continue // it has rung; the echoes count from now
		case <-timer.C:
		}
		now, err := pg.JobNews(ctx, b.db)
		if ctx.Err() != nil {
			return
		}
		if failing = err != nil; failing {
			trouble.Report(err)
			continue
		}
		trouble.Over()
		if now != seen { // the first answer too: a job may have come between a first look and this one
			b.news()
			rung = time.Now()
		}
		seen = now
	}
}

// pause is how long to wait before the next look for news. It rings by the way,
// if it is time for an echo, or for the ring that comes always; rung is when it
// did last.
func (b *Bell) pause(rung *time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	since := now.Sub(b.moved)
	due := now.Sub(*rung) >= always
	for _, echo := range echoes {
		due = due || since >= echo && rung.Sub(b.moved) < echo
	}
	if due {
		*rung = now
		b.ring()
	}
	if since < stayFor {
		return quick
	}
	return slow
}

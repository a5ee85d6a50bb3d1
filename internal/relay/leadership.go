package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// leadership is the work of a process while it leads. It reads windows of the log and
// writes them to the broker, until the lead is lost or given back.
type leadership struct {
	Config
	lead   pg.Lead
	number int64 // of this leadership in this process: an epoch may come twice, as after a failover that lost it

	ctx   context.Context // ends a little before the lead may end; nothing is written after that
	end   context.CancelCauseFunc
	going context.Context // ends with ctx, and when no new work may begin

	wanted map[string]bool // caches isFor; used by the writer only

	status status

	mu       sync.Mutex
	stuck    map[int64]*stuck
	owed     int             // events of all stuck streams
	changed  chan struct{}   // closed and replaced when stuck or owed changes
	suspects int             // streams set aside since the broker last took an event
	down     bool            // it was logged that the broker takes nothing
	full     bool            // it was logged that too many events are set aside
	written  map[string]bool // streams to trim
}

var leaderships atomic.Int64 // of all relays of this process, so that two may share a sink

func newLeadership(config Config, lead pg.Lead) *leadership {
	return &leadership{
		Config: config, lead: lead, number: leaderships.Add(1), wanted: map[string]bool{}, stuck: map[int64]*stuck{},
		changed: make(chan struct{}), written: map[string]bool{},
	}
}

// Extend keeps the lead.
func (l *leadership) Extend(ctx context.Context) error {
	_, err := l.Config.lead(ctx, l.lead.Epoch)
	return err
}

// Release gives the lead back.
func (l *leadership) Release(ctx context.Context) error { return pg.ResignRelay(ctx, l.Pool, l.lead) }

// Work relays until stop or ctx ends. Its goroutines end before it returns.
func (l *leadership) Work(stop, ctx context.Context) error {
	l.ctx, l.end = context.WithCancelCause(ctx)
	defer l.end(nil)
	var stopped context.CancelFunc
	l.going, stopped = context.WithCancel(l.ctx)
	defer context.AfterFunc(stop, stopped)()
	aside, err := pg.ListAside(l.ctx, l.Pool, l.Group)
	if err != nil {
		l.end(err)
		return context.Cause(l.ctx)
	}
	l.remember(aside)
	if err := l.findLost(); err != nil && l.going.Err() == nil {
		l.end(err)
	}
	if l.going.Err() != nil {
		return context.Cause(l.ctx)
	}
	windows, written := make(chan *pg.Window, 1), make(chan settled, 2)
	var all sync.WaitGroup
	all.Go(l.retry)
	if l.Trim != nil {
		all.Go(l.trim)
	}
	all.Go(func() {
		defer close(written)
		for w := range windows {
			if report, ok := l.write(w); ok {
				written <- settled{w, report}
			}
		}
	})
	l.fetch(windows, written)
	err = context.Cause(l.ctx)
	l.end(nil)
	all.Wait()
	return err
}

// settled is a window that was written, with the report of its streams and failures.
type settled struct {
	window *pg.Window
	report pg.RelayReport
}

// windowsAhead is how many windows are taken at once: while one is written, the
// next is fetched.
const windowsAhead = 2

// fetch takes windows and settles them, in one round trip where both are due, until
// stop or the lead ends. It returns when all windows that were written are settled.
func (l *leadership) fetch(windows chan<- *pg.Window, written <-chan settled) {
	retries := true // the next window may have redriven dead letters
	var moved error // the namespace is closed: what is written may still be settled
	for taken, rest := 0, false; l.going.Err() == nil; {
		s, ok := l.await(written, taken < windowsAhead && !rest)
		if !ok && taken == windowsAhead { // woken without a window that was written
			continue
		}
		if ok {
			taken--
		}
		if l.going.Err() != nil {
			l.settle(s, ok)
			break
		}
		w, err := l.Pool.TakeRelay(l.ctx, l.take(s, ok, retries))
		if errors.Is(err, pg.ErrMoved) {
			moved = err
			l.settle(s, ok)
			break
		} else if err != nil {
			l.end(err)
			break
		}
		l.wasSettled(s)
		rest = !w.Held()
		retries = !w.Retries // in turn, so that neither kind delays the other
		if w.Held() {
			taken++
			windows <- &w
		}
	}
	close(windows)
	for s := range written {
		l.settle(s, true)
	}
	if moved != nil {
		l.end(moved)
	}
}

func (l *leadership) take(s settled, ok, retries bool) pg.RelayTake {
	take := pg.RelayTake{Lead: l.lead, MaxEvents: l.BatchSize, LeaseFor: l.LeaseFor, Retries: retries}
	if ok {
		take.Settled, take.Report = s.window, s.report
	}
	return take
}

// await waits for a window that was written. It returns at once if a window can be
// taken, and early after a notification.
func (l *leadership) await(written <-chan settled, take bool) (s settled, ok bool) {
	if take {
		select {
		case s, ok = <-written:
		default:
		}
		return s, ok
	}
	timer := time.NewTimer(l.IdlePoll)
	defer timer.Stop()
	select {
	case s, ok = <-written:
	case <-l.NewEvents:
	case <-timer.C:
	case <-l.going.Done():
	}
	return s, ok
}

func (l *leadership) settle(s settled, ok bool) {
	if !ok || l.ctx.Err() != nil {
		return
	}
	if err := pg.SettleRelay(l.ctx, l.Pool, l.lead, *s.window, s.report); err != nil {
		l.end(err)
		return
	}
	l.wasSettled(s)
}

// wasSettled reports the dead letters of a settled window, and wakes the retries of
// the streams that the window has set aside.
func (l *leadership) wasSettled(s settled) {
	if len(s.report.Failures) > 0 {
		l.Buried(l.ctx, s.report.Failures)
	}
	if len(s.report.Aside) > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.notify()
	}
}

// notify wakes the goroutines that wait for a change. The caller holds the lock.
func (l *leadership) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// trim has the sink trim the streams that were written to.
func (l *leadership) trim() {
	trouble := worker.Trouble{Log: l.Log, Message: "cannot trim a stream yet"}
	for worker.Pause(l.going, l.TrimEvery) {
		l.mu.Lock()
		written := l.written
		l.written = map[string]bool{}
		l.mu.Unlock()
		for stream := range written {
			if l.going.Err() != nil {
				return
			}
			if err := l.Trim(l.ctx, stream); err == nil {
				trouble.Over()
			} else if l.ctx.Err() == nil {
				trouble.Report(fmt.Errorf("%s: %w", stream, err))
				l.noteWritten(stream) // retried with the next round
			}
		}
	}
}

// noteWritten notes a stream that was written to, for trim.
func (l *leadership) noteWritten(stream string) {
	if l.Trim == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[stream] = true
}

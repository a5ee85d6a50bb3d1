package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// leadership is one leadership of a process. It reads windows of the log and
// writes them to the broker, until the lead is lost or given back.
type leadership struct {
	Config
	lead pg.Lead

	ctx   context.Context // ends with the lead, or a little before: nothing is written then
	end   context.CancelCauseFunc
	going context.Context // ends with ctx, and when nothing more is to be begun

	wanted map[string]bool // streams, by whether the relay is for them; used by the writer alone

	status status

	mu       sync.Mutex
	stuck    map[int64]*stuck
	owed     int           // events of all of them
	changed  chan struct{} // closed and made anew when stuck or owed change
	suspects int           // streams that were set aside since the broker took anything
	down     bool          // the broker takes nothing, and that was logged
	full     bool          // too much is set aside, and that was logged
	moved    map[string]bool
}

func newLeadership(config Config, lead pg.Lead) *leadership {
	return &leadership{
		Config: config, lead: lead, wanted: map[string]bool{}, stuck: map[int64]*stuck{},
		changed: make(chan struct{}), moved: map[string]bool{},
	}
}

// Extend keeps the lead.
func (l *leadership) Extend(ctx context.Context) error {
	_, err := l.Config.lead(ctx, l.lead.Epoch)
	return err
}

// Release gives the lead back.
func (l *leadership) Release(ctx context.Context) error { return pg.ResignRelay(ctx, l.Pool, l.lead) }

// Work relays until stop or ctx ends. All that it starts ends before it returns.
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

// fetch takes windows and settles them, in one round trip where both are due,
// until stop or the lead ends. It returns when all that was written is settled.
func (l *leadership) fetch(windows chan<- *pg.Window, written <-chan settled) {
	again := true
	for taken, rest := 0, false; l.going.Err() == nil; {
		s, ok := l.await(written, taken < windowsAhead && !rest)
		if !ok && taken == windowsAhead { // it waited for nothing
			continue
		}
		if ok {
			taken--
		}
		if l.going.Err() != nil {
			l.settle(s, ok)
			break
		}
		w, err := l.Pool.TakeRelay(l.ctx, l.take(s, ok, again))
		if err != nil {
			l.end(err)
			break
		}
		l.wasSettled(s)
		rest = !w.Held()
		again = !w.Retries
		if w.Held() {
			taken++
			windows <- &w
		}
	}
	close(windows)
	for s := range written {
		l.settle(s, true)
	}
}

func (l *leadership) take(s settled, ok, again bool) pg.RelayTake {
	take := pg.RelayTake{Lead: l.lead, MaxEvents: l.BatchSize, LeaseFor: l.LeaseFor, Again: again}
	if ok {
		take.Settled, take.Report = s.window, s.report
	}
	return take
}

// await waits for a window that was written. It returns early when a window can be
// taken: at once, or with news.
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
	case <-l.News:
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

// wasSettled reports the dead letters of a window that was settled, and wakes the
// retries of streams that it has set aside.
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
	trouble := worker.Trouble{Log: l.Log, What: "cannot trim a stream yet"}
	for worker.Pause(l.going, l.TrimEvery) {
		l.mu.Lock()
		moved := l.moved
		l.moved = map[string]bool{}
		l.mu.Unlock()
		for stream := range moved {
			if l.going.Err() != nil {
				return
			}
			if err := l.Trim(l.ctx, stream); err == nil {
				trouble.Over()
			} else if l.ctx.Err() == nil {
				trouble.Report(fmt.Errorf("%s: %w", stream, err))
				l.noteMoved(stream) // once more, next time
			}
		}
	}
}

// noteMoved notes a stream that was written to, for trim.
func (l *leadership) noteMoved(stream string) {
	if l.Trim == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved[stream] = true
}

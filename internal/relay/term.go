package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// term is what a process does from taking the lead to losing it or giving it
// back. All of it ends before the next one begins.
type term struct {
	*Relay
	lead pg.Lead
	stop context.Context

	// ctx ends with the lead, or a little before: nothing is written then.
	ctx   context.Context
	end   context.CancelCauseFunc
	lapse *time.Timer
	until time.Time // the lead may be used; renew's

	wanted map[string]bool // streams, by whether the relay is for them; the writer's

	status status

	mu       sync.Mutex
	stuck    map[int64]*stuck
	owed     int           // events of all of them
	changed  chan struct{} // closed and made anew when stuck or owed change
	suspects int           // streams that were set aside since the broker took anything
	down     bool          // the broker takes nothing, and that was said
	full     bool          // too much is set aside, and that was said
	moved    map[string]bool
}

var errLapsed = errors.New("it could not be renewed in time")

// safe is the part of a lead that is used: the rest is for clocks that differ in
// speed, and for what a write that was called off still does.
const safe = 0.8

func newTerm(r *Relay, stop, work context.Context, lead pg.Lead, asked time.Time) *term {
	t := &term{
		Relay: r, lead: lead, stop: stop, wanted: map[string]bool{}, stuck: map[int64]*stuck{},
		changed: make(chan struct{}), moved: map[string]bool{},
	}
	t.ctx, t.end = context.WithCancelCause(work)
	t.until = t.safely(asked)
	t.lapse = time.AfterFunc(time.Until(t.until), func() { t.end(errLapsed) })
	return t
}

// safely returns until when a lead that was asked for then may be used.
func (t *term) safely(asked time.Time) time.Time {
	return asked.Add(time.Duration(safe * float64(t.LeaseFor)))
}

// run returns why the term ended: nil when it was stop that ended it.
func (t *term) run() error {
	err := t.work()
	if err != nil && time.Now().After(t.until) && !errors.Is(err, errLapsed) {
		return fmt.Errorf("%w: %w", errLapsed, err) // a process that stood still finds out in many ways
	}
	return err
}

func (t *term) work() error {
	defer t.end(nil)
	defer t.lapse.Stop()
	aside, err := pg.ListAside(t.ctx, t.Pool, t.Group)
	if err != nil {
		t.end(err)
		return context.Cause(t.ctx)
	}
	t.remember(aside)
	windows, done := make(chan *pg.Window, 1), make(chan settled, 2)
	var all sync.WaitGroup
	all.Go(t.renew)
	all.Go(t.retry)
	if t.Trim != nil {
		all.Go(t.trim)
	}
	all.Go(func() {
		defer close(done)
		for w := range windows {
			if report, ok := t.write(w); ok {
				done <- settled{w, report}
			}
		}
	})
	t.fetch(windows, done)
	err = context.Cause(t.ctx)
	t.end(nil)
	all.Wait()
	return err
}

// renew keeps the lead.
func (t *term) renew() {
	for wait := t.LeaseFor / 3; worker.Pause(t.ctx, wait); {
		asked := time.Now()
		_, err := t.Relay.lead(t.ctx, t.lead.Epoch)
		switch {
		case err == nil:
			if t.lapse.Stop() { // else it is over, or will be at once
				t.until = t.safely(asked)
				t.lapse.Reset(time.Until(t.until))
			}
			wait = t.LeaseFor / 3
		case errors.Is(err, pg.ErrLeaseLost):
			t.end(err)
		case t.ctx.Err() == nil:
			t.Log.Warn("cannot renew the lead of the relay yet", "relay", t.Group.Name, "error", err)
			wait = t.LeaseFor / 20
		}
	}
}

// settled is a window that is written, with what became of it.
type settled struct {
	window *pg.Window
	report pg.RelayReport
}

// inFlight is how many windows are taken at once: one is written, the other is
// there when that is done.
const inFlight = 2

// fetch takes windows and settles them, in one round trip where both are due,
// until stop or the lead ends. It returns when all that is written is settled.
func (t *term) fetch(windows chan<- *pg.Window, done <-chan settled) {
	again := true
	for taken, rest := 0, false; t.stop.Err() == nil && t.ctx.Err() == nil; {
		s, ok := t.await(done, taken < inFlight && !rest)
		if !ok && taken == inFlight { // it waited for nothing
			continue
		}
		if ok {
			taken--
		}
		if t.stop.Err() != nil {
			t.settle(s, ok)
			break
		}
		w, err := t.Pool.TakeRelay(t.ctx, t.take(s, ok, again))
		if err != nil {
			t.end(err)
			break
		}
		t.complained = false
		t.wasSettled(s)
		rest = !w.Held()
		again = !w.Retries
		if w.Held() {
			taken++
			windows <- &w
		}
	}
	close(windows)
	for s := range done {
		t.settle(s, true)
	}
}

func (t *term) take(s settled, ok, again bool) pg.RelayTake {
	take := pg.RelayTake{Lead: t.lead, MaxEvents: t.BatchSize, LeaseFor: t.LeaseFor, Again: again}
	if ok {
		take.Settled, take.Report = s.window, s.report
	}
	return take
}

// await waits for a window that is written, and returns early when there is
// something to take: at once, or with news.
func (t *term) await(done <-chan settled, take bool) (s settled, ok bool) {
	if take {
		select {
		case s, ok = <-done:
		default:
		}
		return s, ok
	}
	timer := time.NewTimer(t.IdlePoll)
	defer timer.Stop()
	select {
	case s, ok = <-done:
	case <-t.News:
	case <-timer.C:
	case <-t.stop.Done():
	case <-t.ctx.Done():
	}
	return s, ok
}

func (t *term) settle(s settled, ok bool) {
	if !ok || t.ctx.Err() != nil {
		return
	}
	if err := pg.SettleRelay(t.ctx, t.Pool, t.lead, *s.window, s.report); err != nil {
		t.end(err)
		return
	}
	t.wasSettled(s)
}

// wasSettled lets others know what is now in the database.
func (t *term) wasSettled(s settled) {
	if len(s.report.Failures) > 0 {
		t.Buried(t.ctx, s.report.Failures)
	}
	if len(s.report.Aside) > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tell()
	}
}

// tell wakes whoever waits for a change. The caller holds the lock.
func (t *term) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// trim lets the sink trim what was written to, now and then.
func (t *term) trim() {
	complained := false
	for worker.Pause(t.ctx, t.TrimEvery) && t.stop.Err() == nil {
		t.mu.Lock()
		moved := t.moved
		t.moved = map[string]bool{}
		t.mu.Unlock()
		for stream := range moved {
			err := t.Trim(t.ctx, stream)
			if err != nil && !complained && t.ctx.Err() == nil {
				t.Log.Warn("a stream could not be trimmed", "relay", t.Group.Name, "stream", stream, "error", err)
			}
			complained = err != nil
			if err != nil {
				t.note(stream) // once more, next time
			}
			if t.ctx.Err() != nil || t.stop.Err() != nil {
				return
			}
		}
	}
}

// note notes that a stream has moved.
func (t *term) note(stream string) {
	if t.Trim == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved[stream] = true
}

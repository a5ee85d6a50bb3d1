package consume

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// This file follows an event through a process: Take, workOff, plain, judge, finish,
// Finish.

// groupWorker works through one lease at a time.
type groupWorker struct {
	*group
	*worker.Worker
	router   router
	pipeline *worker.Pipeline
}

// Runner returns a function that works through leases, one after another.
func (g *group) Runner(of *worker.Worker) func(work context.Context, l *lease) bool {
	w := &groupWorker{
		group:    g,
		Worker:   of,
		router:   router{routes: g.Routes, table: &table{}},
		pipeline: g.Work.Pipeline(g.LeaseFor),
	}
	return w.workOff
}

// Take settles a lease that is done, if there is one, and takes another, with posthorn.take.
func (g *group) Take(work context.Context, n int, done *lease, news bool) (*lease, error) {
	if done == nil {
		return g.take(work, n, pg.Lease{}, news)
	}
	var next *lease
	err := done.Settle(func() (bool, error) {
		_, err := g.observeSettle(work, done.Events, func(ctx context.Context) (_ []pg.Fate, err error) {
			next, err = g.take(ctx, n, done.Lease, true)
			return nil, err
		})
		return true, err
	})
	if err == nil {
		g.heartbeat.Remove(done)
	}
	return next, err
}

func (g *group) take(work context.Context, n int, settle pg.Lease, news bool) (*lease, error) {
	asked := time.Now()
	taken, err := g.Pool.Take(work, pg.Take{
		Group: g.Group, Node: g.Node, MaxEvents: n, LeaseFor: g.LeaseFor, Settle: settle, Doubtful: !news,
	})
	if err != nil || !taken.Held() {
		return nil, err
	}
	return g.keep(work, taken, asked), nil
}

// keep starts the heartbeats of a lease.
func (g *group) keep(work context.Context, taken pg.Lease, asked time.Time) *lease {
	l := &lease{Lease: taken, done: make([]bool, len(taken.Events))}
	l.Init(work, asked, g.LeaseFor)
	g.heartbeat.Add(l)
	return l
}

// workOff calls the handlers of a lease. It reports whether all events are done and the
// lease has to be settled.
func (w *groupWorker) workOff(work context.Context, l *lease) bool {
	w.Observe.Took(l.Lease)
	l.Step()
	started := time.Now()
	table := w.plan(l)
	switch {
	case w.SharedTx || table.transactional:
		w.inTransactions(l)
	case w.Ordered || table.batches:
		w.oneByOne(l)
	default:
		w.sideBySide(l)
	}
	w.batch.Took(len(l.Events), time.Since(started))
	switch {
	case l.Lost():
		w.Lost(l)
	case l.Over():
		w.heartbeat.Remove(l)
	case l.clean():
		return true
	default:
		w.Finish(work, l)
	}
	return false
}

// sideBySide handles the events of a lease in parallel, on all free slots.
func (w *groupWorker) sideBySide(l *lease) {
	begun := w.SideBySide(l.Context(), len(l.Events), func(i int) { w.finish(l, i, i+1, w.plain(l, i, i+1)) })
	l.leave(begun)
}

// oneByOne handles the events of a lease in order, in batches for handlers that
// take them.
func (w *groupWorker) oneByOne(l *lease) {
	for start := 0; start < len(l.Events); {
		if l.Context().Err() != nil {
			l.leave(start)
			return
		}
		end := w.chunkEnd(l, start, false)
		failures := w.plain(l, start, end)
		w.finish(l, start, end, failures)
		start = end
		if w.Blocks && holdsBack(failures) {
			l.leave(start)
			return
		}
	}
}

// plain calls the handlers without transactions for events of a lease, and returns
// the failures and the parts that other nodes have to do.
func (w *groupWorker) plain(l *lease, start, end int) []pg.Failure {
	var failures []pg.Failure
	events := l.Events[start:end]
	if w.router.table.batches {
		failures = w.plainBatches(l, start, end)
	}
	for i := range events {
		e, r := &events[i], l.routes[start+i]
		for _, h := range r.plain {
			if h.Each == nil {
				continue
			}
			if err := w.call(l.Context(), h, nil, events[i:i+1]); err != nil {
				failures = append(failures, w.judge(l, e, h.Name, err))
			}
		}
		failures = append(failures, w.unhandled(e, r)...)
	}
	return failures
}

// judge turns the error of a handler into a failure of its event. If the context has
// ended, the handler is not to blame: the event is given back without a failure.
func (w *groupWorker) judge(l *lease, e *pg.Event, subscription string, err error) pg.Failure {
	if l.Context().Err() != nil {
		return released(e.ID, subscription)
	}
	return failure(e.ID, subscription, err)
}

// failure turns an error into an argument of posthorn.settle.
func failure(event int64, subscription string, err error) pg.Failure {
	f := pg.Failure{Event: event, Subscription: subscription, Error: worker.Clip(err.Error()), Reason: reasonFailed}
	if _, ok := errors.AsType[*worker.PermanentError](err); ok {
		f.Permanent = true
	} else if retry, ok := errors.AsType[*worker.RetryError](err); ok {
		f.RetryIn = &retry.After
	} else if back, ok := errors.AsType[*worker.ReleaseError](err); ok {
		f.Released, f.RetryIn = true, &back.After
	}
	if panicked, ok := errors.AsType[*worker.PanicError](err); ok {
		f.Stack = worker.Clip(string(panicked.Stack))
	}
	return f
}

// The reasons of dead letters.
const (
	reasonFailed    = "Handler error"
	reasonNoHandler = "No handler for event %s"
)

// report logs a failure of an event, with its outcome: it is a dead letter, or has a
// time of its next attempt. Neither is known of a failure that could not be settled.
func (g *group) report(l *lease, f *pg.Failure, fate *pg.Fate) {
	i := slices.IndexFunc(l.Events, func(e pg.Event) bool { return e.ID == f.Event })
	if f.Released || i < 0 {
		return
	}
	e := &l.Events[i]
	attributes := []any{"handler", f.Subscription, "event", e.ID, "type", e.Type, "attempt", e.Delivery, "error", cmp.Or(f.Error, f.Reason)}
	if f.Stack != "" {
		attributes = append(attributes, "stack", f.Stack)
	}
	switch {
	case fate.Dead:
		g.failing.Report(true, "an event failed for good and is a dead letter now", attributes...)
	case fate.DueAt != nil:
		g.failing.Report(false, "a handler failed; its event is tried again", append(attributes, "next_attempt", *fate.DueAt)...)
	default:
		g.failing.Report(false, "a handler failed", attributes...)
	}
}

// reportUnsettled logs the failures of a lease that ends without them: its events come again.
func (g *group) reportUnsettled(l *lease) {
	for _, f := range l.unsettled().failures {
		g.report(l, &f, &pg.Fate{})
	}
}

// finish marks events as done, with their failures. Failures are settled soon, together
// with others of the lease, before the lease ends.
func (g *group) finish(l *lease, start, end int, failures []pg.Failure) {
	l.mu.Lock()
	for i := start; i < end; i++ {
		l.done[i] = true
	}
	first := len(l.failures) == 0 && len(failures) > 0
	l.failures = append(l.failures, failures...)
	l.mu.Unlock()
	l.Step()
	if first {
		g.heartbeat.Hasten(l, failureWait)
	}
}

// failureWait is how long a failure waits to be settled together with others.
const failureWait = 50 * time.Millisecond

// extend extends a lease. If some of its events are done or have failed, it settles
// them, which extends the lease too: so a crash repeats little, and retries are not
// late.
func (g *group) extend(ctx context.Context, l *lease) (time.Duration, error) {
	s := l.unsettled()
	if s.head == l.head && len(s.failures) == 0 {
		_, err := pg.Extend(ctx, g.Pool, l.Lease, g.LeaseFor)
		return g.LeaseFor, err
	}
	e := pg.Ending{Lease: l.Lease, Part: true, UpTo: s.upTo, LeaseFor: g.LeaseFor, Failures: s.failures}
	err := g.settle(ctx, l, l.Events[l.head:s.head], e, g.end)
	if pg.IsCommitted(err) {
		l.settled(s)
	}
	return g.LeaseFor / 2, err
}

// Finish settles a lease. It retries while this process may still have the lease.
func (g *group) Finish(work context.Context, l *lease) {
	defer g.heartbeat.Remove(l)
	ctx, cancel := worker.Outlast(work, g.LeaseFor)
	defer cancel()
	err := g.settling.Do(ctx, func(ctx context.Context) error {
		return l.Settle(func() (bool, error) {
			e := pg.Ending{Lease: l.Lease, Failures: l.unsettled().failures}
			return true, g.settle(ctx, l, l.Events[l.head:], e, g.end)
		})
	})
	switch {
	case l.Lost():
		g.Lost(l)
	case err != nil && pg.IsFinal(err): // the settlement is refused for good
		g.Log.Error("cannot settle", "lease", l.ID, "error", err)
		g.reportUnsettled(l)
	}
}

// Lost reports a lease that another worker has taken over.
func (g *group) Lost(l *lease) {
	g.heartbeat.Remove(l)
	g.Observe.LeaseLost()
	g.Log.Warn("lease lost: others handle its events again", "lease", l.ID, "events", len(l.Events))
	g.reportUnsettled(l)
}

package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Hold is one active lease, lead or job of this process. Kinds of work embed it. Each
// statement about it runs in [Hold.Settle] or in a heartbeat, and those exclude each
// other: so a heartbeat never waits for a row that is being deleted, and never takes
// a finished lease for lost.
type Hold struct {
	ctx context.Context
	end context.CancelCauseFunc

	busy  sync.Mutex // held during a statement about it
	over  bool       // the hold is finished or lost
	doubt bool       // the result of a statement is unknown: the hold may be finished
	until time.Time  // no other process can take it before

	lapse  *time.Timer   // ends ctx before until; nil: ctx does not lapse
	margin time.Duration // between the end of ctx and until

	steps atomic.Int64 // of work, so far

	// Used by the heartbeat.
	due   time.Time
	seen  int64     // steps at the last look
	moved time.Time // when steps had last grown
	stuck bool      // steps do not grow, and that was reported
}

// Init starts a hold that lasts for leaseFor, counted from when it was asked for. Its
// context is derived from work.
func (h *Hold) Init(work context.Context, asked time.Time, leaseFor time.Duration) {
	h.ctx, h.end = context.WithCancelCause(work)
	h.until = asked.Add(leaseFor)
}

func (h *Hold) hold() *Hold { return h }

// ErrLapsed is the cause of the end of a context whose hold was not extended in time.
var ErrLapsed = errors.New("it could not be extended in time")

// safe is the usable part of a lease, where writes outside of the database must end
// before the lease does. The rest allows for clocks of different speed, and for a
// cancelled write that still arrives.
const safe = 0.8

// Lapse makes the context end, with [ErrLapsed], when most of the lease has passed
// without an extension. It is called after Init.
func (h *Hold) Lapse(leaseFor time.Duration) {
	h.margin = time.Duration((1 - safe) * float64(leaseFor))
	h.lapse = time.AfterFunc(time.Until(h.until)-h.margin, func() { h.end(ErrLapsed) })
}

// Lapsed reports whether it is too late to extend the hold. After a pause of the whole
// process that may be so before the context has ended.
func (h *Hold) Lapsed() bool {
	h.busy.Lock()
	defer h.busy.Unlock()
	return h.lapse != nil && time.Until(h.until) <= h.margin
}

// Context returns the context of the work. It ends with the cause [pg.ErrLeaseLost] when
// the hold is lost, and otherwise with the context given to Init.
func (h *Hold) Context() context.Context { return h.ctx }

// Step notes progress. A hold without progress for too long is not extended any more;
// that time does not begin before the first step.
func (h *Hold) Step() { h.steps.Add(1) }

// Lost reports whether another process has taken the hold over.
func (h *Hold) Lost() bool { return errors.Is(context.Cause(h.ctx), pg.ErrLeaseLost) }

// Over reports whether the hold is finished or lost.
func (h *Hold) Over() bool {
	h.busy.Lock()
	defer h.busy.Unlock()
	return h.over
}

// Settle runs a statement about the hold, while no heartbeat extends it. The function
// reports whether the statement ends the hold, also with a [pg.ErrUnconfirmed]; after that,
// and after [pg.ErrLeaseLost], there are no more heartbeats. See [Hold.Gone] for a
// statement that is repeated because its result is unknown.
func (h *Hold) Settle(settle func() (over bool, err error)) error {
	h.busy.Lock()
	defer h.busy.Unlock()
	if h.over {
		return context.Cause(h.ctx)
	}
	over, err := settle()
	switch {
	case pg.IsCommitted(err):
		h.doubt = false
		h.over = over
	case errors.Is(err, pg.ErrLeaseLost):
		h.Gone(err)
		return context.Cause(h.ctx)
	case !pg.IsFinal(err) && !pg.IsCollision(err):
		h.doubt = true
	}
	return err
}

// SettleAll is [Hold.Settle] for a statement about many holds; no other such
// statement is about one of them. The function reports which of them are over.
func SettleAll[T holder](things []T, settle func() (over func(thing T) bool, err error)) error {
	for _, thing := range things {
		thing.hold().busy.Lock()
		defer thing.hold().busy.Unlock()
	}
	over, err := settle()
	for _, thing := range things {
		h := thing.hold()
		h.over = h.over || pg.IsCommitted(err) && over(thing)
		h.doubt = h.doubt || err != nil && !pg.IsFinal(err) && !pg.IsCollision(err)
	}
	return err
}

// Unsettled calls a function with those holds that are not finished, and that no other
// statement is about.
func Unsettled[T holder](things []T, check func(free []T)) {
	var free []T
	for _, thing := range things {
		if h := thing.hold(); h.busy.TryLock() {
			defer h.busy.Unlock()
			if !h.over {
				free = append(free, thing)
			}
		}
	}
	if len(free) > 0 {
		check(free)
	}
}

// Close ends the hold: there are no more heartbeats, and its context ends.
func (h *Hold) Close() {
	h.busy.Lock()
	defer h.busy.Unlock()
	h.over = true
	if h.lapse != nil {
		h.lapse.Stop()
	}
	h.end(nil)
}

// Extended notes an extension: the hold lasts for leaseFor, counted from a time. It is
// called in Settle or in a heartbeat.
func (h *Hold) Extended(from time.Time, leaseFor time.Duration) {
	if until := from.Add(leaseFor); until.After(h.until) {
		h.until = until
		if h.lapse != nil && h.lapse.Stop() { // else ctx has ended
			h.lapse.Reset(time.Until(until) - h.margin)
		}
	}
}

// Gone notes that the database refuses the hold to this process. The context ends with
// err, mostly [pg.ErrLeaseLost], unless an earlier statement with an unknown result may
// have finished the hold. It is called in Settle or in a heartbeat.
func (h *Hold) Gone(err error) {
	h.over = true
	if !h.doubt || time.Now().After(h.until) {
		h.end(err)
	}
}

// isStuck reports whether the work has made no step for longer than patience.
func (h *Hold) isStuck(now time.Time, patience time.Duration) bool {
	if n := h.steps.Load(); n != h.seen {
		h.seen, h.moved = n, now
	}
	return patience > 0 && h.seen > 0 && now.Sub(h.moved) > patience
}

type holder interface{ hold() *Hold }

// Heartbeat extends holds until they are closed.
type Heartbeat[T holder] struct {
	// Every is how long after one extension the next one is due: a part of the
	// lease. An extension may take as long.
	Every time.Duration
	// AtOnce is the largest number of holds in a call of ExtendAll.
	AtOnce int
	// Patience is how long work may go on without a step. After that the hold is left
	// to expire, so that other processes get the work. 0: without limit.
	Patience time.Duration
	// Stuck reports a hold that is left to expire.
	Stuck func(thing T)
	// Extend extends a hold, and returns its new length.
	Extend func(ctx context.Context, thing T) (leaseFor time.Duration, err error)
	// Trouble reports errors of Extend; may be nil.
	Trouble *Trouble
	// ExtendAll, if it is set, extends several holds in place of Extend. It calls
	// [Hold.Extended] and [Hold.Gone], and reports errors, by itself.
	ExtendAll func(ctx context.Context, things []T)

	mu     sync.Mutex
	things map[*Hold]T
	next   time.Time // of the next check
	wake   chan struct{}
	none   chan struct{} // closed when there are no holds; made by Drained
}

// Init prepares a heartbeat.
func (b *Heartbeat[T]) Init() {
	b.things = map[*Hold]T{}
	b.wake = make(chan struct{}, 1)
}

// Add starts the heartbeats of holds, where they have not started.
func (b *Heartbeat[T]) Add(things ...T) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, thing := range things {
		h := thing.hold()
		if _, exists := b.things[h]; !exists {
			h.moved, h.due = now, now.Add(b.Every)
			b.things[h] = thing
		}
	}
	b.checkAt(now.Add(b.Every))
}

// Remove ends the heartbeats of holds, and closes them.
func (b *Heartbeat[T]) Remove(things ...T) {
	b.Forget(things...)
	for _, thing := range things {
		thing.hold().Close()
	}
}

// Forget ends the heartbeats of holds.
func (b *Heartbeat[T]) Forget(things ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, thing := range things {
		delete(b.things, thing.hold())
	}
	if len(b.things) == 0 && b.none != nil {
		close(b.none)
		b.none = nil
	}
}

// Drained returns when there are no holds, or ctx ends.
func (b *Heartbeat[T]) Drained(ctx context.Context) {
	b.mu.Lock()
	if len(b.things) == 0 {
		b.mu.Unlock()
		return
	}
	if b.none == nil {
		b.none = make(chan struct{})
	}
	none := b.none
	b.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// Hasten makes the next heartbeat of a hold due within a time.
func (b *Heartbeat[T]) Hasten(thing T, in time.Duration) {
	h := thing.hold()
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := time.Now().Add(in); at.Before(h.due) {
		h.due = at
		b.checkAt(at)
	}
}

// checkAt makes the heartbeat check its holds at a time at the latest. The caller holds
// the lock.
func (b *Heartbeat[T]) checkAt(at time.Time) {
	if at.Before(b.next) {
		b.next = at
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// While extends holds while a function runs, also after ctx has ended.
func (b *Heartbeat[T]) While(ctx context.Context, run func()) {
	ctx, enough := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer enough()
	run()
}

// All returns the holds.
func (b *Heartbeat[T]) All() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]T, 0, len(b.things))
	for _, thing := range b.things {
		all = append(all, thing)
	}
	return all
}

// Run extends until ctx ends.
func (b *Heartbeat[T]) Run(ctx context.Context) {
	for {
		due, wait := b.due()
		for len(due) > 0 && ctx.Err() == nil {
			n := min(len(due), max(b.AtOnce, 1))
			b.extendFree(ctx, due[:n])
			due = due[n:]
		}
		if !Rest(ctx, wait, b.wake) {
			return
		}
	}
}

// due returns the holds whose heartbeat is due and, if there is one, those that will be
// due soon. Otherwise it returns the time until the next one is due.
func (b *Heartbeat[T]) due() (due []T, wait time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = now.Add(b.Every)
	for h := range b.things {
		if h.due.Before(b.next) {
			b.next = h.due
		}
	}
	if wait = b.next.Sub(now); wait > 0 {
		return nil, wait
	}
	b.next = now.Add(b.Every)
	for h, thing := range b.things {
		if h.due.Sub(now) < b.Every/4 {
			due = append(due, thing)
			h.due = now.Add(b.Every)
		} else if h.due.Before(b.next) {
			b.next = h.due
		}
	}
	return due, 0
}

// soon is the delay of a heartbeat while another statement about the hold runs.
const soon = 20 * time.Millisecond

// extendFree extends the holds that no other statement is using.
func (b *Heartbeat[T]) extendFree(ctx context.Context, things []T) {
	now := time.Now()
	var free []T
	for _, thing := range things {
		h := thing.hold()
		if !h.busy.TryLock() {
			b.Hasten(thing, soon)
			continue
		}
		defer h.busy.Unlock()
		switch {
		case h.over:
		case !h.isStuck(now, b.Patience):
			free = append(free, thing)
		case !h.stuck:
			h.stuck = true
			b.Stuck(thing)
		}
	}
	if len(free) == 0 {
		return
	}
	// Not interrupted: its result would be in doubt.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(b.Every, time.Second))
	defer cancel()
	if b.ExtendAll != nil {
		b.ExtendAll(ctx, free)
		return
	}
	for _, thing := range free {
		b.extend(ctx, thing)
	}
}

// extend extends one hold. The caller keeps its lock.
func (b *Heartbeat[T]) extend(ctx context.Context, thing T) {
	asked := time.Now()
	leaseFor, err := b.Extend(ctx, thing)
	switch {
	case errors.Is(err, pg.ErrUnconfirmed):
		b.Trouble.Unconfirmed(err)
		thing.hold().Extended(asked, leaseFor)
	case err == nil:
		b.Trouble.Over()
		thing.hold().Extended(asked, leaseFor)
	case errors.Is(err, pg.ErrLeaseLost):
		thing.hold().Gone(err)
	default:
		b.Trouble.Report(err)
		b.Hasten(thing, b.Every/8)
	}
}

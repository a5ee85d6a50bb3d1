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
	over  bool       // it is finished or lost
	doubt bool       // an answer did not arrive: it may be finished
	until time.Time  // no other process has it before

	lapse  *time.Timer   // ends ctx before until; nil: nothing does
	margin time.Duration // how long before

	steps atomic.Int64 // of work, so far

	// Used by the heartbeat.
	due   time.Time
	seen  int64     // steps at the last look
	moved time.Time // when steps had last grown
	stuck bool      // steps do not grow, and that was reported
}

// Init begins a hold that was asked for at a time, and lasts for leaseFor from then
// on. Its context comes from work.
func (h *Hold) Init(work context.Context, asked time.Time, leaseFor time.Duration) {
	h.ctx, h.end = context.WithCancelCause(work)
	h.until = asked.Add(leaseFor)
}

func (h *Hold) hold() *Hold { return h }

// ErrLapsed is the cause of the end of a hold that was not extended in time.
var ErrLapsed = errors.New("it could not be extended in time")

// safe is the part of a lease that is used where effects outside of the database
// must end with it. The rest is for clocks that differ in speed, and for a write
// that was called off and is still under way.
const safe = 0.8

// Lapse has the context end, with [ErrLapsed], when most of the lease has passed
// and it was not extended. It is called after Init.
func (h *Hold) Lapse(leaseFor time.Duration) {
	h.margin = time.Duration((1 - safe) * float64(leaseFor))
	h.lapse = time.AfterFunc(time.Until(h.until)-h.margin, func() { h.end(ErrLapsed) })
}

// Lapsed reports whether it is too late to extend the hold. A process that stood
// still may find that out before the context ends.
func (h *Hold) Lapsed() bool {
	h.busy.Lock()
	defer h.busy.Unlock()
	return h.lapse != nil && time.Until(h.until) <= h.margin
}

// Context ends when the hold is lost, with the cause [pg.ErrLeaseLost], or when
// there is no more time for work.
func (h *Hold) Context() context.Context { return h.ctx }

// Step notes that the work goes on. A hold without steps for too long is not
// extended any more; one that has had none yet waits for its turn.
func (h *Hold) Step() { h.steps.Add(1) }

// Lost reports whether the database says that this process does not hold it.
func (h *Hold) Lost() bool { return errors.Is(context.Cause(h.ctx), pg.ErrLeaseLost) }

// Over reports whether it is finished or lost.
func (h *Hold) Over() bool {
	h.busy.Lock()
	defer h.busy.Unlock()
	return h.over
}

// Settle runs a statement about the hold, while no heartbeat extends it. The function
// reports whether the statement ends the hold; after that, and after
// [pg.ErrLeaseLost], there are no more heartbeats. See [Hold.Gone] for a statement
// that is repeated because its answer did not arrive.
func (h *Hold) Settle(settle func() (over bool, err error)) error {
	h.busy.Lock()
	defer h.busy.Unlock()
	if h.over {
		return context.Cause(h.ctx)
	}
	over, err := settle()
	switch {
	case err == nil:
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
		h.over = h.over || err == nil && over(thing)
		h.doubt = h.doubt || err != nil && !pg.IsFinal(err) && !pg.IsCollision(err)
	}
	return err
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

// Extended notes that the hold lasts for leaseFor from a time on. The caller runs in
// Settle or in a heartbeat.
func (h *Hold) Extended(from time.Time, leaseFor time.Duration) {
	if until := from.Add(leaseFor); until.After(h.until) {
		h.until = until
		if h.lapse != nil && h.lapse.Stop() { // else ctx has ended
			h.lapse.Reset(time.Until(until) - h.margin)
		}
	}
}

// Gone notes that the database says that this process does not hold it. That ends
// the work, unless the hold was finished before by a statement whose answer did not
// arrive. The error becomes the cause of the end of its
// context; mostly it is [pg.ErrLeaseLost]. The caller runs in Settle or in a
// heartbeat.
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
	// AtOnce is how many holds ExtendAll gets at most.
	AtOnce int
	// Patience is how long work may go on without a step. Then the hold is left to
	// expire, since it keeps the work from other processes. 0: for ever.
	Patience time.Duration
	// Stuck reports a hold that is left to expire.
	Stuck func(thing T)
	// Extend extends a hold, and returns for how long. A hold that is lost is not
	// extended again.
	Extend func(ctx context.Context, thing T) (leaseFor time.Duration, err error)
	// Trouble reports errors of Extend; may be nil.
	Trouble *Trouble
	// ExtendAll, if it is set, extends several holds in place of Extend. It calls
	// [Hold.Extended] and [Hold.Gone], and reports errors, by itself.
	ExtendAll func(ctx context.Context, things []T)

	mu     sync.Mutex
	things map[*Hold]T
	next   time.Time // when it looks again
	wake   chan struct{}
	none   chan struct{} // closed when there are no holds; made by Drained
}

// Init prepares a heartbeat.
func (b *Heartbeat[T]) Init() {
	b.things = map[*Hold]T{}
	b.wake = make(chan struct{}, 1)
}

// Add begins to extend a hold, unless that has begun.
func (b *Heartbeat[T]) Add(thing T) {
	h := thing.hold()
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.things[h]; there {
		return
	}
	h.moved, h.due = now, now.Add(b.Every)
	b.things[h] = thing
	b.lookAt(h.due)
}

// Remove ends the heartbeats of a hold, and closes it.
func (b *Heartbeat[T]) Remove(thing T) {
	b.Forget(thing)
	thing.hold().Close()
}

// Forget ends the heartbeats of a hold.
func (b *Heartbeat[T]) Forget(thing T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.things, thing.hold())
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

// Hasten makes a heartbeat due in that time at the latest.
func (b *Heartbeat[T]) Hasten(thing T, in time.Duration) {
	h := thing.hold()
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := time.Now().Add(in); at.Before(h.due) {
		h.due = at
		b.lookAt(at)
	}
}

// lookAt wakes the heartbeat if it would look later. The caller holds the lock.
func (b *Heartbeat[T]) lookAt(at time.Time) {
	if at.Before(b.next) {
		b.next = at
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// While extends for as long as a function runs. It outlives ctx, whose values it has.
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

// due returns the holds whose heartbeat is due. When one is, those follow that will
// be due soon.
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

// soon is when to look again at a hold that a statement was just about.
const soon = 20 * time.Millisecond

// extendFree extends holds that no statement is about now.
func (b *Heartbeat[T]) extendFree(ctx context.Context, things []T) {
	now := time.Now()
	var held []T
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
			held = append(held, thing)
		case !h.stuck:
			h.stuck = true
			b.Stuck(thing)
		}
	}
	if len(held) == 0 {
		return
	}
	// Not interrupted: its result would be in doubt.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(b.Every, time.Second))
	defer cancel()
	if b.ExtendAll != nil {
		b.ExtendAll(ctx, held)
		return
	}
	for _, thing := range held {
		b.extend(ctx, thing)
	}
}

// extend extends one hold. The caller keeps its lock.
func (b *Heartbeat[T]) extend(ctx context.Context, thing T) {
	asked := time.Now()
	leaseFor, err := b.Extend(ctx, thing)
	switch {
	case err == nil:
		b.Trouble.Over()
		thing.hold().Extended(asked, leaseFor)
	case errors.Is(err, pg.ErrLeaseLost), errors.Is(err, pg.ErrNotFound):
		thing.hold().Gone(err)
	default:
		b.Trouble.Report(err)
		b.Hasten(thing, b.Every/8)
	}
}

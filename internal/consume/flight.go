package consume

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// flight is a lease that is being worked on.
type flight struct {
	lease  pg.Lease
	routes []*route
	// ctx ends when the lease is lost, or the consumer has no more time.
	ctx context.Context
	end context.CancelCauseFunc

	// settling is held while the lease is settled or extended.
	settling sync.Mutex
	ended    bool

	mu       sync.Mutex
	done     []bool       // by event; nil where the lane settles the head itself
	head     int          // events at the head that are settled
	failures []pg.Failure // of events past the head
	finished int          // events so far
	seen     int          // what finished was when keep last looked
	progress time.Time    // when it had last grown
}

func (c *Consumer) begin(work context.Context, lease pg.Lease) *flight {
	f := &flight{lease: lease, progress: time.Now()}
	f.ctx, f.end = context.WithCancelCause(work)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights[f] = struct{}{}
	return f
}

// land ends the flight: from here on the lease is not extended.
func (c *Consumer) land(f *flight) {
	c.mu.Lock()
	delete(c.flights, f)
	c.mu.Unlock()
	f.settling.Lock()
	f.ended = true
	f.settling.Unlock()
	f.end(nil)
}

// lost reports whether somebody else has the lease.
func (f *flight) lost() bool { return errors.Is(context.Cause(f.ctx), pg.ErrLeaseLost) }

// track lets finish remember what is done, so that its head can be settled while
// the rest is worked on.
func (f *flight) track() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = make([]bool, len(f.lease.Events))
}

// finish notes that an event is done, but for what failed.
func (f *flight) finish(i int, failures []pg.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done != nil {
		f.done[i] = true
	}
	f.failures = append(f.failures, failures...)
	f.finished++
}

// beat keeps leases alive while they are worked on.
func (c *Consumer) beat(ctx context.Context) {
	ticker := time.NewTicker(c.LeaseFor / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, f := range c.aloft() {
			c.keep(ctx, f)
		}
	}
}

func (c *Consumer) aloft() []*flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*flight
	for f := range c.flights {
		all = append(all, f)
	}
	return all
}

// keep extends a lease, or settles what is done at its head, which extends it
// too: so a crash repeats little. A handler that does not return although its
// time is over loses its lease, since it would keep the events from everyone.
func (c *Consumer) keep(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, c.LeaseFor/3)
	defer cancel()
	f.settling.Lock()
	defer f.settling.Unlock()
	if f.ended || f.lost() {
		return
	}
	head, upTo, failures, idle := f.unsettled()
	if c.Timeout > 0 && idle > c.Timeout+c.LeaseFor {
		c.Log.Error("a handler does not return although its time is over: its lease is left to expire",
			"group", c.Group.Name, "lease", f.lease.ID)
		if f.lease.Source != nil { // which no deadline of its own ends
			_ = f.lease.Source.GiveUp(ctx, c.Pool) // or the next time
		}
		return
	}
	var err error
	if head > 0 {
		err = c.observeSettle(ctx, f.lease.Events[f.head:head], failures, func(ctx context.Context) error {
			return pg.SettleUntil(ctx, c.Pool, f.lease, upTo, c.LeaseFor, failures...)
		})
		if err == nil {
			f.settled(head)
		}
	} else {
		_, err = pg.Extend(ctx, c.Pool, f.lease, c.LeaseFor)
	}
	switch {
	case errors.Is(err, pg.ErrLeaseLost):
		f.end(pg.ErrLeaseLost)
	case err != nil && ctx.Err() == nil:
		c.trouble("cannot extend a lease yet", err)
	}
}

// unsettled finds the head of the lease that is done: where it ends, if it has
// grown, the id of its last event and what failed in it.
func (f *flight) unsettled() (head int, upTo int64, failures []pg.Failure, idle time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished > f.seen {
		f.seen, f.progress = f.finished, time.Now()
	}
	idle = time.Since(f.progress)
	end := f.head
	for end < len(f.done) && f.done[end] {
		end++
	}
	if end == f.head {
		return 0, 0, nil, idle
	}
	upTo = f.lease.Events[end-1].ID
	failures, _ = f.split(end)
	return end, upTo, failures, idle
}

// split tells failures of events before an index from the others. Events from
// elsewhere need not be in the order of their ids.
func (f *flight) split(end int) (before, after []pg.Failure) {
	head := make(map[int64]struct{}, end-f.head)
	for i := f.head; i < end; i++ {
		head[f.lease.Events[i].ID] = struct{}{}
	}
	for _, failure := range f.failures {
		if _, ok := head[failure.Event]; ok {
			before = append(before, failure)
		} else {
			after = append(after, failure)
		}
	}
	return before, after
}

// settled forgets what has been said.
func (f *flight) settled(head int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, f.failures = f.split(head)
	f.head = head
}

// asAtOrigin are events as handlers know them: by the ids they have in the log
// they are from.
func (f *flight) asAtOrigin(events []pg.Event) []pg.Event {
	if len(f.lease.Origins) == 0 {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].ID = f.origin(events[i].ID)
	}
	return events
}

// origin is the id that an event has in the log it is from.
func (f *flight) origin(event int64) int64 {
	if id, ok := f.lease.Origins[event]; ok {
		return id
	}
	return event
}

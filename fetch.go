package posthorn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Fetch takes up to n events of the group, for a program that asks for work
// rather than being called. It waits until there are any, or until ctx ends,
// whose error it then returns. It works with and without [Client.Run]; without,
// the upkeep of the log is left to other processes.
//
// Each event must be answered within [GroupConfig].LeaseFor, see [Delivery]:
// nothing extends that time but [Delivery.Extend]. What is not answered in time
// goes to others, and that counts as an attempt. Closing the client gives back
// what is not answered; Run, when told to stop, waits for it as for handlers.
//
// In an ordered group the events of one call are to be worked on in their order.
//
// An event of a confidential stream that does not open is not among them: it goes
// back for a while, or becomes a dead letter if it never will.
//
// In a group with subscriptions ([Group.Subscribe]) an event comes with the names
// of those that want it, and what failed comes again for them alone.
//
// A group may have handlers too. Then each event goes to one side or the other,
// whoever is first.
func (g *Group) Fetch(ctx context.Context, n int) ([]*Delivery, error) {
	if n < 1 || n > 10_000 {
		return nil, fmt.Errorf("fetch: %w", invalid("n must be from 1 to 10000", "Fetch as many as you can answer within LeaseFor."))
	}
	for {
		lease, err := g.fetch(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("fetch from %s: %w", g.name, err)
		}
		deliveries, err := g.deliveries(ctx, lease)
		if err != nil {
			return nil, fmt.Errorf("fetch from %s: %w", g.name, err)
		}
		if len(deliveries) > 0 {
			return deliveries, nil
		}
	}
}

// deliveries opens the events of a lease. Those that do not open are answered
// here: nobody is to take what is sealed for a payload.
func (g *Group) deliveries(ctx context.Context, lease *fetchedLease) ([]*Delivery, error) {
	deliveries := make([]*Delivery, 0, len(lease.Events))
	o := opening{group: g}
	for i := range lease.Events {
		if lease.isAnswered(i) { // given back, since one before it comes again
			continue
		}
		opened, err := o.open(ctx, lease.Events[i])
		if err != nil {
			if err := lease.answer(ctx, i, consume.Failures(&lease.Events[i], err)); err != nil {
				lease.giveBack(ctx, 0)
				return nil, err
			}
			continue
		}
		deliveries = append(deliveries, &Delivery{Event: opened, lease: lease, index: i})
	}
	return deliveries, nil
}

func (g *Group) fetch(ctx context.Context, n int) (*fetchedLease, error) {
	leave, err := g.client.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// One at a time takes: the database lets in one anyhow, and so an idle group
	// is looked at by one.
	select {
	case g.pull.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.client.closing:
		return nil, ErrClosed
	}
	defer func() { <-g.pull.turn }()
	if g.pull.group.ID == 0 {
		if g.pull.group, err = g.define(ctx); err != nil {
			return nil, err
		}
	}
	if err := g.subscribe(ctx, false, always); err != nil {
		return nil, err
	}
	lease, err := g.awaitLease(ctx, n)
	if err != nil {
		return nil, err
	}
	return g.hold(lease), nil
}

// pull is what a group needs for those who fetch from it.
type pull struct {
	turn    chan struct{} // who holds it may take
	group   pg.Group      // once it is defined; for who has the turn
	settled chan struct{} // receives when something of an ordered group was settled here

	kept  time.Time // when subscriptions were last kept from expiring; for who has the turn
	every time.Duration
}

func newPull() pull {
	return pull{turn: make(chan struct{}, 1), settled: make(chan struct{}, 1)}
}

// awaitLease takes as soon as there is something.
func (g *Group) awaitLease(ctx context.Context, n int) (pg.Lease, error) {
	ctx = g.within(ctx)
	c := g.client
	news, end := c.watch.Subscribe()
	defer end()
	// Whose answer does not arrive is a lease that nobody works on.
	asking, cancel := outlast(ctx)
	defer cancel()
	var empty pg.Lease // the group wants few events, and there were none
	defer func() {
		if empty.Held() {
			_ = pg.Settle(asking, c.control, empty) // or it expires
		}
	}()
	for waiting := false; ; {
		if err := g.keepPulled(ctx); err != nil {
			return pg.Lease{}, err
		}
		began := time.Now()
		lease, err := c.control.Take(asking, pg.Take{
			Group: g.pull.group, Node: c.NodeID(), MaxEvents: n, LeaseFor: g.config.LeaseFor, Settle: empty,
		})
		if err != nil {
			return pg.Lease{}, err
		}
		empty = pg.Lease{}
		if len(lease.Events) > 0 {
			g.watch.Fetched(ctx, lease.Events, began)
			return lease, nil
		}
		pause := g.config.IdlePoll
		if lease.Held() {
			empty, pause = lease, 0
		}
		if !waiting {
			waiting = true
			defer c.watch.KeepRunning()()
		}
		timer := time.NewTimer(pause)
		select {
		case <-news:
		case <-g.pull.settled:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return pg.Lease{}, ctx.Err()
		case <-c.closing:
			timer.Stop()
			return pg.Lease{}, ErrClosed
		}
		timer.Stop()
	}
}

// keepPulled keeps the group's subscriptions from expiring while somebody fetches.
func (g *Group) keepPulled(ctx context.Context) error {
	if time.Since(g.pull.kept) < g.pull.every {
		return nil
	}
	filtered, err := pg.KeepSubscriptions(ctx, g.client.control, g.pull.group)
	if err != nil {
		return err
	}
	g.pull.kept, g.pull.every = time.Now(), heartbeat
	if filtered {
		g.pull.every = askOthers
	}
	return nil
}

// grace is what a statement gets beyond the end of its context, when the end
// would leave open whether it took effect.
const grace = 2 * time.Second

// outlast returns a context that ends a while after ctx has.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { forget(); cancel() }
}

// Deliveries yields the events of the group one by one, as [Group.Fetch] would,
// until ctx ends. It takes more while the loop is busy: little at first, and up
// to [GroupConfig].BatchSize while the loop is quick. Asking for the next event
// keeps those alive that were taken together with it, so only a loop body that
// takes longer than LeaseFor needs [Delivery.Extend].
//
// Leaving the loop gives back at once whatever has not been answered, also what
// the loop was given. When ctx ends, what it was given may still be answered.
//
// After an error the loop may go on; the next attempt is made two seconds later.
// It ends by itself after one that time will not mend.
func (g *Group) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		a := &ahead{group: g, size: worker.NewSizer(g.config.BatchSize), batches: make(chan batch)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.run(ctx)
		}()
		left := true // also by a panic
		defer func() {
			cancel()
			<-ended
			if left {
				a.giveBack(ctx)
			}
		}()
		for b := range a.batches {
			if !a.deliver(ctx, b, yield) {
				return
			}
		}
		left = false
	}
}

// ahead fetches while a loop is busy with what was fetched before.
type ahead struct {
	group   *Group
	size    *worker.Sizer
	batches chan batch
	given   []*fetchedLease // what the loop was given, as far as it is not answered
}

// batch is what one Fetch yields.
type batch struct {
	deliveries []*Delivery
	err        error
}

// run holds one batch at most beyond the one that the loop has.
func (a *ahead) run(ctx context.Context) {
	defer close(a.batches)
	for ctx.Err() == nil {
		var b batch
		b.deliveries, b.err = a.group.Fetch(ctx, a.size.Next())
		if ctx.Err() != nil && b.err != nil {
			return
		}
		select {
		case a.batches <- b:
		case <-ctx.Done():
			if len(b.deliveries) > 0 {
				b.deliveries[0].lease.giveBack(ctx, 0)
			}
			return
		}
		if b.err != nil && (pg.IsFinal(b.err) || errors.Is(b.err, ErrClosed) || !worker.Pause(ctx, worker.TroubleWait)) {
			return
		}
	}
}

// deliver hands a batch to the loop. It reports whether the loop goes on.
func (a *ahead) deliver(ctx context.Context, b batch, yield func(*Delivery, error) bool) bool {
	if b.err != nil {
		return yield(nil, b.err)
	}
	lease := b.deliveries[0].lease
	a.remember(lease)
	started := time.Now()
	for i, d := range b.deliveries {
		err := lease.keep(ctx)
		switch {
		case ctx.Err() != nil:
			lease.giveBack(ctx, i)
			return true
		case lease.isAnswered(i): // given back, since one before it has failed
			continue
		case errors.Is(err, ErrLeaseLost):
			a.group.client.log.Warn("lease lost: what was fetched ahead goes to others", "group", a.group.name)
			return true
		case err != nil:
			a.group.client.log.Warn("cannot extend a lease yet", "group", a.group.name, "error", err)
		}
		if !yield(d, nil) {
			return false
		}
	}
	a.size.Took(len(b.deliveries), time.Since(started))
	return true
}

// remember keeps what is to be given back when the loop is left.
func (a *ahead) remember(lease *fetchedLease) {
	kept := a.given[:0]
	for _, l := range a.given {
		if !l.isOver() {
			kept = append(kept, l)
		}
	}
	a.given = append(kept, lease)
}

func (a *ahead) giveBack(ctx context.Context) {
	for _, l := range a.given {
		l.giveBack(ctx, 0)
	}
}

package posthorn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Fetch takes up to n events of the group, for programs that poll. Fetch waits until
// there is an event; when ctx ends, it returns the error of ctx. The program may call
// Fetch without [Client.Run], if another process does the upkeep of the log.
//
// Answer each event within [GroupConfig].LeaseFor, see [Delivery]: only
// [Delivery.Extend] extends the lease. An event without an answer in time goes to
// another worker, and its attempt counts. Closing the client gives events without an
// answer back; when the context of Run ends, Run waits for answers as for handlers.
//
// In an ordered group, handle the events of one call in their order.
//
// An event whose payload does not open is not returned: it is retried later, or becomes
// a dead letter if its key is destroyed.
//
// In a group with subscriptions, [Event].Subscriptions names the subscriptions that
// match the event. A retry names only those that have failed.
//
// A group may have handlers too. Then each event goes either to a handler or to a Fetch.
func (g *Group) Fetch(ctx context.Context, n int) ([]*Delivery, error) {
	if n < 1 || n > 10_000 {
		return nil, fmt.Errorf("fetch: %w", invalid("n must be from 1 to 10000", "Fetch as many events as you can answer within LeaseFor."))
	}
	for {
		lease, err := g.fetchLease(ctx, n)
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

// deliveries opens the events of a lease. It answers events that do not open, so that no
// program takes a sealed payload for a plain one.
func (g *Group) deliveries(ctx context.Context, lease *fetchedLease) ([]*Delivery, error) {
	deliveries := make([]*Delivery, 0, len(lease.Events))
	opener := batchOpener{group: g}
	for i := range lease.Events {
		if lease.isAnswered(i) { // given back, since an event before it will be retried
			continue
		}
		opened, err := opener.open(ctx, lease.Events[i])
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

func (g *Group) fetchLease(ctx context.Context, n int) (*fetchedLease, error) {
	endCall, err := g.client.beginCall()
	if err != nil {
		return nil, err
	}
	defer endCall()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// One call at a time polls the database, which lets only one call take events anyway.
	select {
	case g.fetchState.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.client.closing:
		return nil, ErrClosed
	}
	defer func() { <-g.fetchState.turn }()
	if g.fetchState.group.ID == 0 {
		if g.fetchState.group, err = g.define(ctx); err != nil {
			return nil, err
		}
	}
	anyName := func(string) bool { return true } // also subscriptions without a handler
	if err := g.saveSubscriptions(ctx, false, anyName); err != nil {
		return nil, err
	}
	lease, err := g.awaitLease(ctx, n)
	if err != nil {
		return nil, err
	}
	return g.trackLease(lease), nil
}

// fetchState is the state of a group that its Fetch calls share.
type fetchState struct {
	turn    chan struct{} // holds a value while a call takes events; guards the fields below, except settled
	group   pg.Group      // zero until it is defined
	settled chan struct{} // receives when this process has settled fetched events

	keptAt    time.Time     // when the subscriptions were last kept from expiring
	keepEvery time.Duration // the interval until the next time
}

func newFetchState() fetchState {
	return fetchState{turn: make(chan struct{}, 1), settled: make(chan struct{}, 1)}
}

// awaitLease polls until it has taken events.
func (g *Group) awaitLease(ctx context.Context, n int) (pg.Lease, error) {
	ctx = g.withLeaseTime(ctx)
	c := g.client
	newEvents, unsubscribe := c.logWatch.Subscribe()
	defer unsubscribe()
	// If the result of a call is lost, its events wait until their lease expires.
	taking, cancel := withGrace(ctx)
	defer cancel()
	var empty pg.Lease // without events, since the group skips all events of its window
	defer func() {
		if empty.Held() {
			_ = pg.Settle(taking, c.control, empty) // otherwise it expires
		}
	}()
	for waiting := false; ; {
		if err := g.keepFetchSubscriptions(ctx); err != nil {
			return pg.Lease{}, err
		}
		began := time.Now()
		lease, err := c.control.Take(taking, pg.Take{
			Group: g.fetchState.group, Node: c.NodeID(), MaxEvents: n, LeaseFor: g.config.LeaseFor, Settle: empty,
		})
		if err != nil {
			return pg.Lease{}, err
		}
		empty = pg.Lease{}
		if len(lease.Events) > 0 {
			g.metrics.Fetched(ctx, lease.Events, began)
			return lease, nil
		}
		pause := g.config.IdlePoll
		if lease.Held() {
			empty, pause = lease, 0
		}
		if !waiting {
			waiting = true
			defer c.logWatch.KeepRunning()()
		}
		timer := time.NewTimer(pause)
		select {
		case <-newEvents:
		case <-g.fetchState.settled:
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

// keepFetchSubscriptions keeps the subscriptions of the group from expiring during Fetch.
func (g *Group) keepFetchSubscriptions(ctx context.Context) error {
	if time.Since(g.fetchState.keptAt) < g.fetchState.keepEvery {
		return nil
	}
	filtered, err := pg.KeepSubscriptions(ctx, g.client.control, g.fetchState.group)
	if err != nil {
		return err
	}
	g.fetchState.keptAt, g.fetchState.keepEvery = time.Now(), heartbeatInterval
	if filtered {
		g.fetchState.keepEvery = handlerInterval
	}
	return nil
}

// grace is how much longer than its caller's context a statement may run, if its
// cancellation would leave open whether it has taken effect.
const grace = 2 * time.Second

// withGrace returns a context that ends some time after ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}

// Deliveries yields the events of the group one by one until ctx ends. It calls
// [Group.Fetch] for further events while the loop is busy: for few events at first, and
// for up to [GroupConfig].BatchSize while the loop is quick. Each step of the loop
// extends the lease if necessary, so only a step that takes longer than LeaseFor needs
// [Delivery.Extend].
//
// Leaving the loop gives all events without an answer back at once, also those that the
// loop has seen. When ctx ends, those that the loop has seen may still be answered.
//
// After a temporary error the loop may continue: the next attempt follows after two
// seconds. After any other error the loop ends.
func (g *Group) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		p := &prefetcher{group: g, size: worker.NewSizer(g.config.BatchSize), batches: make(chan fetchedBatch)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.run(ctx)
		}()
		left := true // by the loop, which may also panic
		defer func() {
			cancel()
			<-ended
			if left {
				p.giveBack(ctx)
			}
		}()
		for b := range p.batches {
			if !p.deliver(ctx, b, yield) {
				return
			}
		}
		left = false
	}
}

// prefetcher fetches the next events while a loop handles the previous ones.
type prefetcher struct {
	group     *Group
	size      *worker.Sizer
	batches   chan fetchedBatch
	delivered []*fetchedLease // leases whose events the loop has seen, until they end
}

// fetchedBatch is the result of one Fetch.
type fetchedBatch struct {
	deliveries []*Delivery
	err        error
}

// run fetches at most one batch ahead.
func (p *prefetcher) run(ctx context.Context) {
	defer close(p.batches)
	for ctx.Err() == nil {
		var b fetchedBatch
		b.deliveries, b.err = p.group.Fetch(ctx, p.size.Next())
		if ctx.Err() != nil && b.err != nil {
			return
		}
		select {
		case p.batches <- b:
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

// deliver yields the events of a batch. It reports whether the loop continues.
func (p *prefetcher) deliver(ctx context.Context, b fetchedBatch, yield func(*Delivery, error) bool) bool {
	if b.err != nil {
		return yield(nil, b.err)
	}
	lease := b.deliveries[0].lease
	p.addDelivered(lease)
	started := time.Now()
	for i, d := range b.deliveries {
		err := lease.extendIfNeeded(ctx)
		switch {
		case ctx.Err() != nil:
			lease.giveBack(ctx, i)
			return true
		case lease.isAnswered(i): // given back, since an event before it has failed
			continue
		case errors.Is(err, ErrLeaseLost):
			p.group.client.log.Warn("lease lost, its events go to another worker", "group", p.group.name)
			return true
		case err != nil:
			p.group.client.log.Warn("cannot extend a lease yet", "group", p.group.name, "error", err)
		}
		if !yield(d, nil) {
			return false
		}
	}
	p.size.Took(len(b.deliveries), time.Since(started))
	return true
}

// addDelivered adds a lease to those that giveBack gives back, and removes ended ones.
func (p *prefetcher) addDelivered(lease *fetchedLease) {
	p.delivered = append(slices.DeleteFunc(p.delivered, (*fetchedLease).isEnded), lease)
}

func (p *prefetcher) giveBack(ctx context.Context) {
	for _, l := range p.delivered {
		l.giveBack(ctx, 0)
	}
}

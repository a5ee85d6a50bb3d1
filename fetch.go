package posthorn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/fetched"
	"github.com/posthorn/posthorn/internal/logwatch"
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
func (g *Group) deliveries(ctx context.Context, lease *fetched.Lease) ([]*Delivery, error) {
	deliveries := make([]*Delivery, 0, len(lease.Events))
	opener := batchOpener{group: g}
	for i := range lease.Events {
		if lease.IsAnswered(i) { // given back, since an event before it will be retried
			continue
		}
		opened, err := opener.open(ctx, lease.Events[i])
		if err != nil {
			if err := lease.Answer(ctx, i, consume.Failures(&lease.Events[i], err)); err != nil {
				lease.GiveBack(ctx, 0)
				return nil, err
			}
			continue
		}
		deliveries = append(deliveries, &Delivery{Event: opened, client: g.client, lease: lease, index: i})
	}
	return deliveries, nil
}

func (g *Group) fetchLease(ctx context.Context, n int) (*fetched.Lease, error) {
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
	if err := g.prepareFetch(ctx); err != nil {
		return nil, err
	}
	anyName := func(string) bool { return true } // also subscriptions without a handler
	if err := g.saveSubscriptions(ctx, false, anyName); err != nil {
		return nil, err
	}
	lease, err := g.awaitLease(ctx, n)
	if errors.Is(err, ErrNotFound) { // the group was deleted
		g.client.unregister(g)
	}
	if err != nil {
		return nil, err
	}
	return g.fetchState.leases.Track(lease), nil
}

// fetchState is the state of a group that its Fetch calls share.
type fetchState struct {
	turn    chan struct{}  // holds a value while a call takes events; guards the fields below
	leases  *fetched.Group // nil before the first call
	group   pg.Group
	settled chan struct{} // receives when this process has settled fetched events

	keptAt    time.Time     // when the subscriptions were last kept from expiring
	keepEvery time.Duration // the interval until the next time
}

// prepareFetch defines the group, in the first call of Fetch.
func (g *Group) prepareFetch(ctx context.Context) error {
	s := &g.fetchState
	if s.leases != nil {
		return nil
	}
	var err error
	if s.group, err = g.define(ctx); err != nil {
		return err
	}
	s.settled = make(chan struct{}, 1)
	s.leases = &fetched.Group{
		Leases: g.client.fetched, Pool: g.client.control, Name: g.name, LeaseFor: g.config.LeaseFor,
		// Until the group has our order, its present one may ask for blocking.
		Blocks:  g.blocks() || g.awaitedOrder() != nil && !g.config.SetAside,
		Metrics: g.metrics, Log: g.client.log,
		Ended: func() { // events that waited for the lease can be taken
			select {
			case s.settled <- struct{}{}:
			default:
			}
		},
	}
	return nil
}

// awaitLease polls until it has taken events.
func (g *Group) awaitLease(ctx context.Context, n int) (pg.Lease, error) {
	ctx = g.withLeaseTime(ctx)
	c := g.client
	newEvents, unsubscribe := c.logWatch.Subscribe(logwatch.Events)
	defer unsubscribe()
	// If the result of a call is lost, its events wait until their lease expires.
	taking, cancel := fetched.WithGrace(ctx)
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

// keepFetchSubscriptions keeps the subscriptions of the group from expiring during Fetch,
// and changes its order when that is possible.
func (g *Group) keepFetchSubscriptions(ctx context.Context) error {
	if time.Since(g.fetchState.keptAt) < g.fetchState.keepEvery {
		return nil
	}
	kept, err := g.keep(ctx, g.fetchState.group)
	if err != nil {
		return err
	}
	g.fetchState.keptAt, g.fetchState.keepEvery = time.Now(), heartbeatInterval
	if kept.Filtered || g.awaitedOrder() != nil {
		g.fetchState.keepEvery = handlerInterval
	}
	return nil
}

// Delivery is a fetched event. Answer it once, with Ack, Nack or Term. Its methods are
// safe for use by any number of goroutines.
//
// The events of one [Group.Fetch] are one lease, which is settled when all of them are
// answered. An earlier answer is kept in memory, and is saved after about a second if
// all events before it are answered too; so a crash repeats only little work. If Fetch
// takes one event at a time, each answer is saved at once.
//
// [ErrLeaseLost] means that the lease has expired, and that another worker has the
// events. The error is returned by the first answer after the loss is noticed; answers of
// the last second before it returned no error, but may be repeated too.
//
// When ctx ends, an answer gets two more seconds to be saved. After another error, such
// as a network error, answer again.
type Delivery struct {
	Event

	client *Client
	lease  *fetched.Lease
	index  int // in lease.Events
}

// Decode decodes the payload with [Config].Decode into the variable that into points to.
func (d *Delivery) Decode(into any) error { return d.client.Decode(d.Event, into) }

// Ack answers that the event is done.
func (d *Delivery) Ack(ctx context.Context) error {
	if err := d.lease.Answer(ctx, d.index, nil); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// Nack answers that the event has failed. The event is retried after the next delay of
// the group, or with [RetryAfter] after a given time. With [Permanent], or after the last
// attempt, it becomes a dead letter. In an ordered group without SetAside, the later
// events of the same Fetch are given back: do not work on them.
func (d *Delivery) Nack(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("failed, no cause given")
	}
	if err := d.lease.Answer(ctx, d.index, consume.Failures(&d.lease.Events[d.index], err)); err != nil {
		return fmt.Errorf("nack: %w", err)
	}
	return nil
}

// Term answers that the event has failed and that another attempt would not succeed. The
// event becomes a dead letter.
func (d *Delivery) Term(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("terminated, no cause given")
	}
	return d.Nack(ctx, Permanent(err))
}

// Extend sets the deadline of the event, and of all events of the same Fetch, to that
// time from now: from a millisecond to a day.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	if err := d.lease.Extend(ctx, d.index, by); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return nil
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
	delivered []*fetched.Lease // leases whose events the loop has seen, until they end
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
				b.deliveries[0].lease.GiveBack(ctx, 0)
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
		err := lease.ExtendIfNeeded(ctx)
		switch {
		case ctx.Err() != nil:
			lease.GiveBack(ctx, i)
			return true
		case lease.IsAnswered(i): // given back, since an event before it has failed
			continue
		case lease.IsEnded():
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
func (p *prefetcher) addDelivered(lease *fetched.Lease) {
	p.delivered = append(slices.DeleteFunc(p.delivered, (*fetched.Lease).IsEnded), lease)
}

func (p *prefetcher) giveBack(ctx context.Context) {
	for _, l := range p.delivered {
		l.GiveBack(ctx, 0)
	}
}

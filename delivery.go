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
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

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
func (p *prefetcher) addDelivered(lease *fetched.Lease) {
	p.delivered = append(slices.DeleteFunc(p.delivered, (*fetched.Lease).IsEnded), lease)
}

func (p *prefetcher) giveBack(ctx context.Context) {
	for _, l := range p.delivered {
		l.GiveBack(ctx, 0)
	}
}

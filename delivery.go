package posthorn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
)

// Delivery is an event that was fetched. It is answered once: with Ack, Nack or
// Term. Its methods are safe for use by any number of goroutines.
//
// What came with one [Group.Fetch] is one lease, and is settled when all of it
// has been answered. Until then an answer is kept here, and saved after about a
// second if everything before it is answered too; so after a crash few events
// come again that were done. With Fetch of one event each answer is saved at
// once.
//
// [ErrLeaseLost] means that the time was over and somebody else has the events,
// or will. Whoever answers next learns that when it is saved; what was answered
// within the last second, without an error, is then repeated too.
//
// A context that ends does not undo work that is done: an answer gets two seconds
// beyond it. After another error, such as one of the network, answer again.
type Delivery struct {
	Event

	lease *fetchedLease
	index int
}

// Decode reads the payload into a value, by [Config].Decode if that is set.
func (d *Delivery) Decode(into any) error { return d.lease.group.client.Decode(d.Event, into) }

// Ack says that the event is done.
func (d *Delivery) Ack(ctx context.Context) error {
	if err := d.lease.answer(ctx, d.index, nil); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// Nack says that the event has failed. It comes again after the group's next
// delay, or that of [RetryAfter], until its attempts run out; after [Permanent]
// it does not. In an ordered group whose failures hold back what follows, the
// later events of the same Fetch go back unanswered: do not work on them.
func (d *Delivery) Nack(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("not done, for no stated reason")
	}
	if err := d.lease.answer(ctx, d.index, consume.Failures(&d.lease.Events[d.index], err)); err != nil {
		return fmt.Errorf("nack: %w", err)
	}
	return nil
}

// Term says that no further attempt makes sense: the event becomes a dead letter.
func (d *Delivery) Term(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("given up, for no stated reason")
	}
	return d.Nack(ctx, Permanent(err))
}

// Extend gives the event, and all that came with the same Fetch, that much time
// from now on: from a millisecond to a day.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	if err := d.lease.extend(ctx, d.index, by); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return nil
}

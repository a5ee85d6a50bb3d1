package posthorn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
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

	lease *fetchedLease
	index int
}

// Decode decodes the payload with [Config].Decode into the variable that into points to.
func (d *Delivery) Decode(into any) error { return d.lease.group.client.Decode(d.Event, into) }

// Ack answers that the event is done.
func (d *Delivery) Ack(ctx context.Context) error {
	if err := d.lease.answer(ctx, d.index, nil); err != nil {
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
	if err := d.lease.answer(ctx, d.index, consume.Failures(&d.lease.Events[d.index], err)); err != nil {
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
	if err := d.lease.extend(ctx, d.index, by); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return nil
}

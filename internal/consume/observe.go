package consume

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Observer hears of what happens. Its methods are called from many goroutines,
// around every event: they must be quick and must not block.
type Observer interface {
	// Took: a lease was taken.
	Took(lease pg.Lease)
	// Handling: a handler is about to be called for events. It gets the context
	// that is returned.
	Handling(ctx context.Context, h *Handler, events []pg.Event) context.Context
	// Handled: it has returned. The context is what Handling returned.
	Handled(ctx context.Context, h *Handler, events []pg.Event, took time.Duration, err error)
	// Settling: events are about to be settled, in a call that gets the context
	// that is returned.
	Settling(ctx context.Context, events []pg.Event) context.Context
	// Settled: the call has returned. Without an error it holds that these events
	// are done, but for the failures. Those may be of earlier events of the lease.
	Settled(ctx context.Context, events []pg.Event, failures []pg.Failure, took time.Duration, err error)
	// LeaseLost: a lease was taken over by others while we worked on it.
	LeaseLost()
}

// Unobserved is an Observer to whom nothing matters.
type Unobserved struct{}

// Took does nothing.
func (Unobserved) Took(pg.Lease) {}

// Handling does nothing.
func (Unobserved) Handling(ctx context.Context, _ *Handler, _ []pg.Event) context.Context { return ctx }

// Handled does nothing.
func (Unobserved) Handled(context.Context, *Handler, []pg.Event, time.Duration, error) {}

// Settling does nothing.
func (Unobserved) Settling(ctx context.Context, _ []pg.Event) context.Context { return ctx }

// Settled does nothing.
func (Unobserved) Settled(context.Context, []pg.Event, []pg.Failure, time.Duration, error) {}

// LeaseLost does nothing.
func (Unobserved) LeaseLost() {}

// call runs a handler under the observer's eyes.
func (g *group) call(ctx context.Context, h *Handler, tx pgx.Tx, events []pg.Event) error {
	ctx = g.Observe.Handling(ctx, h, events)
	began := time.Now()
	err := worker.Call(ctx, began, g.Timeout, func(ctx context.Context) error { return h.call(ctx, tx, events) })
	g.Observe.Handled(ctx, h, events, time.Since(began), err)
	return err
}

// observeSettle runs what settles events under the observer's eyes.
func (g *group) observeSettle(ctx context.Context, events []pg.Event, failures []pg.Failure, settle func(ctx context.Context) error) error {
	ctx = g.Observe.Settling(ctx, events)
	began := time.Now()
	err := settle(ctx)
	g.Observe.Settled(ctx, events, failures, time.Since(began), err)
	return err
}

package consume

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Observer is notified of leases, handlers and settlements, for metrics and traces. Its
// methods are called from many goroutines, for every event: they must not block.
type Observer interface {
	// Took is called after a lease was taken.
	Took(lease pg.Lease)
	// Handling is called before a handler, which gets the returned context.
	Handling(ctx context.Context, h *Handler, events []pg.Event) context.Context
	// Handled is called after a handler, with the context that Handling returned.
	Handled(ctx context.Context, h *Handler, events []pg.Event, took time.Duration, err error)
	// Settling is called before events are settled, with the returned context.
	Settling(ctx context.Context, events []pg.Event) context.Context
	// Settled is called after that. If err is nil, the events are done except for those that
	// failed, which may be earlier events of the lease.
	Settled(ctx context.Context, failed []pg.Fate, took time.Duration, err error)
	// LeaseLost is called when another worker has taken a lease over.
	LeaseLost()
}

// Unobserved is an Observer that does nothing.
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
func (Unobserved) Settled(context.Context, []pg.Fate, time.Duration, error) {}

// LeaseLost does nothing.
func (Unobserved) LeaseLost() {}

// call runs a handler between Handling and Handled of the observer.
func (g *group) call(ctx context.Context, h *Handler, tx pgx.Tx, events []pg.Event) error {
	ctx = g.Observe.Handling(ctx, h, events)
	began := time.Now()
	err := worker.CallTx(ctx, began, g.Timeout, tx, func(ctx context.Context) error { return h.call(ctx, tx, events) })
	g.Observe.Handled(ctx, h, events, time.Since(began), err)
	return err
}

// observeSettle runs a settlement between Settling and Settled of the observer.
func (g *group) observeSettle(ctx context.Context, events []pg.Event, settle func(ctx context.Context) ([]pg.Fate, error)) ([]pg.Fate, error) {
	ctx = g.Observe.Settling(ctx, events)
	began := time.Now()
	fates, err := settle(ctx)
	g.Observe.Settled(ctx, fates, time.Since(began), err)
	return fates, err
}

// settle settles a lease or a part of it, and logs its failures.
func (g *group) settle(ctx context.Context, l *lease, events []pg.Event, ending pg.Ending, settle func(ctx context.Context, e pg.Ending) ([]pg.Fate, error)) error {
	fates, err := g.observeSettle(ctx, events, func(ctx context.Context) ([]pg.Fate, error) { return settle(ctx, ending) })
	if pg.IsCommitted(err) {
		for i := range fates {
			g.report(l, &ending.Failures[fates[i].Failure-1], &fates[i])
		}
	}
	return err
}

// end settles a lease or a part of it outside a transaction.
func (g *group) end(ctx context.Context, e pg.Ending) ([]pg.Fate, error) {
	return e.Settle(ctx, g.Pool)
}

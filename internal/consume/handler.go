package consume

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// Handler handles one subscription of a group, which has the same name. One of the
// four functions is set.
type Handler struct {
	Name     string
	Patterns []string // of types; none: the subscription of that name selects the events
	Formerly []string // names that it had before
	Notes    any      // for the observer

	Each    func(ctx context.Context, e pg.Event) error
	EachTx  func(ctx context.Context, tx pgx.Tx, e pg.Event) error
	Batch   func(ctx context.Context, events []pg.Event) error
	BatchTx func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
}

func (h *Handler) transactional() bool { return h.EachTx != nil || h.BatchTx != nil }

// call runs the handler on events; one that handles single events gets one.
func (h *Handler) call(ctx context.Context, tx pgx.Tx, events []pg.Event) error {
	switch {
	case h.Each != nil:
		return h.Each(ctx, events[0])
	case h.EachTx != nil:
		return h.EachTx(ctx, tx, events[0])
	case h.Batch != nil:
		return h.Batch(ctx, events)
	default:
		return h.BatchTx(ctx, tx, events)
	}
}

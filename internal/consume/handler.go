package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// Handler answers to one subscription of a group: its name. One of the four
// functions is set.
type Handler struct {
	Name     string
	Patterns []string // of types; without any, the database says what it is for
	Notes    any      // the observer's

	Each    func(ctx context.Context, e pg.Event) error
	EachTx  func(ctx context.Context, tx pgx.Tx, e pg.Event) error
	Batch   func(ctx context.Context, events []pg.Event) error
	BatchTx func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
}

func (h *Handler) transactional() bool { return h.EachTx != nil || h.BatchTx != nil }

// call runs the handler on events; one that handles single events gets one. A
// panic is an error, and so is a handler that comes too late: what it was too
// late for may belong to somebody else.
func (h *Handler) call(ctx context.Context, started time.Time, limit time.Duration, tx pgx.Tx, events []pg.Event) (err error) {
	if limit > 0 {
		t := &timeout{Context: ctx, deadline: started.Add(limit)}
		defer t.end()
		ctx = t
	}
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		if err != nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == errTimeout {
			err = fmt.Errorf("%w of %v: %w", errTimeout, limit, err)
		}
	}()
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

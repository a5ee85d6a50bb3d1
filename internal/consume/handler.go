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
	Patterns []string
	Notes    any // the observer's

	Each    func(ctx context.Context, e pg.Event) error
	EachTx  func(ctx context.Context, tx pgx.Tx, e pg.Event) error
	Batch   func(ctx context.Context, events []pg.Event) error
	BatchTx func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
}

func (h *Handler) transactional() bool { return h.EachTx != nil || h.BatchTx != nil }

func (h *Handler) matches(eventType string) bool {
	for _, pattern := range h.Patterns {
		if Matches(pattern, eventType) {
			return true
		}
	}
	return false
}

// call runs the handler on events; one that handles single events gets one. A
// panic is an error, and so is a handler that comes too late: what it was too
// late for may belong to somebody else.
func (h *Handler) call(ctx context.Context, timeout time.Duration, tx pgx.Tx, events []pg.Event) (err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		if err != nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == errTimeout {
			err = fmt.Errorf("%w of %v: %w", errTimeout, timeout, err)
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

var errTimeout = errors.New("the handler has used up its time")

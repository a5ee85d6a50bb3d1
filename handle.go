package posthorn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Handler does what an event is for. It returns nil when that is done, and an
// error when the event is to be tried again: any error for the group's next
// delay, [RetryAfter] for another, [Permanent] for never. A panic is an error.
//
// Delivery is at least once: a handler may see an event again that it has
// handled, when the process died before that was settled.
type Handler func(ctx context.Context, e Event) error

// Middleware wraps a handler, to do something around every event.
type Middleware func(Handler) Handler

// Handle registers a handler for the events whose type matches one of the
// patterns, separated by commas: order.placed, order.* for one part, order.> for
// all that follow, > for everything; or [Subscribed], for the events that the
// subscription of its name wants. The name is unique in the group and stays the
// same for good: what failed is owed to it.
//
// Handlers of one event run in the order in which they were registered, each by
// itself: only those that fail get the event again. Handlers may be added while
// the client runs.
func (g *Group) Handle(name, patterns string, handler Handler) {
	wrapped := g.wrap(handler)
	g.register(&consume.Handler{Name: name, Each: func(ctx context.Context, e pg.Event) error {
		opened, err := g.open(ctx, e)
		if err != nil {
			return err
		}
		return wrapped(ctx, opened)
	}}, patterns, handler == nil)
}

// HandleTx registers a handler that gets the transaction in which its event is
// acknowledged: what it writes there and the acknowledgement are one, so its
// effect happens exactly once. It must not end the transaction; returning an
// error rolls it back. Publishing there is part of it too.
func (g *Group) HandleTx(name, patterns string, handler func(ctx context.Context, tx pgx.Tx, e Event) error) {
	wrapped := g.wrap(func(ctx context.Context, e Event) error {
		return handler(ctx, ctx.Value(txKey{}).(pgx.Tx), e)
	})
	g.register(&consume.Handler{Name: name, EachTx: func(ctx context.Context, tx pgx.Tx, e pg.Event) error {
		opened, err := g.open(ctx, e)
		if err != nil {
			return err
		}
		return wrapped(context.WithValue(ctx, txKey{}, tx), opened)
	}}, patterns, handler == nil)
}

// txKey is under which middleware passes the transaction on without knowing.
type txKey struct{}

// HandleBatch registers a handler of many events at once, in order. An error
// fails all of them, unless it is [EventErrors]; when they come again, they come
// one by one. Middleware does not apply.
func (g *Group) HandleBatch(name, patterns string, handler func(ctx context.Context, events []Event) error) {
	g.register(&consume.Handler{Name: name, Batch: func(ctx context.Context, batch []pg.Event) error {
		opened, failed := g.openAll(ctx, batch)
		if len(opened) == 0 {
			return failed
		}
		return failed.and(opened, handler(ctx, opened))
	}}, patterns, handler == nil)
}

// HandleBatchTx registers a handler of many events at once, with the transaction
// in which they are acknowledged; see [Group.HandleTx] and [Group.HandleBatch].
// Whatever it returns but nil rolls back all of the batch.
func (g *Group) HandleBatchTx(name, patterns string, handler func(ctx context.Context, tx pgx.Tx, events []Event) error) {
	g.register(&consume.Handler{Name: name, BatchTx: func(ctx context.Context, tx pgx.Tx, batch []pg.Event) error {
		opened, failed := g.openAll(ctx, batch)
		if len(failed) > 0 {
			return failed // the others come again without them
		}
		return handler(ctx, tx, opened)
	}}, patterns, handler == nil)
}

// On registers a handler that gets the payload decoded. A payload that does not
// fit is a permanent failure.
func On[T any](g *Group, name, patterns string, handler func(ctx context.Context, e Event, payload T) error) {
	g.Handle(name, patterns, func(ctx context.Context, e Event) error {
		payload, err := decode[T](g, e)
		if err != nil {
			return err
		}
		return handler(ctx, e, payload)
	})
}

// OnTx is [On] with the transaction of [Group.HandleTx].
func OnTx[T any](g *Group, name, patterns string, handler func(ctx context.Context, tx pgx.Tx, e Event, payload T) error) {
	g.HandleTx(name, patterns, func(ctx context.Context, tx pgx.Tx, e Event) error {
		payload, err := decode[T](g, e)
		if err != nil {
			return err
		}
		return handler(ctx, tx, e, payload)
	})
}

func decode[T any](g *Group, e Event) (payload T, err error) {
	err = g.client.config.Decode(e.Payload, &payload)
	switch {
	case err == nil:
		return payload, nil
	case e.Confidential: // see Event.Decode
		err = errors.New("what is wrong is withheld, since the stream is confidential")
	}
	return payload, Permanent(fmt.Errorf("payload of %s does not fit into %T: %w", e.Type, payload, err))
}

// wrap puts the group's middleware around a handler.
func (g *Group) wrap(handler Handler) Handler {
	for _, middleware := range slices.Backward(g.config.Middleware) {
		handler = middleware(handler)
	}
	return handler
}

// register adds a handler. What is wrong with it Run tells: a handler that is
// left out silently would leave its events undone.
func (g *Group) register(h *consume.Handler, patterns string, isNil bool) {
	subscribed := patterns == Subscribed
	if !subscribed {
		h.Patterns = splitPatterns(patterns)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkHandler(h, subscribed, isNil); err != nil && g.err == nil {
		g.err = err
	} else if err == nil {
		g.watch.Watch(h)
		g.handlers = append(g.handlers, h)
		g.routes.SetHandlers(g.handlers)
	}
	g.wake()
}

// wake lets Run see that something was registered. The caller holds the lock.
func (g *Group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func splitPatterns(patterns string) []string {
	var split []string
	for pattern := range strings.SplitSeq(patterns, ",") {
		if pattern = strings.TrimSpace(pattern); pattern != "" {
			split = append(split, pattern)
		}
	}
	return split
}

func (g *Group) checkHandler(h *consume.Handler, subscribed, isNil bool) error {
	switch {
	case isNil:
		return invalid(fmt.Sprintf("handler %q is nil", h.Name), "Give it a function.")
	case h.Name == "" || len(h.Name) > 255:
		return invalid("a handler needs a name of up to 255 bytes", "Give it one that stays the same for good.")
	case len(h.Patterns) == 0 && !subscribed:
		return invalid(fmt.Sprintf("handler %q is for no type of event", h.Name), "Give it patterns, like order.placed or order.*.")
	case slices.ContainsFunc(g.handlers, func(other *consume.Handler) bool { return other.Name == h.Name }):
		return invalid(fmt.Sprintf("handler with id %q is already registered", h.Name), "Names are unique within a group.")
	}
	for _, pattern := range h.Patterns {
		if !consume.ValidPattern(pattern) {
			return invalid(fmt.Sprintf("handler %q: %q is not a pattern", h.Name, pattern),
				"Write it like order.placed, order.* or order.>.")
		}
	}
	return nil
}

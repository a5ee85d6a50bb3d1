package posthorn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Handler handles an event. It returns nil when the event is done, and an error for
// another attempt: after the next delay of the group, or with [RetryAfter] after a given
// time. With [Permanent], or after the last attempt, the event becomes a dead letter. A
// panic is an error.
//
// An event is handled at least once: if the process dies before a handled event is settled, the
// handler is called for it again.
type Handler func(ctx context.Context, e Event) error

// Middleware wraps a handler, to run code before and after it.
type Middleware func(Handler) Handler

// Handle registers a handler for the events whose type matches one of the patterns,
// which are separated by commas. In a pattern * stands for one part of the type, and > at
// the end for one or more parts: order.placed, order.*, order.>. The pattern > matches all
// types. With [Subscribed] in place of patterns, the handler is for the subscription with
// its name. The name must be unique in the group, and retries are stored under it: to
// change it, list the old one in [GroupConfig].Formerly.
//
// The handlers of an event run in the order of their registration, each by itself: an
// event is retried only for the handlers that have failed. Handlers may be added while
// the client runs.
func (g *Group) Handle(name, patterns string, handler Handler) {
	wrapped := g.wrap(handler)
	g.addHandler(&consume.Handler{Name: name, Each: func(ctx context.Context, e pg.Event) error {
		opened, err := g.open(ctx, e)
		if err != nil {
			return err
		}
		return wrapped(ctx, opened)
	}}, patterns, handler == nil)
}

// HandleTx registers a handler that gets a transaction, in which the event is also
// settled: both commit together, so the effect of the transaction happens exactly once,
// events that it publishes included. The handler must not end the transaction. An error
// rolls it back.
func (g *Group) HandleTx(name, patterns string, handler func(ctx context.Context, tx pgx.Tx, e Event) error) {
	wrapped := g.wrap(func(ctx context.Context, e Event) error {
		return handler(ctx, ctx.Value(txKey{}).(pgx.Tx), e)
	})
	g.addHandler(&consume.Handler{Name: name, EachTx: func(ctx context.Context, tx pgx.Tx, e pg.Event) error {
		opened, err := g.open(ctx, e)
		if err != nil {
			return err
		}
		return wrapped(context.WithValue(ctx, txKey{}, tx), opened)
	}}, patterns, handler == nil)
}

// txKey is the key of the transaction in the context that passes through middleware.
type txKey struct{}

// HandleBatch registers a handler that gets many events per call, in order. An error
// fails all of them, except [EventErrors]. Failed events are retried one by one.
// Middleware does not apply.
func (g *Group) HandleBatch(name, patterns string, handler func(ctx context.Context, events []Event) error) {
	g.addHandler(&consume.Handler{Name: name, Batch: func(ctx context.Context, batch []pg.Event) error {
		opened, failed := g.openBatch(ctx, batch)
		if len(opened) == 0 {
			return failed
		}
		return failed.merge(opened, handler(ctx, opened))
	}}, patterns, handler == nil)
}

// HandleBatchTx registers a handler that gets many events per call, and the transaction
// in which they are settled; see [Group.HandleTx] and [Group.HandleBatch]. Any error rolls
// back the whole batch.
func (g *Group) HandleBatchTx(name, patterns string, handler func(ctx context.Context, tx pgx.Tx, events []Event) error) {
	g.addHandler(&consume.Handler{Name: name, BatchTx: func(ctx context.Context, tx pgx.Tx, batch []pg.Event) error {
		opened, failed := g.openBatch(ctx, batch)
		if len(failed) > 0 {
			return failed // the other events are retried in another batch
		}
		return handler(ctx, tx, opened)
	}}, patterns, handler == nil)
}

// On is [Group.Handle] with a decoded payload. A payload that does not fit into T is a
// permanent failure.
func On[T any](g *Group, name, patterns string, handler func(ctx context.Context, e Event, payload T) error) {
	g.Handle(name, patterns, func(ctx context.Context, e Event) error {
		payload, err := decode[T](g, e)
		if err != nil {
			return err
		}
		return handler(ctx, e, payload)
	})
}

// OnTx is [Group.HandleTx] with a decoded payload. A payload that does not fit into T is a
// permanent failure.
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
	if err := g.client.Decode(e, &payload); err != nil {
		return payload, Permanent(err)
	}
	return payload, nil
}

// wrap wraps a handler in the group's middleware.
func (g *Group) wrap(handler Handler) Handler {
	for _, middleware := range slices.Backward(g.config.Middleware) {
		handler = middleware(handler)
	}
	return handler
}

// addHandler registers a handler. If it is invalid, Run returns an error: to leave it out
// would leave its events unhandled.
func (g *Group) addHandler(h *consume.Handler, patterns string, isNil bool) {
	subscribed := patterns == Subscribed
	h.Formerly = g.config.Formerly[h.Name]
	if !subscribed {
		h.Patterns = splitPatterns(patterns)
	}
	defer g.client.wake() // after the unlock: Run asks groups under its lock
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.checkHandler(h, subscribed, isNil); err != nil && g.err == nil {
		g.err = err
	} else if err == nil {
		g.metrics.Watch(h)
		g.handlers = append(g.handlers, h)
		g.routes.SetHandlers(g.handlers)
	}
	g.notifyChange()
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
		return invalid("a handler needs a name of up to 255 bytes", "Give it a name that stays.")
	case len(h.Patterns) == 0 && !subscribed:
		return invalid(fmt.Sprintf("handler %q has no patterns", h.Name), "Give it patterns, like order.placed or order.*.")
	case slices.ContainsFunc(g.handlers, func(other *consume.Handler) bool { return other.Name == h.Name }):
		return invalid(fmt.Sprintf("handler with id %q is already registered", h.Name), "Names are unique within a group.")
	}
	if err := checkPatterns(h.Patterns, "order.placed, order.* or order.>"); err != nil {
		return fmt.Errorf("handler %q: %w", h.Name, err)
	}
	return nil
}

func checkPatterns(patterns []string, examples string) error {
	for _, pattern := range patterns {
		if !consume.ValidPattern(pattern) {
			return invalid(fmt.Sprintf("%q is not a pattern", pattern), "Write it like "+examples+"; the parts are divided by dots.")
		}
	}
	return nil
}

package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

var receiving = []attribute.KeyValue{
	system, attribute.String("messaging.operation.name", "fetch"), attribute.String("messaging.operation.type", "receive"),
}

// Fetched records a call that has fetched events. The events are counted without the
// name of a handler.
func (g *Group) Fetched(ctx context.Context, events []pg.Event, began time.Time) {
	g.handler("").counts.events.Add(int64(len(events)))
	g.Took(pg.Lease{})
	if !g.noSDK.Load() {
		g.end(g.startSpan(ctx, spanConfig{
			operation: "fetch", kind: trace.SpanKindClient, attributes: g.fetchSets.base, batch: true, began: began, isChild: true,
		}, events), nil)
	}
	t := g.telemetry
	if t.consumed.Enabled(ctx) || t.operation.Enabled(ctx) {
		set := g.fetchSets.get("", nil)
		t.consumed.Add(ctx, int64(len(events)), set.add...)
		t.operation.Record(ctx, time.Since(began).Seconds(), set.record...)
	}
}

// Settle observes a call that settles events.
func (g *Group) Settle(
	ctx context.Context, events []pg.Event, settle func(ctx context.Context) ([]pg.Fate, error),
) error {
	ctx = g.Settling(ctx, events)
	started := time.Now()
	fates, err := settle(ctx)
	g.Settled(ctx, fates, time.Since(started), err)
	return err
}

// Projection returns a handler under whose name a projection is observed. The handler is
// never called.
func (g *Group) Projection(name string) *consume.Handler {
	h := &consume.Handler{Name: name, Batch: func(context.Context, []pg.Event) error { return nil }}
	g.Watch(h)
	return h
}

// Apply observes a call that applies events to a projection. A projection settles no
// failures. Instead, a single event that cannot be applied counts as failed.
func (g *Group) Apply(ctx context.Context, h *consume.Handler, events []pg.Event, apply func(ctx context.Context) error) error {
	ctx = g.Handling(ctx, h, events)
	started := time.Now()
	var err error = &worker.PanicError{Value: "not recovered here"}
	defer func() {
		g.Handled(ctx, h, events, time.Since(started), err)
		if err != nil && len(events) == 1 {
			g.failed(ctx, h.Name, false)
		}
	}()
	err = apply(ctx)
	return err
}

// Buried counts events of a relay that its broker refused, for good or for a retry.
func (g *Group) Buried(ctx context.Context, name string, failures []pg.Failure) {
	for i := range failures {
		if !failures[i].Released {
			g.failed(ctx, name, failures[i].Permanent)
		}
	}
}

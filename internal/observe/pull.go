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

// Fetched watches that events were fetched, in a call that began then. They are
// counted under no handler's name.
func (g *Group) Fetched(ctx context.Context, events []pg.Event, began time.Time) {
	g.named("").counts.events.Add(int64(len(events)))
	g.Took(pg.Lease{})
	attributes := with(receiving, groupKey.String(g.name))
	if !g.unheard.Load() {
		g.end(g.begin(ctx, about{
			operation: "fetch", kind: trace.SpanKindClient, attributes: attributes, batch: true, began: began, inside: true,
		}, events), nil)
	}
	t := g.telemetry
	if t.consumed.Enabled(ctx) || t.operation.Enabled(ctx) {
		m := g.fetching.of("", nil)
		t.consumed.Add(ctx, int64(len(events)), m.add...)
		t.operation.Record(ctx, time.Since(began).Seconds(), m.record...)
	}
}

// Settle watches what settles events.
func (g *Group) Settle(
	ctx context.Context, events []pg.Event, failures []pg.Failure, settle func(ctx context.Context) error,
) error {
	ctx = g.Settling(ctx, events)
	started := time.Now()
	err := settle(ctx)
	g.Settled(ctx, events, failures, time.Since(started), err)
	return err
}

// Projection returns what stands for a projection of that name as a handler.
func (g *Group) Projection(name string) *consume.Handler {
	h := &consume.Handler{Name: name, Batch: func(context.Context, []pg.Event) error { return nil }}
	g.Watch(h)
	return h
}

// Apply watches what applies events to a projection. It settles no failure: an
// event by itself that cannot be applied counts as failed.
func (g *Group) Apply(ctx context.Context, h *consume.Handler, events []pg.Event, apply func(ctx context.Context) error) error {
	ctx = g.Handling(ctx, h, events)
	started := time.Now()
	var err error = &worker.PanicError{Value: "not recovered here"}
	defer func() {
		g.Handled(ctx, h, events, time.Since(started), err)
		if err != nil && len(events) == 1 {
			g.failed(ctx, &pg.Failure{Event: events[0].ID, Subscription: h.Name}, events)
		}
	}()
	err = apply(ctx)
	return err
}

// Buried counts events of a relay that its broker will never take, and those that
// it did not take out of their turn.
func (g *Group) Buried(ctx context.Context, name string, failures []pg.Failure) {
	for i := range failures {
		if !failures[i].Released {
			g.failed(ctx, &pg.Failure{Event: failures[i].Event, Subscription: name, Permanent: failures[i].Permanent}, nil)
		}
	}
}

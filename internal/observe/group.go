package observe

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Group observes the work of this process for a group. Package consume calls its
// methods. Use [Telemetry.Group] to create one.
type Group struct {
	telemetry *Telemetry
	name      string

	// noSDK is true if no SDK recorded the last span. Then no spans are started until
	// recheckInterval has passed since checkedAt, since a program may set its provider
	// later.
	noSDK     atomic.Bool
	checkedAt atomic.Int64 // Unix time in nanoseconds

	lost       atomic.Int64
	leaseSet   *attributeSet
	settleSets attributeSets
	fetchSets  attributeSets

	mu       sync.Mutex
	handlers []*handler
}

// handler has the counters and attributes of one handler. Package consume keeps it in
// the Notes of its handler.
type handler struct {
	counts counts

	attributes []attribute.KeyValue
	successSet *attributeSet // avoids the lock of errorSets in the common case
	errorSets  attributeSets
}

// Group returns the observer of a group.
func (t *Telemetry) Group(name string) *Group {
	group := groupKey.String(name)
	return &Group{
		telemetry: t, name: name,
		leaseSet:   newAttributeSet([]attribute.KeyValue{system, group}),
		settleSets: attributeSets{base: with(settling, group)},
		fetchSets:  attributeSets{base: with(receiving, group)},
	}
}

// Watch begins to observe a handler of the group.
func (g *Group) Watch(h *consume.Handler) { h.Notes = g.handler(h.Name) }

// handler returns the handler with a name, which it creates if necessary. A failure may
// have the name of a subscription without a handler in this process.
func (g *Group) handler(name string) *handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.IndexFunc(g.handlers, func(h *handler) bool { return h.counts.name == name }); i >= 0 {
		return g.handlers[i]
	}
	own := with(processing, groupKey.String(g.name), handlerKey.String(name))
	h := &handler{counts: counts{name: name}, attributes: own, successSet: newAttributeSet(own), errorSets: attributeSets{base: own}}
	g.handlers = append(g.handlers, h)
	return h
}

// recheckInterval is how often a group without an SDK checks whether there is one now.
var recheckInterval = time.Second

// Took is called for each lease. If it is time for a check, the first event of the lease
// starts a span again, to find out whether there is an SDK.
func (g *Group) Took(pg.Lease) {
	if !g.noSDK.Load() {
		return
	}
	if now := time.Now().UnixNano(); now-g.checkedAt.Load() > int64(recheckInterval) {
		g.checkedAt.Store(now)
		g.noSDK.Store(false)
	}
}

// Handling starts a span for a call of a handler. The span of a single event is a child
// of the span that published the event, and has a link to it. The span of a batch has
// links to the spans of all its events.
func (g *Group) Handling(ctx context.Context, h *consume.Handler, events []pg.Event) context.Context {
	if g.noSDK.Load() {
		return ctx
	}
	notes, ok := h.Notes.(*handler)
	if !ok {
		return ctx
	}
	return g.startSpan(ctx, spanConfig{
		operation: "process", kind: trace.SpanKindConsumer, attributes: notes.attributes,
		batch: h.Batch != nil || h.BatchTx != nil || len(events) > 1, began: time.Now(),
	}, events)
}

// Handled ends the span of a call, and counts the call and its events.
func (g *Group) Handled(ctx context.Context, h *consume.Handler, events []pg.Event, took time.Duration, err error) {
	g.handled(ctx, h, len(events), took, err)
}

func (g *Group) handled(ctx context.Context, h *consume.Handler, events int, took time.Duration, err error) {
	notes, ok := h.Notes.(*handler)
	if !ok {
		return
	}
	notes.counts.called(events, took)
	g.end(ctx, err)
	t := g.telemetry
	if !t.consumed.Enabled(ctx) && !t.process.Enabled(ctx) {
		return
	}
	set := notes.successSet
	if err != nil {
		set = notes.errorSets.get("", err)
	}
	t.consumed.Add(ctx, int64(events), set.add...)
	t.process.Record(ctx, took.Seconds(), set.record...)
}

// Settling starts a span for a settlement.
func (g *Group) Settling(ctx context.Context, events []pg.Event) context.Context {
	if g.noSDK.Load() {
		return ctx
	}
	return g.startSpan(ctx, spanConfig{
		operation: "settle", kind: trace.SpanKindClient, attributes: g.settleSets.base, batch: len(events) != 1, began: time.Now(),
	}, events)
}

// Settled ends the span of a settlement. If the settlement succeeded, it counts the
// failures.
func (g *Group) Settled(ctx context.Context, failed []pg.Fate, took time.Duration, err error) {
	g.end(ctx, err)
	if t := g.telemetry; t.operation.Enabled(ctx) {
		t.operation.Record(ctx, took.Seconds(), g.settleSets.get("", err).record...)
	}
	if !pg.IsCommitted(err) {
		return
	}
	for i := range failed {
		g.failed(ctx, failed[i].Subscription, failed[i].Dead)
	}
}

func (g *Group) failed(ctx context.Context, subscription string, dead bool) {
	h := g.handler(subscription)
	h.counts.failed.Add(1)
	g.telemetry.failed.Add(ctx, 1, h.successSet.add...)
	if dead {
		h.counts.dead.Add(1)
		g.telemetry.dead.Add(ctx, 1, h.successSet.add...)
	}
}

// LeaseLost counts a lost lease.
func (g *Group) LeaseLost() {
	g.lost.Add(1)
	g.telemetry.lost.Add(context.Background(), 1, g.leaseSet.add...)
}

func (g *Group) end(ctx context.Context, err error) {
	if g.noSDK.Load() {
		return
	}
	if span := spanOf(ctx); span != nil {
		end(span, err)
	}
}

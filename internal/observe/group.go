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

// Group watches what this process does for a group. It is the engine's
// observer; its zero value is not usable.
type Group struct {
	telemetry *Telemetry
	name      string
	attempts  int // before an event is dead; 0 for no limit

	// unheard: nobody listened when a span was begun last, which was then. It is
	// tried again now and then.
	unheard atomic.Bool
	tried   atomic.Int64

	lost     atomic.Int64
	leases   *measured
	settling measures
	fetching measures

	mu       sync.Mutex
	handlers []*handler
}

// handler is what is kept of one handler: in the engine's Notes, and by name.
type handler struct {
	counts counts

	attributes []attribute.KeyValue
	well       *measured // when nothing went wrong
	measures   measures
}

// Group begins to watch a group whose events are dead after that many attempts.
func (t *Telemetry) Group(name string, attempts int) *Group {
	ofGroup := groupKey.String(name)
	return &Group{
		telemetry: t, name: name, attempts: attempts,
		leases:   measure([]attribute.KeyValue{system, ofGroup}),
		settling: measures{base: with(settling, ofGroup)},
		fetching: measures{base: with(receiving, ofGroup)},
	}
}

// Watch prepares for a handler of the group.
func (g *Group) Watch(h *consume.Handler) { h.Notes = g.named(h.Name) }

// named finds what is kept of a handler, or begins to. Failures have names that
// may have no handler here, such as those of an event that nobody handles.
func (g *Group) named(name string) *handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.IndexFunc(g.handlers, func(h *handler) bool { return h.counts.name == name }); i >= 0 {
		return g.handlers[i]
	}
	own := with(processing, groupKey.String(g.name), handlerKey.String(name))
	made := &handler{counts: counts{name: name}, attributes: own, well: measure(own), measures: measures{base: own}}
	g.handlers = append(g.handlers, made)
	return made
}

// tryAgain is how often to find out whether somebody listens now.
var tryAgain = time.Second

// Took lets the first event of a lease find out whether anybody listens.
func (g *Group) Took(pg.Lease) {
	if !g.unheard.Load() {
		return
	}
	if now := time.Now().UnixNano(); now-g.tried.Load() > int64(tryAgain) {
		g.tried.Store(now)
		g.unheard.Store(false)
	}
}

// Handling begins a span. That of a single event is a child of the one that
// published it, and linked to it; that of a batch is linked to all.
func (g *Group) Handling(ctx context.Context, h *consume.Handler, events []pg.Event) context.Context {
	if g.unheard.Load() {
		return ctx
	}
	notes, ok := h.Notes.(*handler)
	if !ok {
		return ctx
	}
	return g.begin(ctx, about{
		operation: "process", kind: trace.SpanKindConsumer, attributes: notes.attributes,
		batch: h.Batch != nil || h.BatchTx != nil, began: time.Now(),
	}, events)
}

// Handled ends the span and counts.
func (g *Group) Handled(ctx context.Context, h *consume.Handler, events []pg.Event, took time.Duration, err error) {
	notes, ok := h.Notes.(*handler)
	if !ok {
		return
	}
	notes.counts.called(len(events), took)
	g.end(ctx, err)
	t := g.telemetry
	if !t.consumed.Enabled(ctx) && !t.process.Enabled(ctx) {
		return
	}
	m := notes.well
	if err != nil {
		m = notes.measures.of("", err)
	}
	t.consumed.Add(ctx, int64(len(events)), m.add...)
	t.process.Record(ctx, took.Seconds(), m.record...)
}

// Settling begins a span.
func (g *Group) Settling(ctx context.Context, events []pg.Event) context.Context {
	if g.unheard.Load() {
		return ctx
	}
	return g.begin(ctx, about{
		operation: "settle", kind: trace.SpanKindClient, attributes: g.settling.base, batch: len(events) != 1, began: time.Now(),
	}, events)
}

// Settled ends the span and counts what has failed.
func (g *Group) Settled(ctx context.Context, events []pg.Event, failures []pg.Failure, took time.Duration, err error) {
	g.end(ctx, err)
	if t := g.telemetry; t.operation.Enabled(ctx) {
		t.operation.Record(ctx, took.Seconds(), g.settling.of("", err).record...)
	}
	if err != nil {
		return
	}
	for i := range failures {
		if !failures[i].Released {
			g.failed(ctx, &failures[i], events)
		}
	}
}

func (g *Group) failed(ctx context.Context, f *pg.Failure, events []pg.Event) {
	h := g.named(f.Subscription)
	h.counts.failed.Add(1)
	g.telemetry.failed.Add(ctx, 1, h.well.add...)
	if f.Permanent || g.isLast(f.Event, events) {
		h.counts.dead.Add(1)
		g.telemetry.dead.Add(ctx, 1, h.well.add...)
	}
}

// isLast reports whether a failure of an event is its last, by the policy that
// this process has given to the group.
func (g *Group) isLast(id int64, events []pg.Event) bool {
	return g.attempts > 0 && slices.ContainsFunc(events, func(e pg.Event) bool {
		return e.ID == id && e.Delivery >= g.attempts
	})
}

// LeaseLost counts.
func (g *Group) LeaseLost() {
	g.lost.Add(1)
	g.telemetry.lost.Add(context.Background(), 1, g.leases.add...)
}

func (g *Group) end(ctx context.Context, err error) {
	if g.unheard.Load() {
		return
	}
	if span := spanOf(ctx); span != nil {
		end(span, err)
	}
}

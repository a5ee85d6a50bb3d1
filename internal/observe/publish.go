package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/pg"
)

// Publish is one call that publishes.
type Publish struct {
	telemetry *Telemetry
	measures  *measures
	span      trace.Span // nil if nobody listens
	ctx       context.Context
	stream    string // "" if the messages go to several
	messages  int
	started   time.Time
}

// Publishing begins to watch a call that publishes messages, to one stream or,
// if that is empty, to several. The context that it returns is what the messages
// are made in.
func (t *Telemetry) Publishing(ctx context.Context, stream string, messages int) (context.Context, *Publish) {
	p := t.publishing(ctx, trace.SpanKindProducer, stream, messages)
	return p.ctx, p
}

// Enqueueing begins to watch a call that enqueues jobs. The context that it
// returns is what they are made in.
func (t *Telemetry) Enqueueing(ctx context.Context, jobs int) (context.Context, *Publish) {
	p := &Publish{telemetry: t, measures: &t.ofEnqueueing, messages: jobs, started: time.Now()}
	p.begin(ctx, trace.SpanKindProducer, "enqueue")
	return p.ctx, p
}

// Writing begins to watch a call that publishes messages which were made before,
// in whatever context each of them names.
func (t *Telemetry) Writing(ctx context.Context, messages []pg.Message) *Publish {
	p := t.publishing(ctx, trace.SpanKindClient, common(messages, streamOfMessage), len(messages))
	if p.span != nil {
		for _, link := range t.origins(len(messages), func(i int) json.RawMessage { return messages[i].Metadata }) {
			p.span.AddLink(link.Link)
		}
	}
	return p
}

func streamOfMessage(m *pg.Message) string { return cmp.Or(m.Stream, "default") }

func (t *Telemetry) publishing(ctx context.Context, kind trace.SpanKind, stream string, messages int) *Publish {
	p := &Publish{telemetry: t, measures: &t.ofPublishing, stream: stream, messages: messages, started: time.Now()}
	p.begin(ctx, kind, "publish")
	return p
}

// begin begins the span, if anybody listens.
func (p *Publish) begin(ctx context.Context, kind trace.SpanKind, name string) {
	attributes := with(p.measures.base, p.telemetry.namespace, p.telemetry.node)
	if p.stream != "" {
		name += " " + p.stream
		attributes = append(attributes, streamKey.String(p.stream))
	}
	if p.messages != 1 {
		attributes = append(attributes, messageCountKey.Int(p.messages))
	}
	var listening bool
	if p.ctx, listening = p.telemetry.start(ctx, name, kind, trace.WithAttributes(attributes...)); listening {
		p.span = spanOf(p.ctx)
	}
}

// End says how it went. Messages that were wrong and never sent do not count as
// sent.
func (p *Publish) End(ids []int64, sent bool, err error) {
	took := time.Since(p.started).Seconds()
	if p.span != nil {
		if len(ids) == 1 {
			p.span.SetAttributes(messageIDKey.String(strconv.FormatInt(ids[0], 10)))
		}
		end(p.span, err)
	}
	t := p.telemetry
	if !sent || !t.sent.Enabled(p.ctx) && !t.operation.Enabled(p.ctx) {
		return
	}
	m := p.measures.of(p.stream, err)
	t.sent.Add(p.ctx, int64(p.messages), m.add...)
	t.operation.Record(p.ctx, took, m.record...)
}

// Origin is the trace context of ctx, as metadata of messages that are made in
// it. It may be empty.
func (t *Telemetry) Origin(ctx context.Context) map[string]string {
	origin := propagation.MapCarrier{}
	t.propagator().Inject(ctx, origin)
	return origin
}

// HasOrigin reports whether metadata has a trace context of its own, which is to
// stay. The span that publishes is linked to it.
func (t *Telemetry) HasOrigin(ctx context.Context, metadata map[string]any) bool {
	if len(metadata) == 0 {
		return false
	}
	fields := t.propagator().Fields()
	if !slices.ContainsFunc(fields, func(field string) bool { _, ok := metadata[field]; return ok }) {
		return false
	}
	if span := spanOf(ctx); span != nil {
		carrier := propagation.MapCarrier{}
		for _, field := range fields {
			if value, ok := metadata[field].(string); ok {
				carrier[field] = value
			}
		}
		if origin := t.extract(carrier); origin.IsValid() {
			span.AddLink(trace.Link{SpanContext: origin})
		}
	}
	return true
}

// Continue returns a context that is in the trace which metadata names, if it
// names one.
func (t *Telemetry) Continue(ctx context.Context, metadata json.RawMessage) context.Context {
	propagator := t.propagator()
	if c := carrierOf(metadata, propagator.Fields()); c != nil {
		return propagator.Extract(ctx, c)
	}
	return ctx
}

// extract reads a trace context.
func (t *Telemetry) extract(carrier propagation.TextMapCarrier) trace.SpanContext {
	return trace.SpanContextFromContext(t.propagator().Extract(context.Background(), carrier))
}

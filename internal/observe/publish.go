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

// Publish observes one call that publishes messages or enqueues jobs.
type Publish struct {
	telemetry *Telemetry
	sets      *attributeSets
	span      trace.Span // nil if no SDK records spans
	ctx       context.Context
	stream    string // "" if the messages have different streams
	messages  int
	started   time.Time
}

// Publishing begins to observe a call that publishes messages. An empty stream means
// that the messages have different streams. The returned context has the span, which
// becomes the origin of the messages.
func (t *Telemetry) Publishing(ctx context.Context, stream string, messages int) (context.Context, *Publish) {
	p := t.publishing(ctx, trace.SpanKindProducer, stream, messages)
	return p.ctx, p
}

// Enqueueing begins to observe a call that enqueues jobs. The returned context has the
// span, which becomes the origin of the jobs.
func (t *Telemetry) Enqueueing(ctx context.Context, jobs int) (context.Context, *Publish) {
	p := &Publish{telemetry: t, sets: &t.enqueueSets, messages: jobs, started: time.Now()}
	p.begin(ctx, trace.SpanKindProducer, "enqueue")
	return p.ctx, p
}

// Writing begins to observe a call that publishes messages which were created earlier.
// Its span has links to the origins that the metadata of the messages name.
func (t *Telemetry) Writing(ctx context.Context, messages []pg.Message) *Publish {
	p := t.publishing(ctx, trace.SpanKindClient, commonStream(messages, streamOfMessage), len(messages))
	if p.span != nil {
		for _, link := range t.origins(len(messages), func(i int) json.RawMessage { return messages[i].Metadata }) {
			p.span.AddLink(link.Link)
		}
	}
	return p
}

func streamOfMessage(m *pg.Message) string { return cmp.Or(m.Stream, "default") }

func (t *Telemetry) publishing(ctx context.Context, kind trace.SpanKind, stream string, messages int) *Publish {
	p := &Publish{telemetry: t, sets: &t.publishSets, stream: stream, messages: messages, started: time.Now()}
	p.begin(ctx, kind, "publish")
	return p
}

// begin starts the span.
func (p *Publish) begin(ctx context.Context, kind trace.SpanKind, name string) {
	attributes := with(p.sets.base, p.telemetry.namespace, p.telemetry.node)
	if p.stream != "" {
		name += " " + p.stream
		attributes = append(attributes, streamKey.String(p.stream))
	}
	if p.messages != 1 {
		attributes = append(attributes, messageCountKey.Int(p.messages))
	}
	var recorded bool
	if p.ctx, recorded = p.telemetry.start(ctx, name, kind, trace.WithAttributes(attributes...)); recorded {
		p.span = spanOf(p.ctx)
	}
}

// End ends the span of the call, and counts its messages. sent is false if the messages
// were invalid and not sent to the database; then they are not counted.
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
	set := p.sets.get(p.stream, err)
	t.sent.Add(p.ctx, int64(p.messages), set.add...)
	t.operation.Record(p.ctx, took, set.record...)
}

// Origin returns the trace context of ctx as metadata for messages. It may be empty.
func (t *Telemetry) Origin(ctx context.Context) map[string]string {
	origin := propagation.MapCarrier{}
	t.propagator().Inject(ctx, origin)
	return origin
}

// HasOrigin reports whether metadata has a trace context already, which publishing must
// not overwrite. If so, it links the span in ctx to that trace context.
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

// Continue returns ctx with the trace context of metadata, if metadata has one.
func (t *Telemetry) Continue(ctx context.Context, metadata json.RawMessage) context.Context {
	propagator := t.propagator()
	if c := carrierOf(metadata, propagator.Fields()); c != nil {
		return propagator.Extract(ctx, c)
	}
	return ctx
}

// extract reads a trace context from a carrier.
func (t *Telemetry) extract(carrier propagation.TextMapCarrier) trace.SpanContext {
	return trace.SpanContextFromContext(t.propagator().Extract(context.Background(), carrier))
}

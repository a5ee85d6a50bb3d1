// Package observe records publishing and handling as OpenTelemetry spans and metrics,
// which follow the semantic conventions for messaging, and as counters in the process.
// It never changes the behaviour of the code that it observes.
//
// Its methods are called for every event. So without an OpenTelemetry SDK they cost
// almost nothing: they build no attributes for spans and metrics that nothing records.
package observe

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Config configures the receivers of spans and metrics. The global provider of the
// process replaces a provider that is nil.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator

	Namespace string
	Node      string
}

// Telemetry has the tracer and the instruments of one client.
type Telemetry struct {
	tracer     trace.Tracer
	configured propagation.TextMapPropagator // nil for the default; see propagator
	namespace  attribute.KeyValue
	node       attribute.KeyValue

	sent      metric.Int64Counter
	consumed  metric.Int64Counter
	failed    metric.Int64Counter
	dead      metric.Int64Counter
	lost      metric.Int64Counter
	operation metric.Float64Histogram
	process   metric.Float64Histogram

	publishSets attributeSets
	enqueueSets attributeSets
}

const (
	scope     = "github.com/posthorn/posthorn"
	schemaURL = "https://opentelemetry.io/schemas/1.43.0"
)

// New creates the tracer and the instruments of a client.
func New(config Config) *Telemetry {
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	if config.MeterProvider == nil {
		config.MeterProvider = otel.GetMeterProvider()
	}
	meter := config.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL))
	return &Telemetry{
		tracer:     config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		configured: config.Propagator,
		namespace:  attribute.String("messaging.posthorn.namespace", config.Namespace),
		node:       attribute.String("messaging.client.id", config.Node),

		sent:      counter(meter, "messaging.client.sent.messages", "{message}", "Messages sent to the database."),
		consumed:  counter(meter, "messaging.client.consumed.messages", "{message}", "Events that handlers were called for."),
		failed:    counter(meter, "messaging.posthorn.failed.messages", "{message}", "Events settled as failed, for a retry or as dead letters."),
		dead:      counter(meter, "messaging.posthorn.dead.messages", "{message}", "Events settled as dead letters."),
		lost:      counter(meter, "messaging.posthorn.lost.leases", "{lease}", "Leases that another worker took over while this process worked on them."),
		operation: histogram(meter, "messaging.client.operation.duration", "Duration of publishing and settling."),
		process:   histogram(meter, "messaging.process.duration", "Duration of handlers."),

		publishSets: attributeSets{base: publishing},
		enqueueSets: attributeSets{base: enqueueing},
	}
}

func counter(meter metric.Meter, name, unit, description string) metric.Int64Counter {
	made, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
	}
	if made == nil {
		return noop.Int64Counter{}
	}
	return made
}

// boundaries are the bucket boundaries that the semantic conventions recommend.
var boundaries = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

func histogram(meter metric.Meter, name, description string) metric.Float64Histogram {
	made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(boundaries...))
	if err != nil {
		otel.Handle(err)
	}
	if made == nil {
		return noop.Float64Histogram{}
	}
	return made
}

// propagator returns the configured propagator, or else the global one of the process,
// or else that of W3C trace context.
func (t *Telemetry) propagator() propagation.TextMapPropagator {
	if t.configured != nil {
		return t.configured
	}
	if global := otel.GetTextMapPropagator(); len(global.Fields()) > 0 {
		return global
	}
	return propagation.TraceContext{}
}

// spanKey is the context key of spans that this package started. The context may have
// a span of the program too, which this package must not end.
type spanKey struct{}

func spanOf(ctx context.Context) trace.Span {
	span, _ := ctx.Value(spanKey{}).(trace.Span)
	return span
}

// start starts a span. It returns false if no SDK records spans: then the tracer
// returns a span that is invalid or has the id of its parent.
func (t *Telemetry) start(ctx context.Context, name string, kind trace.SpanKind, options ...trace.SpanStartOption) (context.Context, bool) {
	parent := trace.SpanContextFromContext(ctx).SpanID()
	inner, span := t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	if !span.SpanContext().IsValid() || span.SpanContext().SpanID() == parent {
		return ctx, false
	}
	return context.WithValue(inner, spanKey{}, span), true
}

// Package observe turns what publishers and handlers do into spans and metrics
// of OpenTelemetry, by its conventions for messaging, and into counts that are
// kept in the process. It only watches: what it does not see happens all the
// same.
//
// It is called around every event, so it costs next to nothing where nobody
// listens: no attribute is built for a span or metric that goes nowhere.
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

// Config says where spans and metrics go. Providers that are nil are those of
// the process.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator

	Namespace string
	Node      string
}

// Telemetry is the way out for the spans and metrics of one client.
type Telemetry struct {
	tracer    trace.Tracer
	given     propagation.TextMapPropagator
	namespace attribute.KeyValue
	node      attribute.KeyValue

	sent      metric.Int64Counter
	consumed  metric.Int64Counter
	failed    metric.Int64Counter
	dead      metric.Int64Counter
	lost      metric.Int64Counter
	operation metric.Float64Histogram
	process   metric.Float64Histogram

	ofPublishing measures
	ofEnqueueing measures
}

const (
	scope     = "github.com/posthorn/posthorn"
	schemaURL = "https://opentelemetry.io/schemas/1.43.0"
)

// New makes the instruments.
func New(config Config) *Telemetry {
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	if config.MeterProvider == nil {
		config.MeterProvider = otel.GetMeterProvider()
	}
	meter := config.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL))
	return &Telemetry{
		tracer:    config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		given:     config.Propagator,
		namespace: attribute.String("messaging.posthorn.namespace", config.Namespace),
		node:      attribute.String("messaging.client.id", config.Node),

		sent:      counter(meter, "messaging.client.sent.messages", "{message}", "Messages given to the database."),
		consumed:  counter(meter, "messaging.client.consumed.messages", "{message}", "Events that handlers were called for."),
		failed:    counter(meter, "messaging.posthorn.failed.messages", "{message}", "Events settled as failed, to be tried again or dead."),
		dead:      counter(meter, "messaging.posthorn.dead.messages", "{message}", "Events settled as failed for good."),
		lost:      counter(meter, "messaging.posthorn.lost.leases", "{lease}", "Leases that others took over while they were worked on."),
		operation: histogram(meter, "messaging.client.operation.duration", "How long publishing and settling took."),
		process:   histogram(meter, "messaging.process.duration", "How long handlers took."),

		ofPublishing: measures{base: publishing},
		ofEnqueueing: measures{base: enqueueing},
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

// boundaries are those that the conventions advise.
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

// propagator is the one that was given, or that of the process, or W3C's where
// the process has none.
func (t *Telemetry) propagator() propagation.TextMapPropagator {
	if t.given != nil {
		return t.given
	}
	if ofProcess := otel.GetTextMapPropagator(); len(ofProcess.Fields()) > 0 {
		return ofProcess
	}
	return propagation.TraceContext{}
}

// spanKey is where a context has the span that this package began. The span of
// others, which may be in the same context, is not ours to end.
type spanKey struct{}

func spanOf(ctx context.Context) trace.Span {
	span, _ := ctx.Value(spanKey{}).(trace.Span)
	return span
}

// start begins a span. It reports whether anybody listens: a tracer without
// listeners makes spans that have no id of their own.
func (t *Telemetry) start(ctx context.Context, name string, kind trace.SpanKind, options ...trace.SpanStartOption) (context.Context, bool) {
	parent := trace.SpanContextFromContext(ctx).SpanID()
	inner, span := t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	if !span.SpanContext().IsValid() || span.SpanContext().SpanID() == parent {
		return ctx, false
	}
	return context.WithValue(inner, spanKey{}, span), true
}

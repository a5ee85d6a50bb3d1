package observe_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// globalSpans sets the global provider of the process, which is possible only once.
var globalSpans = sync.OnceValue(func() *tracetest.SpanRecorder {
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	return spans
})

func TestMain(m *testing.M) {
	*observe.RecheckInterval = 20 * time.Millisecond
	posthorntest.Main(m)
}

// A program may set its provider after it has opened the client.
func TestProviderIsSetLate(t *testing.T) {
	g := observe.New(observe.Config{}).Group("billing")
	h := &consume.Handler{Name: "charge"}
	g.Watch(h)
	events := []pg.Event{{ID: 7, Stream: "orders"}}
	handle := func() {
		g.Took(pg.Lease{Events: events})
		g.Handled(g.Handling(t.Context(), h, events), h, events, time.Millisecond, nil)
	}
	handle()
	spans := globalSpans()
	before := len(spans.Ended())
	await.True(t, "a span", func() bool {
		handle()
		return len(spans.Ended()) > before
	})
	handled, _ := g.Counts()
	if n := handled[0].Events; n < 2 {
		t.Errorf("%d events", n)
	}
}

// The number of time series is limited, even if the number of streams is not.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	o := observe.New(observe.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	for i := range 500 {
		_, p := o.Publishing(t.Context(), fmt.Sprint("user:", i), 1)
		p.End([]int64{1}, true, nil)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var total, nameless int64
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "messaging.client.sent.messages" {
			continue
		}
		for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
			total += point.Value
			if !point.Attributes.HasValue("messaging.destination.name") {
				nameless += point.Value
			}
		}
	}
	if total != 500 || nameless != 400 {
		t.Errorf("%d messages, %d of them without their stream; want 500, 400", total, nameless)
	}
}

// The configured propagator defines the metadata fields of the trace context.
func TestConfiguredPropagator(t *testing.T) {
	t.Parallel()
	o := observe.New(observe.Config{Propagator: propagation.Baggage{}})
	if o.HasOrigin(t.Context(), map[string]any{"traceparent": "x"}) || !o.HasOrigin(t.Context(), map[string]any{"baggage": "x"}) {
		t.Error("HasOrigin does not look for the fields of the propagator")
	}
}

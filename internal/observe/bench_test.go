package observe_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
)

// BenchmarkHandled measures the overhead per event. The goal is less than 200 ns
// without an SDK.
func BenchmarkHandled(b *testing.B) {
	b.Run("without an SDK", func(b *testing.B) { benchmarkHandled(b, observe.Config{}) })
	b.Run("metrics", func(b *testing.B) {
		benchmarkHandled(b, observe.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))})
	})
	b.Run("spans", func(b *testing.B) {
		benchmarkHandled(b, observe.Config{TracerProvider: trace.NewTracerProvider()})
	})
	b.Run("unsampled", func(b *testing.B) {
		benchmarkHandled(b, observe.Config{TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))})
	})
}

func benchmarkHandled(b *testing.B, config observe.Config) {
	g := observe.New(config).Group("billing")
	h := &consume.Handler{Name: "charge"}
	g.Watch(h)
	events := []pg.Event{{ID: 7, Stream: "orders", Type: "order.placed", Metadata: []byte(
		`{"producer":"host-1-00c0ffee","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`)}}
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, 1))
	defer cancel()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%10 == 0 {
			g.Took(pg.Lease{}) // a lease has ten events
		}
		inner := g.Handling(ctx, h, events)
		g.Handled(inner, h, events, time.Microsecond, nil)
	}
}

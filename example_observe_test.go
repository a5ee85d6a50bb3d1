package posthorn_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthorn/posthorn"
)

var exporter sdktrace.SpanExporter

// Once the program has a provider, spans and metrics go there.
func Example_openTelemetry() {
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	defer provider.Shutdown(context.Background())
	otel.SetTracerProvider(provider)

	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: "postgres://localhost/shop"})
	if err != nil {
		return
	}
	defer ph.Close()
}

func ExampleClient_Stats() {
	for _, g := range ph.Stats() {
		for _, h := range g.Handlers {
			fmt.Println(g.Group, h.Handler, h.Events, h.Failed, h.Dead, h.Busy)
		}
	}
}

func ExampleClient_Groups() {
	groups, err := ph.Groups(ctx)
	if err != nil {
		return
	}
	for _, g := range groups {
		fmt.Println(g.Group, g.LagEvents, g.LagSeconds, g.Retries, g.DeadLetters)
	}
}

package posthorn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

func ExampleReader() {
	ph, shop, ctx, end := forExample("read.md")
	defer end()
	for _, kind := range []string{"order.placed", "order.paid"} {
		if _, err := shop.Publish(ctx, shop.Pool(), posthorn.Message{Type: kind}); err != nil {
			log.Fatal(err)
		}
	}

	reader := ph.Read(posthorn.ReadConfig{})
	for e, err := range reader.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.ID, e.Type)
	}
	// Later, perhaps in another process: ReadConfig{Cursor: cursor}.
	cursor := reader.Cursor()
	fmt.Println(cursor != "")
	// Output:
	// 1 order.placed
	// 2 order.paid
	// true
}

func ExampleClient_Admin_deadLetters() {
	for letter, err := range ph.Admin().DeadLetters(ctx, admin.DeadLetterFilter{Group: "billing", Type: "order.placed"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(letter.EventID, letter.Subscription, letter.Attempts, letter.Error)
	}
	n, err := ph.Admin().Redrive(ctx, admin.DeadLetterFilter{Group: "billing", Error: "bank is closed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "come again")
}

func ExampleClient_Read() {
	ph, shop, ctx, end := forExample("read.md")
	defer end()
	for _, key := range []string{"7", "8", "7"} {
		if _, err := shop.Publish(ctx, shop.Pool(), posthorn.Message{Type: "order.placed", Key: key}); err != nil {
			log.Fatal(err)
		}
	}

	reader := ph.Read(posthorn.ReadConfig{
		Filter: posthorn.Filter{Types: []string{"order.*"}, Keys: []string{"7"}},
		Follow: true,
	})
	read := 0
	for e, err := range reader.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.ID, e.Type, e.Key, reader.Cursor() != "")
		if read++; read == 2 {
			break
		}
	}
	// Output:
	// 1 order.placed 7 true
	// 3 order.placed 7 true
}

// Server-sent events: a browser that connects again sends the cursor of the last event
// that it has received.
func ExampleReader_Events() {
	http.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) {
		config := posthorn.ReadConfig{
			Filter: posthorn.Filter{Types: []string{"order.>"}, TagsAny: []string{"public"}},
			Follow: true,
			Cursor: r.Header.Get("Last-Event-ID"),
		}
		if config.Cursor == "" {
			config.From = posthorn.End // only new events
		}
		reader := ph.Read(config)
		w.Header().Set("Content-Type", "text/event-stream")
		for e, err := range reader.Events(r.Context()) {
			if err != nil {
				return
			}
			data, err := json.Marshal(e)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "id: %s\ndata: %s\n\n", reader.Cursor(), data)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	})
}

func ExampleReadConfig() {
	cursor := "" // from Reader.Cursor
	everything := posthorn.ReadConfig{}
	fromNow := posthorn.ReadConfig{From: posthorn.End, Follow: true}
	lastHour := posthorn.ReadConfig{From: posthorn.At(time.Now().Add(-time.Hour))}
	resumed := posthorn.ReadConfig{Cursor: cursor}
	afterAnEvent := posthorn.ReadConfig{AfterEvent: 4711}
	fmt.Println(everything, fromNow, lastHour, resumed, afterAnEvent)
}

func ExampleFilter() {
	filter := posthorn.Filter{
		Types:   []string{"order.placed", "order.item.*"}, // one of these
		Streams: []string{"orders.*"},
		Keys:    []string{"7", "8"},
		TagsAny: []string{"vip", "eu"},
		TagsAll: []string{"public"},
		Payload: map[string]any{"status": "paid"}, // contained in the payload, as with @> of jsonb
	}
	text, err := json.Marshal(filter)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	// Output: {"type":["order.placed","order.item.*"],"stream":["orders.*"],"key":["7","8"],"tags_any":["vip","eu"],"tags_all":["public"],"payload":{"status":"paid"}}
}

var exporter sdktrace.SpanExporter

// A client uses the global providers of the program.
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
			fmt.Println(g.Group, h.Handler, h.Events, h.Failed, h.DeadLetters, h.Busy)
		}
	}
}

func ExampleClient_Admin_groups() {
	groups, err := ph.Admin().Groups(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Println(g.Group, g.LagEvents, g.LagSeconds, g.Retries, g.DeadLetters)
	}
}

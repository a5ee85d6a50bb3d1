package nats_test

import (
	"context"
	"encoding/json"
	"log"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/nats"
)

// Relays call Write; programs rarely need to.
func Example() {
	ctx := context.Background()
	sink, err := nats.Open(ctx, "nats://localhost:4222?replicas=3&keep_for=168h", nats.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	err = sink.Write(ctx, posthorn.SinkBatch{
		Log: "01234567-89ab-cdef-0123-456789abcdef", Namespace: "shop",
		Events: []posthorn.Event{{
			ID: 1, Stream: "orders", Type: "order.placed", Payload: json.RawMessage(`{"n": 1}`), Metadata: json.RawMessage(`{}`),
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
}

package nats_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/relay/nats"
)

const origin = "01234567-89ab-cdef-0123-456789abcdef"

var at = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// open opens a sink, and closes it when the test ends.
func open(t *testing.T, url string, config nats.Config) *nats.Sink {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := nats.Open(t.Context(), url, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// events returns n events of a stream, with ids from first on.
func events(stream string, first, n int) []posthorn.Event {
	var all []posthorn.Event
	for i := range n {
		all = append(all, posthorn.Event{
			ID: int64(first + i), Stream: stream, Type: "order.placed", Key: "k",
			Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, first+i)), Metadata: json.RawMessage(`{}`), PublishedAt: at,
		})
	}
	return all
}

func batch(all ...posthorn.Event) posthorn.SinkBatch {
	return posthorn.SinkBatch{Log: origin, Namespace: "shop", Events: all}
}

func write(t *testing.T, s *nats.Sink, all ...posthorn.Event) {
	t.Helper()
	if err := s.Write(t.Context(), batch(all...)); err != nil {
		t.Fatal(err)
	}
}

// persist retries a write until it succeeds, as a relay does.
func persist(t *testing.T, s *nats.Sink, all ...posthorn.Event) {
	t.Helper()
	ctx := await.Context(t)
	await.True(t, "all events are written", func() bool {
		err := s.Write(ctx, batch(all...))
		if err != nil {
			t.Logf("%v: write: %v", time.Now().Format("05.000"), err)
		}
		return err == nil
	})
}

// ids returns the event ids of a JetStream stream, in the order of the stream.
func ids(t *testing.T, js jetstream.JetStream, stream string) []string {
	t.Helper()
	ctx := await.Context(t)
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	var got []string
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Headers().Get("ce-id"))
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if meta.Sequence.Stream >= s.CachedInfo().State.LastSeq {
			return got
		}
	}
}

// wantOrder checks that got has n ids from first on, in order and each once.
func wantOrder(t *testing.T, got []string, first, n int) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%d messages, want %d", len(got), n)
	}
	for i, id := range got {
		if id != fmt.Sprint(first+i) {
			t.Fatalf("message %d is event %s, want %d", i, id, first+i)
		}
	}
}

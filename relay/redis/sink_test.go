package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testentry"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

const origin = "01234567-89ab-cdef-0123-456789abcdef"

func open(t *testing.T, url string) *redis.Sink {
	t.Helper()
	s, err := redis.Open(t.Context(), url, redis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// events returns events of a stream with the ids from..to.
func events(stream string, from, to int64) []posthorn.Event {
	var out []posthorn.Event
	for id := from; id <= to; id++ {
		out = append(out, posthorn.Event{
			ID: id, Stream: stream, Type: "thing.done", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, id)),
			Metadata: json.RawMessage("{}"), PublishedAt: time.Unix(1700000000, id).UTC(),
		})
	}
	return out
}

func batchOf(events ...[]posthorn.Event) posthorn.SinkBatch {
	return posthorn.SinkBatch{Log: origin, Namespace: "shop", Events: slices.Concat(events...)}
}

func write(t *testing.T, s *redis.Sink, events ...[]posthorn.Event) {
	t.Helper()
	if err := s.Write(t.Context(), batchOf(events...)); err != nil {
		t.Fatalf("%v (%s)", err, posthorn.Hint(err))
	}
}

type ranger interface {
	XRange(ctx context.Context, stream, start, stop string) *goredis.XMessageSliceCmd
}

// ids returns the event ids of a stream's entries, in the order of the stream.
func ids(t *testing.T, from ranger, key string) []string {
	t.Helper()
	entries, err := from.XRange(t.Context(), key, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, fmt.Sprint(e.Values["id"]))
	}
	return out
}

func numbers(from, to int64) []string {
	out := []string{}
	for id := from; id <= to; id++ {
		out = append(out, fmt.Sprint(id))
	}
	return out
}

func equal(t *testing.T, name string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	write(t, open(t, server.URL()), events("stream:user:events", 1, 1), events("b", 2, 1002), events("stream:user:events", 1003, 1003))
	equal(t, "ids of a stream", ids(t, server.Client, "stream:user:events"), []string{"1", "1003"})
	equal(t, "ids of b", ids(t, server.Client, "b"), numbers(2, 1002))
}

// Sinks write the form that the first version has written, and sources read it.
func TestFormOfEntries(t *testing.T) {
	t.Parallel()
	for _, example := range testentry.Load(t) {
		written, stream := testredis.NewDatabase(t), example.Event.Stream
		if err := open(t, written.URL()).Write(t.Context(), example.Batch()); err != nil {
			t.Fatal(err)
		}
		entries, err := written.Client.XRange(t.Context(), stream, "-", "+").Result()
		if err != nil || len(entries) != 1 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		equal(t, "the entry that a sink writes", entries[0].Values, example.Redis)

		early := testredis.NewDatabase(t)
		position, err := early.Client.XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, Values: example.Redis}).Result()
		if err != nil {
			t.Fatal(err)
		}
		read := readAll(t, source(t, early.URL()), map[string]string{stream: ""}, 10, 1)
		equal(t, "the entry that a source reads", read, []posthorn.SourceEntry{example.Read(position + "/1")})
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

func lines(text string) []string { return strings.Split(strings.ReplaceAll(text, "\r", ""), "\n") }

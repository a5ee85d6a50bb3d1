package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// flaky writes to a sink, and now and then fails: before, after the first events
// of a stream, or when all is written.
type flaky struct {
	posthorn.Sink
	mu   sync.Mutex
	well bool
}

func (s *flaky) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	s.mu.Lock()
	well := s.well
	s.mu.Unlock()
	if well {
		return s.Sink.Write(ctx, batch)
	}
	switch rand.IntN(6) {
	case 0:
		return errors.New("no luck before")
	case 1:
		if err := s.Sink.Write(ctx, batch); err != nil {
			return err
		}
		return errors.New("no luck after")
	case 2:
		return s.some(ctx, batch)
	}
	return s.Sink.Write(ctx, batch)
}

// some writes the first events of each stream only.
func (s *flaky) some(ctx context.Context, batch posthorn.SinkBatch) error {
	failed, part := posthorn.EventErrors{}, batch
	part.Events = nil
	held := map[string]bool{}
	for _, e := range batch.Events {
		if held[e.Stream] = held[e.Stream] || rand.IntN(20) == 0; held[e.Stream] {
			failed[e.ID] = errors.New("no luck")
		} else {
			part.Events = append(part.Events, e)
		}
	}
	if err := s.Sink.Write(ctx, part); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

func (s *flaky) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well = true
}

// inRedis are the events of streams in a Redis, in their order, without repeats.
func inRedis(t *testing.T, server *testredis.Database, streams ...string) map[string][]int64 {
	t.Helper()
	found := map[string][]int64{}
	for _, stream := range streams {
		entries, err := server.Client.XRange(t.Context(), stream, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, _ := e.Values["id"].(string)
			found[stream] = appendNew(t, found[stream], text)
		}
	}
	return found
}

func appendNew(t *testing.T, ids []int64, text string) []int64 {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(ids, id) {
		return ids
	}
	return append(ids, id)
}

// inNATS are the same in JetStream.
func inNATS(t *testing.T, server *testnats.Server, streams ...string) map[string][]int64 {
	t.Helper()
	_, js := testnats.Connect(t, server)
	found := map[string][]int64{}
	for _, stream := range streams {
		s, err := js.Stream(t.Context(), "posthorn+default+"+strings.ReplaceAll(stream, ":", "=3A"))
		if err != nil {
			t.Fatal(err)
		}
		state := s.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
			m, err := s.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			found[stream] = appendNew(t, found[stream], m.Header.Get("ce-id"))
		}
	}
	return found
}

// Seed 003.3, 003.13: three brokers that fail now and then get everything, each
// stream in its order.
func TestThreeFlakyBrokers(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	redisServer, natsServer := testredis.NewDatabase(t), testnats.NewAccount(t)
	toRedis, err := redis.Open(t.Context(), redisServer.URL(), redis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { toRedis.Close() })
	toNATS, err := nats.Open(t.Context(), natsServer.URL, nats.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { toNATS.Close() })
	sinks := []*flaky{{Sink: toRedis}, {Sink: toNATS}, {Sink: r.sink}}
	r.Relay("redis", soon(), sinks[0])
	r.Relay("nats", soon(), sinks[1])
	end := r.relay(soon(), sinks[2])
	streams := []string{"a", "b", "stream:user:events"}
	r.mix(12, 20, streams...)
	for _, s := range sinks {
		s.recover()
	}
	r.mix(1, 20, streams...)
	r.awaitWritten()
	await.True(t, "all are settled", func() bool { return r.settled("redis") && r.settled("nats") })
	if diff := cmp.Diff(r.published, inRedis(t, redisServer, streams...)); diff != "" {
		t.Errorf("in Redis (-published +there):\n%s", diff)
	}
	if diff := cmp.Diff(r.published, inNATS(t, natsServer, streams...)); diff != "" {
		t.Errorf("in JetStream (-published +there):\n%s", diff)
	}
	end()
}

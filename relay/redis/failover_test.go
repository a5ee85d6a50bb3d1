package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

const idsPerStream = 1_000_000

// writeBatches writes batches of all streams one after the other, and repeats each
// until it is acknowledged, as a relay does. It returns how many events each stream
// has. The ids of the i-th stream begin at i*idsPerStream+1, so that ids are unique.
func writeBatches(t *testing.T, s *redis.Sink, streams []string, batches int, done *atomic.Int64) int64 {
	t.Helper()
	const each = 300
	for b := range batches {
		var all [][]posthorn.Event
		for i, stream := range streams {
			all = append(all, events(stream, int64(i*idsPerStream+b*each+1), int64(i*idsPerStream+(b+1)*each)))
		}
		remaining := batchOf(all...)
		await.True(t, fmt.Sprintf("batch %d is written", b), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a killed server does not reply
			defer cancel()
			err := s.Write(ctx, remaining)
			var some posthorn.EventErrors
			if errors.As(err, &some) { // the other events are written
				remaining.Events = slices.DeleteFunc(slices.Clone(remaining.Events), func(e posthorn.Event) bool { return some[e.ID] == nil })
			}
			return err == nil
		})
		done.Add(1)
	}
	return int64(batches * each)
}

// expectAll checks that each stream has all its events, in order if repeats are
// dropped.
func expectAll(t *testing.T, from ranger, streams []string, last int64) {
	t.Helper()
	for i, stream := range streams {
		seen := map[string]bool{}
		first := []string{}
		got := ids(t, from, stream)
		for _, id := range got {
			if !seen[id] {
				first = append(first, id)
			}
			seen[id] = true
		}
		if !slices.Equal(first, numbers(int64(i*idsPerStream+1), int64(i*idsPerStream)+last)) {
			t.Errorf("%s has %d of %d events, or not in order: %.300v", stream, len(first), last, first)
		}
		if len(got) != len(first) {
			t.Logf("%s has %d repeats", stream, len(got)-len(first))
		}
	}
}

func TestServerIsKilledWhileWriting(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL())
	streams := []string{"a", "b", "c"}
	var done atomic.Int64
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for kills := int64(1); kills <= 3; kills++ {
			await.True(t, "some batches are written", func() bool { return done.Load() >= kills*20 })
			server.Kill()
			server.Restart()
		}
	}()
	last := writeBatches(t, s, streams, 80, &done)
	<-finished
	expectAll(t, server.Client, streams, last)
	if strings.Contains(server.Log(), "MULTI calls can not be nested") {
		return // Redis 7.0 executed half of an append at its second start; see the next test
	}
	for _, stream := range streams { // no repeats, since the server lost nothing
		equal(t, "length", server.Client.XLen(t.Context(), stream).Val(), last)
	}
}

// A server that is killed while it writes its append-only file discards the
// half-written append at the next start. Redis 7.0 executes that half at the start
// after that. This causes repeats, but nothing is lost or out of order.
func TestHalfWrittenAppend(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL())
	write(t, s, events("a", 1, 300))
	before := server.Written()
	write(t, s, events("a", 301, 600))
	server.Kill()
	server.Cut((before + server.Written()) / 2)
	server.Restart()
	if n, err := server.Client.XLen(t.Context(), "a").Result(); err != nil || n != 300 {
		t.Errorf("after the restart the stream has %d entries, want 300: %v", n, err)
	}
	write(t, s, events("a", 301, 600))
	server.Kill()
	server.Restart()
	write(t, s, events("a", 601, 900))
	expectAll(t, server.Client, []string{"a"}, 900)
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	servers := testredis.StartSentinel(t)
	s := open(t, servers.URL())
	streams := []string{"a", "b", "c"}
	var done atomic.Int64
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		await.True(t, "some batches are written", func() bool { return done.Load() >= 10 })
		was := servers.Current()
		was.Kill()
		await.True(t, "batches are written after the failover", func() bool { return done.Load() >= 30 })
		was.Restart()
	}()
	last := writeBatches(t, s, streams, 50, &done)
	<-finished
	servers.AwaitReady()
	expectAll(t, servers.Current().Client, streams, last)
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	servers := testredis.StartCluster(t, 3, true)
	s := open(t, servers.URL())
	var streams []string
	for i := range 9 {
		streams = append(streams, fmt.Sprintf("stream:user:%d", i))
	}
	client := servers.Client(t)
	var done atomic.Int64
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		await.True(t, "some batches are written", func() bool { return done.Load() >= 10 })
		was := servers.Owner(client, streams[0])
		was.Kill()
		await.True(t, "the replica takes over", func() bool {
			client.ReloadState(t.Context())
			return servers.Owner(client, streams[0]) != was
		})
		was.Restart() // until then the new master has no replica
	}()
	last := writeBatches(t, s, streams, 50, &done)
	<-finished
	servers.AwaitReady()
	expectAll(t, servers.Client(t), streams, last)
}

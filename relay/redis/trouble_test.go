package redis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

// failures returns the errors by event of a write that failed in part.
func failures(t *testing.T, err error) posthorn.EventErrors {
	t.Helper()
	var some posthorn.EventErrors
	if !errors.As(err, &some) {
		t.Fatalf("got %v, want errors by event", err)
	}
	return some
}

// writeAs writes to the stream bad as a relay of another log or namespace.
func writeAs(ctx context.Context, server *testredis.Database, origin, namespace string) error {
	s, err := redis.Open(ctx, server.URL(), redis.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Write(ctx, posthorn.SinkBatch{Log: origin, Namespace: namespace, Events: events("bad", 1, 2)})
}

// An error of one stream does not affect other streams, and has a hint.
func TestOneStreamFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(ctx context.Context, server *testredis.Database) error
		text  string
		hint  string
	}{
		"the key has another type": {
			func(ctx context.Context, server *testredis.Database) error {
				return server.Client.Set(ctx, "bad", "x", 0).Err()
			}, "WRONGTYPE", "prefix",
		},
		"another log writes the stream": {
			func(ctx context.Context, server *testredis.Database) error {
				return writeAs(ctx, server, "other", "shop")
			}, "another log, posthorn:other:shop", "prefix",
		},
		"another namespace writes the stream": {
			func(ctx context.Context, server *testredis.Database) error {
				return writeAs(ctx, server, origin, "other")
			}, "another log, posthorn:01234567-89ab-cdef-0123-456789abcdef:other", "prefix",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			if err := test.spoil(t.Context(), server); err != nil {
				t.Fatal(err)
			}
			s := open(t, server.URL())
			some := failures(t, s.Write(t.Context(), batchOf(events("good", 1, 400), events("bad", 401, 700), events("good", 701, 1000))))
			for id := int64(1); id <= 1000; id++ {
				if got, want := some[id] != nil, id > 400 && id <= 700; got != want {
					t.Fatalf("event %d: %v", id, some[id])
				}
			}
			err := some[500]
			if !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), `"bad"`) || !strings.Contains(posthorn.Hint(err), test.hint) {
				t.Errorf("got %v (%s)", err, posthorn.Hint(err))
			}
			equal(t, "the good stream", server.Client.XLen(t.Context(), "good").Val(), int64(700))
			some = failures(t, s.Write(t.Context(), batchOf(events("bad", 401, 402))))
			equal(t, "errors of the bad stream alone", len(some), 2)
			prefixed := open(t, server.URL()+"?prefix=mine:")
			write(t, prefixed, events("bad", 401, 700))
			equal(t, "with a prefix", ids(t, server.Client, "mine:bad"), numbers(401, 700))
		})
	}
}

func TestServerIsFull(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL())
	write(t, s, events("a", 1, 10))
	setMaxMemory := func(bytes string) {
		t.Helper()
		if err := server.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setMaxMemory("4mb")
	large := events("a", 11, 400)
	for i := range large {
		large[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)
	}
	err := s.Write(t.Context(), batchOf(large))
	if err == nil || !strings.Contains(err.Error(), "OOM") || !strings.Contains(posthorn.Hint(oneOf(err)), "maxmemory") {
		t.Errorf("write to a full server: %v (%s)", err, posthorn.Hint(err))
	}
	setMaxMemory("0")
	write(t, s, large)
	equal(t, "events after maxmemory was raised", ids(t, server.Client, "a"), numbers(1, 400))
}

// oneOf returns the error of one event if err has errors by event, and else err.
func oneOf(err error) error {
	var some posthorn.EventErrors
	if errors.As(err, &some) {
		for _, err := range some {
			return err
		}
	}
	return err
}

func TestServerIsDown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL())
	server.Kill()
	var some posthorn.EventErrors
	if err := s.Write(t.Context(), batchOf(events("a", 1, 10))); err == nil || errors.As(err, &some) {
		t.Errorf("write to a server that is down: %v", err)
	}
	server.Restart()
	write(t, s, events("a", 1, 10))
	if err := server.Client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	write(t, s, events("a", 11, 2000))
	equal(t, "events", ids(t, server.Client, "a"), numbers(1, 2000))
}

func TestServerIsSlow(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL()+"?timeout=1h") // only the context ends it
	write(t, s, events("a", 1, 10))
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Write(ctx, batchOf(events("a", 11, 20))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write past its deadline: %v", err)
	}
	if err := s.Write(ctx, batchOf(events("b", 11, 20))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write that begins after its deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Write(ctx, batchOf(events("a", 11, 20))) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled write: %v", err)
	}
	server.Resume()
	write(t, s, events("a", 11, 30))
	equal(t, "events", ids(t, server.Client, "a"), numbers(1, 30))
	equal(t, "stream of the write that was never sent", server.Client.Exists(t.Context(), "b").Val(), int64(0))
}

// A relay loses its lease while its commands are in flight, and another relay
// continues. Then the late commands of the first relay arrive.
func TestLateOwner(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	late, next := open(t, server.URL()), open(t, server.URL())
	write(t, late, events("a", 1, 300))
	write(t, next, events("a", 301, 900)) // the new owner has written more
	for from := int64(301); from < 900; from += 100 {
		prev := fmt.Sprint(from - 1)
		answer, err := redis.Late(t.Context(), late, prev, batchOf(events("a", from, from+99)))
		if answer != "900" || err != nil {
			t.Errorf("a late chunk from %d: %v, %v", from, answer, err)
		}
	}
	equal(t, "events", ids(t, server.Client, "a"), numbers(1, 900))

	// Both write chunks in turn: each continues where the other ended.
	chunk := func(s *redis.Sink, from, to int64, want any) {
		t.Helper()
		answer, err := redis.Late(t.Context(), s, fmt.Sprint(from-1), batchOf(events("a", from, to)))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("chunk %d to %d", from, to), answer, want)
	}
	chunk(late, 901, 1000, int64(100))
	chunk(next, 901, 1150, "1000")  // the stream has the first 100
	chunk(next, 1101, 1200, "1000") // 1001 to 1100 are missing
	chunk(late, 1001, 1100, int64(100))
	chunk(next, 1101, 1200, int64(100))
	equal(t, "events", ids(t, server.Client, "a"), numbers(1, 1200))
}

// A relay writes events while the transaction of an earlier one is open. Then Postgres
// crashes and loses the relay's position, and the next batch has all of them.
func TestAnEventThatWasCommittedLateIsNotTakenForWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		written, last []int64 // the events that the stream has, and its last ones, in another batch
		want          []int64 // the entries at the end
	}{
		"before the last":   {[]int64{1, 3}, nil, []int64{1, 3, 2, 4}},
		"the first":         {[]int64{2, 3}, nil, []int64{2, 3, 1, 4}},
		"behind a later":    {[]int64{3, 4}, []int64{1}, []int64{3, 4, 1, 2}},
		"only the last":     {[]int64{4}, nil, []int64{4, 1, 2, 3}},
		"all, out of order": {[]int64{2, 4}, []int64{1, 3}, []int64{2, 4, 1, 3}},
	} {
		for _, sink := range []string{"a sink that lives on", "a new sink", "a sink that has written before another"} {
			t.Run(name+", "+sink, func(t *testing.T) {
				t.Parallel()
				server := testredis.NewDatabase(t)
				before := open(t, server.URL())
				these := func(all []int64) (some []posthorn.Event) {
					for _, id := range all {
						some = append(some, events("a", id, id)...)
					}
					return some
				}
				write(t, before, events("a", 0, 0)) // so that the sink knows the stream
				writer := before
				if sink == "a sink that has written before another" {
					writer = open(t, server.URL())
				}
				write(t, writer, these(test.written))
				if test.last != nil {
					write(t, writer, these(test.last))
				}
				if sink == "a new sink" {
					before = open(t, server.URL())
				}
				write(t, before, events("a", 1, 4))
				want := []string{"0"}
				for _, id := range test.want {
					want = append(want, fmt.Sprint(id))
				}
				equal(t, "entries", ids(t, server.Client, "a"), want)
			})
		}
	}
}

// The end of a stream is read page by page.
func TestALateEventBeforeManyOthers(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	write(t, open(t, server.URL()), events("a", 2, 1000), events("b", 1, 1000), events("c", 1, 1000), events("d", 1, 1000))
	write(t, open(t, server.URL()), events("a", 1, 1100), events("b", 1, 1000), events("c", 1, 900), events("d", 1, 1))
	equal(t, "entries of a", ids(t, server.Client, "a"), append(append(numbers(2, 1000), "1"), numbers(1001, 1100)...))
	equal(t, "entries of b", ids(t, server.Client, "b"), numbers(1, 1000))
	equal(t, "entries of c", ids(t, server.Client, "c"), numbers(1, 1000))
	equal(t, "entries of d", ids(t, server.Client, "d"), numbers(1, 1000))
}

// Two relays write the same events to a stream at the same time. The first occurrences
// of all events are in order.
func TestTwoOwnersAtOnce(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	done := make(chan error)
	const last = 20_000
	for range 2 {
		s := open(t, server.URL())
		go func() {
			for from := int64(1); from < last; {
				to := min(from+999, last)
				err := s.Write(t.Context(), batchOf(events("a", from, to)))
				if err == nil {
					from = to + 1
				}
				if err != nil && !strings.Contains(err.Error(), "another relay writes") {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	expectAll(t, server.Client, []string{"a"}, last)
}

func TestEventIsTooLarge(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--proto-max-bulk-len", "1mb")
	s := open(t, server.URL())
	redis.LimitEntries(s, 1<<20)
	batch := batchOf(events("a", 1, 5), events("b", 6, 6))
	huge := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	batch.Events[2].Payload, batch.Events[5].Payload = huge, huge
	some := failures(t, s.Write(t.Context(), batch))
	if len(some) != 2 {
		t.Errorf("%d errors: %v", len(some), some)
	}
	for _, id := range []int64{3, 6} {
		if want := posthorn.Permanent(some[id]); some[id] == nil || fmt.Sprintf("%T", some[id]) != fmt.Sprintf("%T", want) {
			t.Errorf("event %d: %v", id, some[id])
		}
	}
	equal(t, "events without the large one", ids(t, server.Client, "a"), []string{"1", "2", "4", "5"})
	batch.Events[2].Payload = huge[:1<<20] // small enough; the sink does not check that it is JSON
	write(t, s, batch.Events[2:3])
}

// Entries that too few replicas have do not count as written, also when the write is
// repeated.
func TestReplicaIsDown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--repl-diskless-sync-delay", "0")
	replica := testredis.Start(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", server.Port))
	await.True(t, "the replica follows", func() bool {
		info, err := server.Client.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	s := open(t, server.URL()+"?timeout=1s")
	await.True(t, "the replica answers in time", func() bool { return s.Write(t.Context(), batchOf(events("a", 1, 10))) == nil })
	replica.Pause()
	for range 2 {
		err := s.Write(t.Context(), batchOf(events("a", 11, 20)))
		if err == nil || !strings.Contains(err.Error(), "0 replicas have the entries") || posthorn.Hint(err) == "" {
			t.Errorf("without the replica: %v (%s)", err, posthorn.Hint(err))
		}
	}
	equal(t, "events of the master", ids(t, server.Client, "a"), numbers(1, 20))
	write(t, open(t, server.URL()+"?replicas=0"), events("a", 21, 22))
	replica.Resume()
	await.True(t, "the replica answers again", func() bool { return s.Write(t.Context(), batchOf(events("a", 11, 22))) == nil })
	equal(t, "events of the replica", ids(t, replica.Client, "a"), numbers(1, 22))

	// WAIT only waits for what its own connection has written.
	confirms := func() bool {
		info, err := server.Client.Info(t.Context(), "commandstats").Result()
		return err == nil && strings.Contains(info, "cmdstat_xgroup")
	}
	equal(t, "confirmed", confirms(), true)
	equal(t, "groups", len(server.Client.XInfoGroups(t.Context(), "a").Val()), 0)
	server.Client.ConfigResetStat(t.Context())
	write(t, open(t, server.URL()), events("a", 11, 22))
	equal(t, "confirmed on a new connection", confirms(), true)
	equal(t, "entries", ids(t, server.Client, "a"), numbers(1, 22))
	equal(t, "groups", len(server.Client.XInfoGroups(t.Context(), "a").Val()), 0)

	toReplica := open(t, replica.URL())
	err := toReplica.Write(t.Context(), batchOf(events("a", 23, 24)))
	if err == nil || !strings.Contains(posthorn.Hint(oneOf(err)), "replica") {
		t.Errorf("write to a replica: %v (%s)", err, posthorn.Hint(err))
	}
}

// A slot of a Cluster migrates from one master to another during writes.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	servers := testredis.StartCluster(t, 3, false)
	s := open(t, servers.URL())
	client := servers.Client(t)
	streams := []string{"{x}a", "{x}b"}
	write(t, s, events(streams[0], 1, 300))
	from := servers.Owner(client, "{x}")
	to := servers.Masters[0]
	if to == from {
		to = servers.Masters[1]
	}
	slot := int64(redis.Slot("{x}"))
	must := func(cmd goredis.Cmder) {
		t.Helper()
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
	}
	id := func(s *testredis.Server) string { return s.Client.ClusterMyID(t.Context()).Val() }
	must(to.Client.Do(t.Context(), "cluster", "setslot", slot, "importing", id(from)))
	must(from.Client.Do(t.Context(), "cluster", "setslot", slot, "migrating", id(to)))
	write(t, s, events(streams[0], 301, 600), events(streams[1], 601, 900)) // the first is still on the old master, the second already on the new one
	must(from.Client.Migrate(t.Context(), "127.0.0.1", fmt.Sprint(to.Port), streams[0], 0, 10*time.Second))
	write(t, s, events(streams[0], 901, 1500), events(streams[1], 1501, 1800))
	for _, server := range servers.Masters {
		must(server.Client.Do(t.Context(), "cluster", "setslot", slot, "node", id(to)))
	}
	write(t, s, events(streams[0], 1801, 2100), events(streams[1], 2101, 2400))
	client.ReloadState(t.Context())
	await.True(t, "the slot has migrated", func() bool { return servers.Owner(client, "{x}") == to })
	var all []string
	all = append(append(append(all, numbers(1, 600)...), numbers(901, 1500)...), numbers(1801, 2100)...)
	equal(t, "events of the first stream", ids(t, client, streams[0]), all)
	all = append(append(append([]string{}, numbers(601, 900)...), numbers(1501, 1800)...), numbers(2101, 2400)...)
	equal(t, "events of the second stream", ids(t, client, streams[1]), all)
}

func TestErrorsHaveNoPassword(t *testing.T) {
	t.Parallel()
	addr := strings.TrimPrefix(testredis.NewDatabase(t).URL(), "redis://")
	addr, _, _ = strings.Cut(addr, "/")
	for _, url := range []string{
		"redis://u:secret@" + addr, "redis://u:secret@%zz", "redis-cluster://u:secret@" + addr,
		"redis-sentinel://u:secret@" + addr + "/m?sentinel_password=secret", "http://u:secret@host",
		"redis://u:secret@host?nope=1", "redis://u:secret@host/x", "redis://u:secret@a,b", "redis-sentinel://u:secret@a",
		"redis-cluster://u:secret@a/1", "redis://u:secret@host?keep=0", "redis://u:secret@host?keep_for=-1s",
		"redis://u:secret@host?timeout=x", "redis://u:secret@host?replicas=-1", "redis://u:secret@",
	} {
		s, err := redis.Open(t.Context(), url, redis.Config{Timeout: time.Second})
		if err == nil {
			err = s.Write(t.Context(), batchOf(events("a", 1, 1)))
			s.Close()
		}
		if err == nil || strings.Contains(err.Error()+posthorn.Hint(err), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestClosedSink(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := open(t, server.URL())
	write(t, s, events("a", 1, 1))
	server.Pause()
	done := make(chan error, 1)
	go func() { done <- s.Write(t.Context(), batchOf(events("a", 2, 2))) }()
	s.Close()
	if err := <-done; err == nil {
		t.Error("a write during Close returned no error")
	}
	server.Resume()
	if err := s.Write(t.Context(), batchOf(events("a", 2, 2))); !errors.Is(err, posthorn.ErrClosed) {
		t.Errorf("write to a closed sink: %v", err)
	}
}

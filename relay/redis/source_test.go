package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

const longWait = time.Minute

func source(t *testing.T, url string) *redis.Source {
	t.Helper()
	s, err := redis.OpenSource(t.Context(), url, redis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readAll reads until it has n entries, and advances the positions.
func readAll(t *testing.T, s posthorn.Source, after map[string]string, limit, n int) []posthorn.SourceEntry {
	t.Helper()
	var all []posthorn.SourceEntry
	for len(all) < n {
		entries, err := s.Read(t.Context(), after, limit, longWait)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 || len(entries) > limit {
			t.Fatalf("%d entries, of up to %d", len(entries), limit)
		}
		for _, e := range entries {
			after[e.Stream] = e.Position
		}
		all = append(all, entries...)
	}
	return all
}

func eventsOf(t *testing.T, entries []posthorn.SourceEntry, stream string) []posthorn.Event {
	t.Helper()
	var out []posthorn.Event
	for _, e := range entries {
		if e.Err != nil {
			t.Fatalf("%s at %s: %v", e.Stream, e.Position, e.Err)
		}
		if e.Stream == stream {
			out = append(out, e.Event)
		}
	}
	return out
}

// servers start the kinds of Redis that sinks write to and sources read from.
var servers = map[string]func(t *testing.T) (url string){
	"one server": func(t *testing.T) string { return testredis.NewDatabase(t).URL() },
	"prefix":     func(t *testing.T) string { return testredis.NewDatabase(t).URL() + "?prefix=shop:" },
	"cluster": func(t *testing.T) string {
		servers, prefix := testredis.SharedCluster(t)
		return servers.URL() + "?prefix=" + prefix
	},
	"a server of a cluster": func(t *testing.T) string {
		servers, prefix := testredis.SharedCluster(t)
		return servers.Masters[0].URL() + "?prefix=" + prefix
	},
}

func TestSourceReadsWhatTheSinkWrote(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t)
			s, sink := source(t, at), open(t, at)
			if streams, err := s.Streams(t.Context()); err != nil || len(streams) > 0 {
				t.Fatalf("streams of an empty server: %v, %v", streams, err)
			}
			want := map[string][]posthorn.Event{}
			var all [][]posthorn.Event
			after := map[string]string{}
			for i, stream := range []string{"a", "stream:user:events", "x{y}z", "{y}", "{}", "}{", "{{y}}", "ü 💌"} {
				want[stream] = events(stream, int64(i*1000+1), int64(i*1000+50+i*100))
				want[stream][0].Key, want[stream][0].Tags = "k", []string{"t"}
				all = append(all, want[stream])
				after[stream] = ""
			}
			write(t, sink, all...)
			n := len(slices.Concat(all...))
			entries := readAll(t, s, after, 100, n)
			for stream := range want {
				equal(t, stream, eventsOf(t, entries, stream), want[stream])
			}
			streams, err := s.Streams(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(streams)
			equal(t, "streams", streams, []string{"a", "stream:user:events", "x{y}z", "{y}", "{{y}}", "{}", "}{", "ü 💌"})
			for stream, position := range after {
				if n, _, err := s.Lag(t.Context(), stream, position); n != 0 || err != nil {
					t.Errorf("after %s stream %s has %d entries, want 0: %v", position, stream, n, err)
				}
				n, oldest, err := s.Lag(t.Context(), stream, "")
				if n != int64(len(want[stream])) || time.Since(oldest) > time.Hour || err != nil {
					t.Errorf("from its beginning stream %s has %d entries since %v: %v", stream, n, oldest, err)
				}
			}
		})
	}
}

func TestSourceWaits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one server", "cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := servers[name](t)
			s, sink := source(t, at), open(t, at)
			if entries, err := s.Read(t.Context(), map[string]string{"a": "", "b": "", "c": ""}, 10, 0); err != nil || len(entries) > 0 {
				t.Fatalf("empty streams have entries: %v, %v", entries, err)
			}
			got := make(chan []posthorn.SourceEntry, 1)
			go func() {
				entries, err := s.Read(t.Context(), map[string]string{"a": "", "b": "", "c": ""}, 10, longWait)
				if err != nil {
					t.Error(err)
				}
				got <- entries
			}()
			write(t, sink, events("b", 1, 1))
			equal(t, "events", eventsOf(t, await.Value(t, "an entry", got), "b"), events("b", 1, 1))
		})
	}
}

func TestSourceIsInterrupted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := source(t, server.URL()+"?timeout=1h") // only the context ends it
	ctx, cancel := contextOf(t)
	done := make(chan error, 1)
	go func() {
		_, err := s.Read(ctx, map[string]string{"a": ""}, 10, time.Hour)
		done <- err
	}()
	await.True(t, "the reader waits", func() bool {
		clients, err := server.Client.Info(t.Context(), "clients").Result()
		return err == nil && slices.Contains(lines(clients), "blocked_clients:1")
	})
	server.Pause() // the server does not reply any more
	cancel()
	if err := <-done; err == nil {
		t.Error("an interrupted read has no error")
	}
	server.Resume()
}

func TestForeignEntries(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, sink := source(t, server.URL()), open(t, server.URL())
	foreign := func() {
		t.Helper()
		if err := server.Client.XAdd(t.Context(), &goredis.XAddArgs{Stream: "a", Values: []string{"id", "7", "temperature", "20"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	foreign()
	write(t, sink, events("a", 1, 2))
	foreign()
	write(t, sink, events("a", 2, 3)) // the sink finds 2 before the foreign entry
	write(t, open(t, server.URL()), events("a", 3, 4))
	var got []string
	for _, e := range readAll(t, s, map[string]string{"a": ""}, 10, 6) {
		if e.Err != nil {
			got = append(got, "foreign")
		} else {
			got = append(got, fmt.Sprint(e.Event.ID))
		}
	}
	equal(t, "entries", got, []string{"foreign", "1", "2", "foreign", "3", "4"})
}

func TestSourceReportsTrimmedEntries(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, sink := source(t, server.URL()), open(t, server.URL())
	write(t, sink, events("a", 1, 10))
	after := map[string]string{"a": ""}
	readAll(t, s, after, 3, 3) // up to 3
	trim := func(keep int64) {
		t.Helper()
		if err := server.Client.XTrimMaxLen(t.Context(), "a", keep).Err(); err != nil {
			t.Fatal(err)
		}
	}
	trim(8) // 3 is the first
	equal(t, "events while the entry at the position exists", eventsOf(t, readAll(t, s, after, 1, 1), "a"), events("a", 4, 4))
	trim(5) // 6 is the first
	entries := readAll(t, s, after, 3, 3)
	if !errors.Is(entries[0].Err, posthorn.ErrTrimmed) {
		t.Errorf("the first entry does not report the trimming: %+v", entries[0])
	}
	equal(t, "events after the trimmed ones", eventsOf(t, entries[1:], "a"), events("a", 6, 7))
	if n, _, err := s.Lag(t.Context(), "a", entries[2].Position); n != 3 || err != nil {
		t.Errorf("Behind counts %d entries, want 3: %v", n, err)
	}
	after["a"] = entries[0].Position
	equal(t, "events after the position of the error", eventsOf(t, readAll(t, s, after, 10, 5), "a"), events("a", 6, 10))
	write(t, sink, events("a", 11, 12))
	equal(t, "events at the end", eventsOf(t, readAll(t, s, after, 10, 2), "a"), events("a", 11, 12))
}

// A server that came back without data has new streams. A sink that lives on adds them
// to the set of streams, so that an import that starts then finds them.
func TestSourceFindsStreamsAfterTheServerCameBackEmpty(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one server", "prefix"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			at := server.URL()
			if name == "prefix" {
				at += "?prefix=shop:"
			}
			sink := open(t, at)
			write(t, sink, events("a", 1, 5), events("b", 6, 6))
			empty(t, server)
			write(t, sink, events("a", 7, 8))
			s := source(t, at)
			streams, err := s.Streams(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "streams", streams, []string{"a"})
			equal(t, "events", eventsOf(t, readAll(t, s, map[string]string{"a": ""}, 10, 2), "a"), events("a", 7, 8))
		})
	}
}

func empty(t *testing.T, server *testredis.Database) {
	t.Helper()
	if err := server.Client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// Entries that were read before they were removed are not lost.
func TestReadEntriesAreNotReportedAsTrimmed(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(ctx context.Context, server *testredis.Database, read []posthorn.SourceEntry) error{
		"the entry at the position is trimmed": func(ctx context.Context, server *testredis.Database, _ []posthorn.SourceEntry) error {
			return server.Client.XTrimMaxLen(ctx, "a", 5).Err()
		},
		"the entry at the position is deleted": func(ctx context.Context, server *testredis.Database, read []posthorn.SourceEntry) error {
			id, _, _ := strings.Cut(read[4].Position, "/")
			return server.Client.XDel(ctx, "a", id).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			s, sink := source(t, server.URL()), open(t, server.URL())
			write(t, sink, events("a", 1, 5))
			after := map[string]string{"a": ""}
			read := readAll(t, s, after, 5, 5)
			await.True(t, "the next id does not follow at once", func() bool {
				now, err := server.Client.Time(t.Context()).Result()
				return err == nil && fmt.Sprint(now.UnixMilli()) > strings.Split(read[4].Position, "-")[0]
			})
			write(t, sink, events("a", 6, 10))
			if err := remove(t.Context(), server, read); err != nil {
				t.Fatal(err)
			}
			equal(t, "events", eventsOf(t, readAll(t, s, after, 2, 2), "a"), events("a", 6, 7))
			if n, _, err := s.Lag(t.Context(), "a", after["a"]); n != 3 || err != nil {
				t.Errorf("lag %d, want 3: %v", n, err)
			}
			equal(t, "events", eventsOf(t, readAll(t, s, after, 10, 3), "a"), events("a", 8, 10))
		})
	}
}

// A server that came back without data has a new stream. Whether the old one had more
// than was read is not known, so the source says so and does not claim it.
func TestSourceOfANewStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read, last int64 // the event that was read last, and the last of the new stream
	}{"a shorter one": {5, 7}, "a longer one": {2, 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			s, sink := source(t, server.URL()), open(t, server.URL())
			write(t, sink, events("a", 1, test.read))
			after := map[string]string{"a": ""}
			readAll(t, s, after, 10, int(test.read))
			empty(t, server)
			first, n := test.read+1, int(test.last-test.read)
			write(t, sink, events("a", first, test.last))
			if lag, _, err := s.Lag(t.Context(), "a", after["a"]); lag != int64(n) || err != nil {
				t.Errorf("lag %d, want %d: %v", lag, n, err)
			}
			entries := readAll(t, s, after, 20, n+1)
			if err := entries[0].Err; err == nil || errors.Is(err, posthorn.ErrTrimmed) || !strings.Contains(err.Error(), "begun it anew") {
				t.Errorf("the first entry says: %v", err)
			}
			equal(t, "events", eventsOf(t, entries[1:], "a"), events("a", first, test.last))
			if lag, _, err := s.Lag(t.Context(), "a", entries[0].Position); lag != int64(n) || err != nil {
				t.Errorf("after the error lag %d, want %d: %v", lag, n, err)
			}
			after["a"] = entries[0].Position
			equal(t, "events, once more", eventsOf(t, readAll(t, s, after, 20, n), "a"), events("a", first, test.last))
			write(t, sink, events("a", test.last+1, test.last+1))
			equal(t, "the next event", eventsOf(t, readAll(t, s, after, 20, 1), "a"), events("a", test.last+1, test.last+1))
		})
	}
}

func TestGroupsAreRegistered(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, sink := source(t, server.URL()), open(t, server.URL())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	groups := func() map[string]string {
		t.Helper()
		all, err := server.Client.XInfoGroups(t.Context(), "a").Result()
		must(err)
		out := map[string]string{}
		for _, g := range all {
			out[g.Name] = g.LastDeliveredID
		}
		return out
	}
	must(s.SavePosition(t.Context(), "billing", "a", ""))
	equal(t, "before the first event", groups(), map[string]string{"billing": "0-0"})
	write(t, sink, events("a", 1, 2))
	position := readAll(t, s, map[string]string{"a": ""}, 2, 2)[1].Position
	end, _, _ := strings.Cut(position, "/")
	must(s.SavePosition(t.Context(), "mail", "a", position))
	equal(t, "two groups", groups(), map[string]string{"billing": "0-0", "mail": end})
	must(s.SavePosition(t.Context(), "billing", "a", position))
	equal(t, "both have passed", groups(), map[string]string{"billing": end, "mail": end})
}

func TestSlots(t *testing.T) {
	t.Parallel()
	servers, _ := testredis.SharedCluster(t)
	client := servers.Client(t)
	for _, key := range []string{"", "a", "foo{bar}", "{}", "}{", "{{x}}", "{x}{y}", "a{b", "a}b", "ü{💌}", "stream:user:events"} {
		want, err := client.ClusterKeySlot(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, key, int64(redis.Slot(key)), want)
	}
}

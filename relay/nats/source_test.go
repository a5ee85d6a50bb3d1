package nats_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
)

// openSource opens a source, and closes it when the test ends.
func openSource(t *testing.T, url string) *nats.Source {
	t.Helper()
	s, err := nats.OpenSource(t.Context(), url, "shop", nats.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// read reads n entries after positions, and advances the positions.
func read(t *testing.T, s posthorn.Source, after map[string]string, n int) (all []posthorn.SourceEntry) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d entries", n), func() bool {
		entries, err := s.Read(t.Context(), after, min(700, n-len(all)), time.Second)
		if err != nil {
			t.Logf("read: %v", err)
		}
		for _, e := range entries {
			after[e.Stream] = e.Position
		}
		all = append(all, entries...)
		return len(all) == n
	})
	return all
}

// expectEnd checks that there are no more entries.
func expectEnd(t *testing.T, s posthorn.Source, after map[string]string) {
	t.Helper()
	if entries, err := s.Read(t.Context(), after, 10, 0); err != nil || len(entries) > 0 {
		t.Errorf("read %v, %v, want nothing", entries, err)
	}
}

func TestSourceReadsEvents(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	s := open(t, server.URL, nats.Config{})
	full := posthorn.Event{
		ID: 7, Stream: "stream:user:events", Type: "user.created", Key: `ü "7" %41+1`, Tags: []string{"a b", `"c"`, "ö%"},
		Payload: json.RawMessage(`{"n": 1.0, "t": "é"}`), Metadata: json.RawMessage(`{"traceparent":  "00-ab-cd-01"}`), PublishedAt: at,
	}
	want := append(events("orders", 1, 3000), full)
	write(t, s, want...)
	source := openSource(t, server.URL)
	streams, err := source.Streams(t.Context())
	if diff := cmp.Diff([]string{"orders", "stream:user:events"}, streams); err != nil || diff != "" {
		t.Errorf("streams: %v %s", err, diff)
	}
	after := map[string]string{"orders": "", "stream:user:events": "", "later": ""}
	byStream := map[string][]posthorn.Event{}
	for _, e := range read(t, source, after, len(want)) {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		byStream[e.Stream] = append(byStream[e.Stream], e.Event)
	}
	if diff := cmp.Diff(append(byStream["orders"], byStream["stream:user:events"]...), want); diff != "" {
		t.Error(diff)
	}
	expectEnd(t, source, after)
	for position, want := range map[string]int64{"": 3000, "2990": 10, "3000": 0} {
		if n, _, err := source.Lag(t.Context(), "orders", position); n != want || err != nil {
			t.Errorf("after %q there are %d entries, %v; want %d", position, n, err, want)
		}
	}
	if n, _, err := source.Lag(t.Context(), "later", ""); n != 0 || err != nil {
		t.Errorf("a missing stream has %d entries, %v", n, err)
	}
	// The source reads new events, also those of a stream that was created meanwhile.
	write(t, s, append(events("later", 1, 1), events("orders", 3001, 1)...)...)
	if got := read(t, source, after, 2); after["later"] != "1" || after["orders"] != "3001" {
		t.Errorf("got %v", got)
	}
	// Another source continues at a position, as after a restart.
	again := read(t, openSource(t, server.URL), map[string]string{"orders": "2990"}, 11)
	if again[0].Event.ID != 2991 || again[10].Event.ID != 3001 {
		t.Errorf("read events %d to %d after 2990", again[0].Event.ID, again[10].Event.ID)
	}
}

func TestReadingLeavesNoConsumers(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 10)...)
	source := openSource(t, server.URL)
	read(t, source, map[string]string{"orders": ""}, 10)
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	_, js := testnats.Connect(t, server)
	await.True(t, "no consumer is left", func() bool {
		stream, err := js.Stream(t.Context(), "posthorn+shop+orders")
		return err == nil && stream.CachedInfo().State.Consumers == 0
	})
}

func TestForeignMessagesAreEntriesWithErrors(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 1)...)
	_, js := testnats.Connect(t, server)
	if _, err := js.Publish(t.Context(), "posthorn.shop.orders.hello", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := read(t, openSource(t, server.URL), map[string]string{"orders": ""}, 2)
	if got[0].Err != nil || got[1].Err == nil || got[1].Position != "2" {
		t.Errorf("got %+v", got)
	}
}

func TestRecreatedStreamIsRefused(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 3)...)
	_, err := openSource(t, server.URL).Read(t.Context(), map[string]string{"orders": "5"}, 1, time.Second)
	if posthorn.Hint(err) == "" {
		t.Errorf("read after the end: %v", err)
	}
}

func TestReadingContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	s := open(t, server.URL, nats.Config{})
	persist(t, s, events("orders", 1, 5000)...)
	source := openSource(t, server.URL)
	after := map[string]string{"orders": ""}
	got := read(t, source, after, 1000)
	server.Kill()
	server.Restart()
	got = append(got, read(t, source, after, 4000)...)
	persist(t, s, events("orders", 5001, 10)...)
	got = append(got, read(t, source, after, 10)...)
	for i, e := range got {
		if e.Event.ID != int64(i+1) {
			t.Fatalf("entry %d is event %d", i, e.Event.ID)
		}
	}
}

func TestPositionsSurviveARestart(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 3)...)
	source := openSource(t, server.URL)
	for _, position := range []string{"", "2"} {
		if err := source.SavePosition(t.Context(), "billing 1", "orders", position); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	server.Restart()
	_, js := testnats.Connect(t, server)
	bucket, err := js.KeyValue(t.Context(), "posthorn_groups")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := bucket.Get(t.Context(), "shop.orders.billing=201")
	if err != nil || string(entry.Value()) != "2" {
		t.Fatalf("stored position: %v %v", entry, err)
	}
}

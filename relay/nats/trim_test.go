package nats_test

import (
	"context"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
)

var _ posthorn.Trimmer = (*nats.Sink)(nil)

// firstOf returns the sequence of the first message of a stream.
func firstOf(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.FirstSeq
}

// archived is the callback of an archive that lacks some events.
func archived(missing ...int64) func(context.Context, []int64) ([]int64, error) {
	return func(_ context.Context, ids []int64) (needed []int64, _ error) {
		for _, id := range ids {
			if slices.Contains(missing, id) {
				needed = append(needed, id)
			}
		}
		return needed, nil
	}
}

// Seed 003.14-27: trimming never removes messages that the archive or a registered
// consumer needs.
func TestTrimmingStopsAtWhatIsNeeded(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL+"?keep=100", nats.Config{})
	write(t, s, events("orders", 1, 12000)...)
	const stream = "posthorn+shop+orders"
	source := openSource(t, server.URL)
	trim := func(first uint64, missing ...int64) {
		t.Helper()
		if err := s.Trim(t.Context(), "shop", "orders", archived(missing...)); err != nil {
			t.Fatal(err)
		}
		if got := firstOf(t, js, stream); got != first {
			t.Errorf("the stream begins with message %d, want %d", got, first)
		}
	}
	keep := func(group, passed string) {
		t.Helper()
		if err := source.SavePosition(t.Context(), group, "orders", passed); err != nil {
			t.Fatal(err)
		}
	}
	keep("billing", "")
	keep("mail", "7000")
	trim(1)
	keep("billing", "5")
	trim(6)
	keep("billing", "5600")
	trim(5601)
	consumer, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "other", AckPolicy: jetstream.AckAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	keep("billing", "11000")
	trim(5601)
	fetched, err := consumer.Fetch(10)
	if err != nil {
		t.Fatal(err)
	}
	for m := range fetched.Messages() {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trim(5611)
	if err := js.DeleteConsumer(t.Context(), stream, "other"); err != nil {
		t.Fatal(err)
	}
	trim(6000, 6500, 6000)
	trim(7001)
	bucket, err := js.KeyValue(t.Context(), "posthorn_groups")
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Purge(t.Context(), "shop.orders.mail"); err != nil { // as an operator removes an import
		t.Fatal(err)
	}
	trim(11001)
	keep("billing", "12000")
	trim(11901) // the newest hundred stay
	// Writing and reading continue.
	write(t, s, events("orders", 12001, 10)...)
	got := read(t, source, map[string]string{"orders": ""}, 110)
	if got[0].Event.ID != 11901 || got[109].Event.ID != 12010 {
		t.Errorf("read %d to %d", got[0].Event.ID, got[109].Event.ID)
	}
}

func TestTrimmingKeepsYoungMessages(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL+"?keep_for=1h", nats.Config{})
	young := open(t, server.URL+"?keep_for=1ns", nats.Config{})
	write(t, s, events("orders", 1, 10)...)
	for _, step := range []struct {
		sink  *nats.Sink
		first uint64
	}{{s, 1}, {young, 11}} {
		if err := step.sink.Trim(t.Context(), "shop", "orders", archived()); err != nil {
			t.Fatal(err)
		}
		if got := firstOf(t, js, "posthorn+shop+orders"); got != step.first {
			t.Errorf("the stream begins with message %d, want %d", got, step.first)
		}
	}
	// An empty stream continues at its last sequence.
	fresh := open(t, server.URL, nats.Config{})
	write(t, fresh, events("orders", 11, 5)...)
	wantOrder(t, ids(t, js, "posthorn+shop+orders"), 11, 5)
	if err := young.Trim(t.Context(), "shop", "never", archived()); err != nil {
		t.Error(err)
	}
}

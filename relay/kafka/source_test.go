package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/relaytest"
)

func (w *world) source(t *testing.T) *kafka.Source {
	t.Helper()
	s, err := kafka.OpenSource(t.Context(), w.url(""), relaytest.Namespace, kafka.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readAll reads a number of entries from a position on, a few at a time, and returns the last position.
func readAll(t *testing.T, s *kafka.Source, stream, after string, n int) (all []posthorn.SourceEntry, position string) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d entries are read", n), func() bool {
		entries, err := s.Read(t.Context(), map[string]string{stream: after}, 7, time.Second)
		if err != nil {
			t.Fatalf("%v (%s)", err, posthorn.Hint(err))
		}
		for _, e := range entries {
			all, after = append(all, e), e.Position
		}
		return len(all) >= n
	})
	return all, after
}

func idsOf(entries []posthorn.SourceEntry) (ids []int64) {
	for _, e := range entries {
		ids = append(ids, e.Event.ID)
	}
	return ids
}

func wantLag(t *testing.T, s *kafka.Source, position string, want int64) {
	t.Helper()
	n, oldest, err := s.Lag(t.Context(), "orders", position)
	if err != nil || n != want || oldest.IsZero() == (want > 0) {
		t.Errorf("lag %d since %v, %v; want %d", n, oldest, err, want)
	}
}

// A source reads each committed event of all partitions once, those of a key in order, from
// any position on. Marks of transactions and aborted records count for nothing.
func TestSourceReadsPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeTopic(t, "orders", 3, nil)
	sink, all := open(t, w.url(""), kafka.Config{}), relaytest.Events("orders", 1, 90)
	want := map[string][]int64{}
	for i := range all {
		all[i].Key = fmt.Sprint("key", i%7)
		want[all[i].Key] = append(want[all[i].Key], all[i].ID)
	}
	for from := 0; from < 90; from += 30 {
		if err := sink.Write(t.Context(), relaytest.Batch(all[from:from+30]...)); err != nil {
			t.Fatal(err)
		}
		w.abort(t, w.prefix+"."+relaytest.Namespace+".orders")
	}
	s := w.source(t)
	wantLag(t, s, "", 90)
	entries, position := readAll(t, s, "orders", "", 90)
	got := map[string][]int64{}
	for _, e := range entries {
		got[e.Event.Key] = append(got[e.Event.Key], e.Event.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids by key (-want +got):\n%s", diff)
	}
	wantLag(t, s, position, 0)
	middle := entries[40].Position
	wantLag(t, s, middle, 49)
	rest, _ := readAll(t, w.source(t), "orders", middle, 49) // as after a crash
	left := idsOf(entries[41:])
	slices.Sort(left)
	more := idsOf(rest)
	slices.Sort(more)
	if diff := cmp.Diff(left, more); diff != "" {
		t.Errorf("ids behind a position (-want +got):\n%s", diff)
	}
	again, _ := readAll(t, s, "orders", middle, 49) // the same source goes back
	if len(again) != 49 {
		t.Errorf("%d entries behind a position, want 49", len(again))
	}
	if streams, err := s.Streams(t.Context()); err != nil || !slices.Equal(streams, []string{"orders"}) {
		t.Errorf("streams %v, %v", streams, err)
	}
}

// A topic whose name is shortened has its stream.
func TestSourceReadsALongName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := ""
	for len(name) < 250 {
		name += "ü"
	}
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(relaytest.Event(name, 1))); err != nil {
		t.Fatal(err)
	}
	s := w.source(t)
	for range 2 {
		if streams, err := s.Streams(t.Context()); err != nil || !slices.Equal(streams, []string{name}) {
			t.Errorf("streams %v, %v", streams, err)
		}
	}
	readAll(t, s, name, "", 1)
}

// Records that Kafka has removed are told, once, if they were not read.
func TestSourceTellsOfRemovedRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sink, topic := open(t, w.url(""), kafka.Config{}), w.prefix+"."+relaytest.Namespace+".orders"
	write := func(from, to int64) {
		t.Helper()
		if err := sink.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", from, to)...)); err != nil {
			t.Fatal(err)
		}
	}
	write(1, 10)
	w.Trim(t, topic, 5)
	entries, position := readAll(t, w.source(t), "orders", "", 5)
	if got := idsOf(entries); !slices.Equal(got, []int64{6, 7, 8, 9, 10}) {
		t.Errorf("ids %v, want 6 to 10: what was removed before the first read is no loss", got)
	}
	write(11, 20)
	w.Trim(t, topic, 2)
	entries, _ = readAll(t, w.source(t), "orders", position, 3)
	if !errors.Is(entries[0].Err, posthorn.ErrTrimmed) || entries[1].Event.ID != 19 || entries[2].Event.ID != 20 {
		t.Errorf("entries %+v, want a loss, 19 and 20", entries)
	}
	// Nothing was lost that has been read.
	s := w.source(t)
	_, position = readAll(t, s, "orders", "", 2)
	write(21, 30)
	w.Trim(t, topic, 10)
	entries, _ = readAll(t, w.source(t), "orders", position, 10)
	if entries[0].Err != nil || entries[0].Event.ID != 21 {
		t.Errorf("the first entry is %+v, want event 21", entries[0])
	}
}

// A topic that was deleted and made again is not read at the position of the old one.
func TestSourceRefusesAnotherTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	topic := w.prefix + "." + relaytest.Namespace + ".orders"
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 3)...)); err != nil {
		t.Fatal(err)
	}
	s := w.source(t)
	_, position := readAll(t, s, "orders", "", 3)
	w.deleteTopic(t, topic)
	refused := func() bool {
		_, err := s.Read(t.Context(), map[string]string{"orders": position}, 10, 100*time.Millisecond)
		return errors.Is(err, posthorn.ErrRefused) && posthorn.Hint(err) != ""
	}
	await.True(t, "the source refuses a topic that is not there", refused)
	await.True(t, "the events are written again", func() bool {
		return open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 30)...)) == nil
	})
	await.True(t, "the source refuses the new topic", refused)
	if _, _, err := s.Lag(t.Context(), "orders", position); !errors.Is(err, posthorn.ErrRefused) {
		t.Errorf("the lag of another topic: %v", err)
	}
}

func (w *world) deleteTopic(t *testing.T, topic string) {
	t.Helper()
	client := w.Client(t)
	defer client.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, rt), []string{topic}, 10_000
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("delete topic %s: %v %+v", topic, err, resp)
	}
	await.True(t, "the topic is gone", func() bool { return partitionsOf(t, client, topic) == 0 })
}

// Events that no relay wrote have an error, and the source goes on.
func TestSourcePassesForeignRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sink := open(t, w.url(""), kafka.Config{})
	if err := sink.Write(t.Context(), relaytest.Batch(relaytest.Event("orders", 1))); err != nil {
		t.Fatal(err)
	}
	client := w.Client(t)
	defer client.Close()
	record := &kgo.Record{Topic: w.prefix + "." + relaytest.Namespace + ".orders", Value: []byte("hello")}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Write(t.Context(), relaytest.Batch(relaytest.Event("orders", 2))); err != nil {
		t.Fatal(err)
	}
	entries, _ := readAll(t, w.source(t), "orders", "", 3)
	if entries[0].Event.ID != 1 || entries[1].Err == nil || errors.Is(entries[1].Err, posthorn.ErrTrimmed) || entries[2].Event.ID != 2 {
		t.Errorf("entries %+v", entries)
	}
}

package kafka_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testkafka"
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

// Kafka has lost records that were read, and has others at their offsets. The source refuses that from then on, and not
// only while the topic ends before its position. A new leader alone is no loss, nor are its aborted records.
func TestSourceRefusesATopicThatHasLostRecords(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testkafka.Start(t))
	topic := w.prefix + "." + relaytest.Namespace + ".orders"
	write := func(from, to int64) {
		t.Helper()
		batch := relaytest.Batch(relaytest.Events("orders", from, to)...)
		await.True(t, "the events are written", func() bool { return open(t, w.url(""), kafka.Config{}).Write(t.Context(), batch) == nil })
	}
	write(1, 5)
	s := w.source(t)
	_, position := readAll(t, s, "orders", "", 5)
	w.Stop()
	w.Restart(t)
	write(6, 10)
	entries, position := readAll(t, w.source(t), "orders", position, 5)
	if ids := idsOf(entries); !slices.Equal(ids, []int64{6, 7, 8, 9, 10}) {
		t.Errorf("behind a new leader the events %v, want 6 to 10", ids)
	}
	w.Stop()
	w.Restart(t)
	w.abort(t, topic)
	s = w.source(t)
	await.True(t, "the aborted records are passed", func() bool {
		n, _, err := s.Lag(t.Context(), "orders", position)
		return err == nil && n == 0
	})
	for range 2 { // the second call asks behind them
		if entries, err := s.Read(t.Context(), map[string]string{"orders": position}, 10, time.Second); err != nil || len(entries) > 0 {
			t.Errorf("behind the last event: %d entries, %v (%s)", len(entries), err, posthorn.Hint(err))
		}
	}

	w.Stop()
	w.Forget(t, topic+"-0", 6)
	w.Restart(t)
	write(11, 30)
	for _, s := range []*kafka.Source{s, w.source(t)} {
		await.True(t, "the source refuses the topic", func() bool {
			entries, err := s.Read(t.Context(), map[string]string{"orders": position}, 10, time.Second)
			if len(entries) > 0 {
				t.Fatalf("it goes on with event %d", entries[0].Event.ID)
			}
			return errors.Is(err, posthorn.ErrRefused) && strings.Contains(err.Error(), "has lost records") && posthorn.Hint(err) != ""
		})
	}
	entries, _ = readAll(t, w.source(t), "orders", "", 25)
	if ids := idsOf(entries); ids[4] != 5 || ids[5] != 11 {
		t.Errorf("from the beginning the events %v, want 1 to 5 and 11 to 30", ids)
	}
	old := regexp.MustCompile(`:[0-9]+$`).ReplaceAllString(position, "")
	if entries, _ = readAll(t, w.source(t), "orders", old, 1); entries[0].Err != nil {
		t.Errorf("a position without an epoch: %v", entries[0].Err)
	}
}

// A position has the begin of each partition, so that what is removed from one that was not read by then is told.
func TestSourceTellsOfRemovedRecordsOfAPartitionThatWasNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeTopic(t, "orders", 2, nil)
	topic := w.prefix + "." + relaytest.Namespace + ".orders"
	client := w.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	produce := func(partition int32, n int) {
		t.Helper()
		for range n {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte("hello")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(0, 1)
	_, position := readAll(t, w.source(t), "orders", "", 1)
	produce(1, 3)
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic, rt.Partitions = topic, []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 1, Offset: 2}}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("remove records: %v %+v", err, resp)
	}
	entries, after := readAll(t, w.source(t), "orders", position, 1)
	if !errors.Is(entries[0].Err, posthorn.ErrTrimmed) {
		t.Fatalf("the first entry is %+v, want a loss", entries[0])
	}
	if entries, _ = readAll(t, w.source(t), "orders", after, 1); len(entries) != 1 || errors.Is(entries[0].Err, posthorn.ErrTrimmed) {
		t.Errorf("behind the loss %+v, want the last record", entries)
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

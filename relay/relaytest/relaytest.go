// Package relaytest tests sinks of brokers. It has the scenarios that each [posthorn.Sink]
// must pass, whatever its broker is: [TestSink] those for which the server just runs, and
// [TestServer] those in which it is killed, or hangs. The sinks of this module pass them.
// The package starts no server.
package relaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/worker"
)

// Sink is the sink that a scenario tests.
type Sink interface {
	posthorn.Sink
	posthorn.SinkReader
	io.Closer
}

// Broker is an empty broker.
type Broker interface {
	// Open opens a sink, as a process of one and the same relay does.
	Open(t *testing.T) Sink
	// Read returns the entries of a stream in the order of the broker, read by other means
	// than a sink. Positions are not compared.
	Read(t *testing.T, namespace, stream string) []posthorn.SourceEntry
}

// Forgetful is a broker that drops repeats by itself, as long as it remembers them.
type Forgetful interface {
	Broker
	// Forget returns when the broker does not remember the events of a stream any more.
	Forget(t *testing.T, namespace, stream string)
}

// Server is a broker whose server can be killed and paused. It loses nothing that it has
// acknowledged.
type Server interface {
	Broker
	Kill()
	Restart(t *testing.T)
	// Pause suspends the server; its connections stay open and hang.
	Pause()
	Resume()
}

// The namespace and the log of all scenarios, and another log.
const (
	Namespace = "shop"
	Log       = "01234567-89ab-cdef-0123-456789abcdef"
	otherLog  = "fedcba98-7654-3210-fedc-ba9876543210"
)

// TestSink tests a sink. newBroker is called for each scenario; scenarios run side by side.
func TestSink(t *testing.T, newBroker func(t *testing.T) Broker) {
	for name, scenario := range map[string]func(*testing.T, Broker){
		"each stream is in its order":                     testOrder,
		"stored events are not written again":             testRepeats,
		"an event that was committed late is written":     testLate,
		"a stream ends with an event of a late commit":    testLateAtTheEnd,
		"a sink that comes back late writes nothing":      testFencing,
		"another event under a known id is refused":       testOtherEvents,
		"the broker is ahead of a restored log":           testAhead,
		"a log that was restored goes on behind":          testBehind,
		"a new lead compares each event":                  testNewLead,
		"another log does not write into the same stream": testOtherLog,
		"events are kept to the byte":                     testForm,
		"large values":                                    testLarge,
		"names that brokers do not allow":                 testNames,
		"entries are read back, the last one first":       testReadBack,
		"a call ends with its context":                    testContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, newBroker(t))
		})
	}
}

// Event returns the event of a stream with an id.
func Event(stream string, id int64) posthorn.Event {
	return posthorn.Event{
		ID: id, Stream: stream, Type: "order.placed", Key: "k",
		Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, id)), Metadata: json.RawMessage(`{}`),
		PublishedAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	}
}

// Events returns the events of a stream with the ids from to to.
func Events(stream string, from, to int64) (all []posthorn.Event) {
	for id := from; id <= to; id++ {
		all = append(all, Event(stream, id))
	}
	return all
}

// restored are events that a restored log has published under ids that it had given out.
func restored(from, to int64) []posthorn.Event {
	all := Events("orders", from, to)
	for i := range all {
		all[i].PublishedAt = all[i].PublishedAt.Add(time.Hour)
	}
	return all
}

// Batch returns a batch of events.
func Batch(events ...posthorn.Event) posthorn.SinkBatch {
	return posthorn.SinkBatch{Log: Log, Namespace: Namespace, Events: events}
}

func batchUpTo(last int64, events ...posthorn.Event) posthorn.SinkBatch {
	b := Batch(events...)
	b.LastID = func(context.Context) (int64, error) { return last, nil }
	return b
}

func open(t *testing.T, b Broker) Sink {
	t.Helper()
	s := b.Open(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t *testing.T, s Sink, batch posthorn.SinkBatch) {
	t.Helper()
	if err := s.Write(t.Context(), batch); err != nil {
		t.Fatalf("write: %v (%s)", err, posthorn.Hint(err))
	}
}

// persist writes again until the sink has written all, as a relay does.
func persist(t *testing.T, s Sink, batch posthorn.SinkBatch) {
	t.Helper()
	if err := retry(t.Context(), s, batch); err != nil {
		t.Fatalf("write: %v (%s)", err, posthorn.Hint(err))
	}
}

// refusals are the errors by event of a write. If all events have one error, each has it.
func refusals(t *testing.T, err error, batch posthorn.SinkBatch) posthorn.EventErrors {
	t.Helper()
	some := posthorn.EventErrors{}
	if err == nil || errors.As(err, &some) {
		return some
	}
	for _, e := range batch.Events {
		some[e.ID] = err
	}
	return some
}

func isPermanent(err error) bool {
	_, permanent := errors.AsType[*worker.PermanentError](err)
	return permanent
}

// wantIDs compares the ids of a stream in the order of the broker.
func wantIDs(t *testing.T, b Broker, stream string, want []int64) {
	t.Helper()
	got := []int64{}
	for _, e := range b.Read(t, Namespace, stream) {
		got = append(got, e.Event.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids in stream %q (-want +got):\n%s", stream, diff)
	}
}

func upTo(from, to int64) []int64 {
	all := []int64{}
	for id := from; id <= to; id++ {
		all = append(all, id)
	}
	return all
}

func testOrder(t *testing.T, b Broker) {
	s := open(t, b)
	var mixed []posthorn.Event
	for id := int64(1); id <= 1500; id++ {
		mixed = append(mixed, Event([]string{"orders", "bills", "orders"}[id%3], id))
	}
	want := map[string][]int64{}
	for _, e := range mixed {
		want[e.Stream] = append(want[e.Stream], e.ID)
	}
	write(t, s, Batch(mixed[:1000]...))
	write(t, s, Batch(mixed[1000:1001]...))
	write(t, s, Batch(mixed[1001:]...))
	for stream, ids := range want {
		wantIDs(t, b, stream, ids)
	}
	write(t, s, Batch())
}

func testRepeats(t *testing.T, b Broker) {
	s := open(t, b)
	write(t, s, Batch(Events("orders", 1, 60)...))
	write(t, s, Batch(Events("orders", 1, 60)...))
	write(t, open(t, b), Batch(Events("orders", 1, 60)...)) // as after a crash
	write(t, open(t, b), Batch(Events("orders", 41, 80)...))
	write(t, open(t, b), Batch(Events("orders", 21, 50)...))
	last := open(t, b)
	write(t, last, Batch(Events("orders", 70, 99)...))
	write(t, last, Batch(Events("orders", 81, 110)...))
	wantIDs(t, b, "orders", upTo(1, 110))
}

// A relay reads event 3 while the transaction of event 2 is open, and writes it. Then the
// database crashes, and the relay reads both.
func testLate(t *testing.T, b Broker) {
	write(t, open(t, b), Batch(Event("orders", 1), Event("orders", 3)))
	s := open(t, b)
	write(t, s, Batch(Events("orders", 1, 4)...))
	wantIDs(t, b, "orders", []int64{1, 3, 2, 4})
	// Without a crash it is in a later batch.
	write(t, s, Batch(Event("orders", 7)))
	write(t, s, Batch(Event("orders", 6), Event("orders", 8)))
	wantIDs(t, b, "orders", []int64{1, 3, 2, 4, 7, 6, 8})
}

// A stream ends with events that were committed late, as many as a page that sinks read
// back, or fewer. After a crash both batches come again. That the stream has all of the
// late one does not mean that it has nothing of the other.
func testLateAtTheEnd(t *testing.T, b Broker) {
	for stream, n := range map[string]int64{"one": 1, "sixteen": 16, "many": 64} {
		before, late := Events(stream, 101, 300), Events(stream, 1, n)
		first := open(t, b)
		write(t, first, Batch(before...))
		write(t, first, Batch(late...))
		if b, remembers := b.(Forgetful); remembers {
			b.Forget(t, Namespace, stream)
		}
		second := open(t, b)
		write(t, second, Batch(late...))
		write(t, second, Batch(before[:10]...))
		wantIDs(t, b, stream, append(upTo(101, 300), upTo(1, n)...))
	}
}

// The first sink has lost the lead without noticing. The events that it had still to write
// were written by the next one.
func testFencing(t *testing.T, b Broker) {
	first, second := open(t, b), open(t, b)
	write(t, first, Batch(Events("orders", 1, 10)...))
	write(t, second, Batch(Events("orders", 11, 30)...))
	_ = first.Write(t.Context(), Batch(Events("orders", 11, 20)...)) // may fail, and must not harm
	wantIDs(t, b, "orders", upTo(1, 30))
	// With the lead again it goes on.
	persist(t, first, Batch(Events("orders", 31, 40)...))
	persist(t, second, Batch(Events("orders", 41, 50)...))
	wantIDs(t, b, "orders", upTo(1, 50))
}

func testOtherEvents(t *testing.T, b Broker) {
	before := open(t, b)
	write(t, before, Batch(Events("orders", 1, 10)...))
	for name, s := range map[string]Sink{"the sink that wrote them": before, "a new sink": open(t, b)} {
		batch := batchUpTo(1000, restored(6, 9)...)
		batch.Lead = 2 // since the database was restored
		some := refusals(t, s.Write(t.Context(), batch), batch)
		for id := int64(6); id <= 9; id++ {
			if !isPermanent(some[id]) {
				t.Errorf("%s: event %d is not refused for good: %v", name, id, some[id])
			}
		}
	}
	wantIDs(t, b, "orders", upTo(1, 10))
}

func testAhead(t *testing.T, b Broker) {
	write(t, open(t, b), Batch(Events("orders", 1, 10)...))
	s := open(t, b)
	batch := batchUpTo(8, restored(6, 8)...)
	some := refusals(t, s.Write(t.Context(), batch), batch)
	for id := int64(6); id <= 8; id++ {
		if some[id] == nil || isPermanent(some[id]) || posthorn.Hint(some[id]) == "" {
			t.Errorf("event %d: %v (%s)", id, some[id], posthorn.Hint(some[id]))
		}
	}
	wantIDs(t, b, "orders", upTo(1, 10))
	persist(t, s, batchUpTo(1002, Events("orders", 1001, 1002)...)) // the numbers have moved on
	wantIDs(t, b, "orders", append(upTo(1, 10), 1001, 1002))
}

// The relay's position is that of the backup. The broker has the events that were written since.
func testBehind(t *testing.T, b Broker) {
	write(t, open(t, b), Batch(Events("orders", 1, 30)...))
	s := open(t, b)
	next := batchUpTo(1010, append(Events("orders", 11, 20), Events("orders", 1001, 1010)...)...)
	next.Lead = 2
	persist(t, s, next)
	wantIDs(t, b, "orders", append(upTo(1, 30), upTo(1001, 1010)...))
}

func testNewLead(t *testing.T, b Broker) {
	s := open(t, b)
	write(t, s, Batch(Events("orders", 1, 200)...))
	next := func(from, to int64) int {
		batch := batchUpTo(1000, restored(from, to)...)
		batch.Lead = 2
		some := refusals(t, s.Write(t.Context(), batch), batch)
		for id, err := range some {
			if !isPermanent(err) {
				t.Errorf("event %d: %v", id, err)
			}
		}
		return len(some)
	}
	for _, step := range []struct{ from, to, refused int64 }{
		{150, 160, 11},
		{201, 300, 0},
		{170, 172, 3}, // late, behind new ones
		{199, 210, 2}, // beside those that it has written itself
	} {
		if got := next(step.from, step.to); got != int(step.refused) {
			t.Errorf("of the events %d to %d %d are refused, want %d", step.from, step.to, got, step.refused)
		}
	}
	wantIDs(t, b, "orders", upTo(1, 300))
}

func testOtherLog(t *testing.T, b Broker) {
	s := open(t, b)
	write(t, s, Batch(Events("orders", 1, 3)...))
	theirs := Batch(Events("orders", 1, 5)...)
	theirs.Log = otherLog
	some := refusals(t, open(t, b).Write(t.Context(), theirs), theirs)
	for id := int64(1); id <= 5; id++ {
		if some[id] == nil || isPermanent(some[id]) || posthorn.Hint(some[id]) == "" {
			t.Errorf("event %d of another log: %v (%s)", id, some[id], posthorn.Hint(some[id]))
		}
	}
	persist(t, s, Batch(Events("orders", 4, 6)...))
	wantIDs(t, b, "orders", upTo(1, 6))
}

func testForm(t *testing.T, b Broker) {
	e := Event("orders", 42)
	e.Type, e.Key, e.Tags = "ü \"7\" 100%+1", "käse, \"1\" %41+", []string{"a b", `"c"`}
	e.Payload = json.RawMessage(`{"n": 1.0,  "t": "é", "sealed":"\u0000x"}`)
	e.Metadata = json.RawMessage(`{"traceparent":  "00-ab-cd-01"}`)
	bare := Event("orders", 43)
	bare.Key, bare.Payload = "", json.RawMessage("null")
	write(t, open(t, b), Batch(e, bare))
	got := b.Read(t, Namespace, "orders")
	want := []posthorn.SourceEntry{
		{Stream: "orders", Log: Log, Namespace: Namespace, Event: e},
		{Stream: "orders", Log: Log, Namespace: Namespace, Event: bare},
	}
	for i := range got {
		got[i].Position = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-written +read):\n%s", diff)
	}
}

// largest is the payload that a database takes unless it is configured otherwise, less the
// rest of an entry, which counts at some brokers.
const largest = 1_000_000

func testLarge(t *testing.T, b Broker) {
	all := Events("orders", 1, 20)
	for _, i := range []int{3, 4, 19} {
		text := make([]byte, largest)
		for n := range text {
			text[n] = 'a' + byte((n*n+i)%23)
		}
		all[i].Payload = json.RawMessage(`"` + string(text) + `"`)
	}
	write(t, open(t, b), Batch(all...))
	for i, e := range b.Read(t, Namespace, "orders") {
		if string(e.Event.Payload) != string(all[i].Payload) {
			t.Errorf("the payload of event %d has %d bytes, want %d", e.Event.ID, len(e.Event.Payload), len(all[i].Payload))
		}
	}
	wantIDs(t, b, "orders", upTo(1, 20))
}

func testNames(t *testing.T, b Broker) {
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'x'
	}
	names := []string{
		"a.b", "a-b", "A.B", "stream:user:events", "a b", "*", ">", "ü/\\", "+~%$", "_2E", "_", "..", "order_items", "=2E",
		string(long), string(long) + "y", string(long[:240]) + "ü ü ü",
	}
	s := open(t, b)
	var all []posthorn.Event
	for i, name := range names {
		all = append(all, Event(name, int64(i+1)))
	}
	write(t, s, Batch(all...))
	for i, name := range names {
		wantIDs(t, b, name, []int64{int64(i + 1)})
	}
	written, err := s.Written(t.Context(), Log, Namespace)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	slices.Sort(written)
	if diff := cmp.Diff(names, written); diff != "" {
		t.Errorf("streams (-written +listed):\n%s", diff)
	}
}

func testReadBack(t *testing.T, b Broker) {
	s := open(t, b)
	write(t, s, Batch(Events("orders", 1, 100)...))
	write(t, s, Batch(append(Events("orders", 101, 250), Events("bills", 251, 260)...)...))
	var got []int64
	for before := ""; ; {
		entries, err := s.ReadBack(t.Context(), Log, Namespace, "orders", before, 40)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		if len(entries) > 40 {
			t.Errorf("%d entries at once, want 40 at most", len(entries))
		}
		for _, e := range entries {
			got = append(got, e.Event.ID)
		}
		before = entries[len(entries)-1].Position
	}
	slices.Reverse(got)
	if diff := cmp.Diff(upTo(1, 250), got); diff != "" {
		t.Errorf("ids, the first one first (-written +read):\n%s", diff)
	}
	if entries, err := s.ReadBack(t.Context(), Log, Namespace, "none", "", 40); err != nil || len(entries) > 0 {
		t.Errorf("a stream that does not exist: %d entries, %v", len(entries), err)
	}
}

func testContext(t *testing.T, b Broker) {
	s := open(t, b)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Write(ended, Batch(Events("orders", 1, 10)...)); !errors.Is(err, context.Canceled) {
		t.Errorf("write with an ended context: %v", err)
	}
	persist(t, s, Batch(Events("orders", 1, 10)...))
	wantIDs(t, b, "orders", upTo(1, 10))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Write(t.Context(), Batch(Events("orders", 11, 12)...)); err == nil {
		t.Error("a closed sink writes")
	}
}

package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// observed is a client whose spans and metrics are recorded for the test.
type observed struct {
	*posthorn.Client
	t      *testing.T
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	reader *sdkmetric.ManualReader
}

func newObserved(t *testing.T) *observed {
	t.Helper()
	o := &observed{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	o.tracer = tracers.Tracer("test")
	o.Client = posthorntest.Open(t, posthorn.Config{
		NodeID:         "node-1",
		TracerProvider: tracers,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader)),
	})
	return o
}

// ended returns the spans with a name that have ended, in the order of their start.
func (o *observed) ended(name string) []sdktrace.ReadOnlySpan {
	var found []sdktrace.ReadOnlySpan
	for _, s := range o.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return found
}

// only returns the single span with a name.
func (o *observed) only(name string) sdktrace.ReadOnlySpan {
	o.t.Helper()
	found := o.ended(name)
	if len(found) != 1 {
		var names []string
		for _, s := range o.spans.Ended() {
			names = append(names, s.Name())
		}
		o.t.Fatalf("%d spans %q among %q", len(found), name, names)
	}
	return found[0]
}

func attributes(of []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range of {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// sum returns the sum of a metric over all sets with the given attributes. The sum of a
// histogram is the number of its observations.
func (o *observed) sum(metric string, with ...attribute.KeyValue) (total int64) {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(context.Background(), &all); err != nil {
		o.t.Fatal(err)
	}
	includes := func(set attribute.Set) bool {
		return !slices.ContainsFunc(with, func(a attribute.KeyValue) bool { v, _ := set.Value(a.Key); return v != a.Value })
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != metric {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, point := range data.DataPoints {
					if includes(point.Attributes) {
						total += point.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					if includes(point.Attributes) {
						total += int64(point.Count)
					}
				}
			}
		}
	}
	return total
}

func nothing(context.Context, posthorn.Event) error { return nil }

func same[T any](t *testing.T, name string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// The spans of publishing, handling and settling an event belong to one trace. Seed
// 003.9: the metadata have the trace context.
func TestSpansOfAnEvent(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]posthorn.GroupConfig{
		"settled alone": {Concurrency: 2}, "settled with the next take": {Concurrency: 1}, "transaction": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newObserved(t)
			g := o.Group("billing", config)
			var inside trace.SpanContext
			if name == "transaction" {
				g.HandleTx("charge", "order.placed", func(ctx context.Context, _ pgx.Tx, _ posthorn.Event) error {
					inside = trace.SpanContextFromContext(ctx)
					return nil
				})
			} else {
				g.Handle("charge", "order.placed", func(ctx context.Context, _ posthorn.Event) error {
					inside = trace.SpanContextFromContext(ctx)
					return nil
				})
			}
			stop := posthorntest.Run(t, o.Client)
			id := posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.placed", Stream: "orders", Payload: "paid"})[0]
			posthorntest.Drain(t, o.Client)
			stop() // Run has recorded all settlements when it returns

			publish, process, settle := o.only("publish orders"), o.only("process orders"), o.only("settle orders")
			same(t, "kinds", []trace.SpanKind{publish.SpanKind(), process.SpanKind(), settle.SpanKind()},
				[]trace.SpanKind{trace.SpanKindProducer, trace.SpanKindConsumer, trace.SpanKindClient})
			for _, s := range []sdktrace.ReadOnlySpan{process, settle} {
				same(t, "parent of "+s.Name(), s.Parent().SpanID(), publish.SpanContext().SpanID())
				same(t, "links of "+s.Name(), len(s.Links()), 1)
				same(t, "link of "+s.Name(), s.Links()[0].SpanContext.SpanID(), publish.SpanContext().SpanID())
			}
			same(t, "span inside the handler", inside.SpanID(), process.SpanContext().SpanID())
			common := map[string]string{
				"messaging.system": "posthorn", "messaging.client.id": "node-1", "messaging.posthorn.namespace": "default",
				"messaging.destination.name": "orders", "messaging.message.id": strconv.FormatInt(id, 10),
			}
			with := func(more ...string) map[string]string {
				all := map[string]string{}
				for k, v := range common {
					all[k] = v
				}
				for i := 0; i < len(more); i += 2 {
					all[more[i]] = more[i+1]
				}
				return all
			}
			same(t, "attributes of publish", attributes(publish.Attributes()),
				with("messaging.operation.name", "publish", "messaging.operation.type", "send"))
			ofEvent := []string{
				"messaging.consumer.group.name", "billing", "messaging.message.body.size", "6",
				"messaging.posthorn.event.type", "order.placed", "messaging.posthorn.delivery", "1",
			}
			same(t, "attributes of process", attributes(process.Attributes()), with(append(ofEvent,
				"messaging.operation.name", "process", "messaging.operation.type", "process",
				"messaging.destination.subscription.name", "charge")...))
			same(t, "attributes of settle", attributes(settle.Attributes()), with(append(ofEvent,
				"messaging.operation.name", "settle", "messaging.operation.type", "settle")...))
		})
	}
}

func metadata(t *testing.T, e posthorn.Event) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(e.Metadata, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTraceContextInMetadata(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	ctx, around := o.tracer.Start(t.Context(), "around")
	own := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := o.Publish(ctx, o.Pool(),
		posthorn.Message{Type: "a"},
		posthorn.Message{Type: "b", Metadata: map[string]any{"schema": 2}},
		posthorn.Message{Type: "c", Metadata: map[string]any{"traceparent": own, "tracestate": "v=1"}},
	); err != nil {
		t.Fatal(err)
	}
	around.End()
	publish := o.only("publish default")
	same(t, "parent", publish.Parent().SpanID(), around.SpanContext().SpanID())
	ours := fmt.Sprintf("00-%s-%s-01", publish.SpanContext().TraceID(), publish.SpanContext().SpanID())
	events := posthorntest.Published(t, o.Client, ">")
	same(t, "metadata", []map[string]any{metadata(t, events[0]), metadata(t, events[1]), metadata(t, events[2])}, []map[string]any{
		{"producer": "node-1", "traceparent": ours},
		{"producer": "node-1", "traceparent": ours, "schema": 2.0},
		{"producer": "node-1", "traceparent": own, "tracestate": "v=1"},
	})
	same(t, "messages", attributes(publish.Attributes())["messaging.batch.message_count"], "3")
	same(t, "links", len(publish.Links()), 1)
	same(t, "link", publish.Links()[0].SpanContext.SpanID().String(), "b7ad6b7169203331")
}

// A batch has one span, with links to the spans that published its events.
func TestSpanOfABatch(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	g := o.Group("billing", posthorn.GroupConfig{Start: posthorn.Beginning})
	g.HandleBatch("charge", "order.placed", func(context.Context, []posthorn.Event) error { return nil })
	var ids []int64
	for range 3 {
		ids = append(ids, posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.placed"})...)
	}
	ctx, around := o.tracer.Start(context.Background(), "around")
	defer around.End()
	stop := runIn(t, ctx, o.Client)
	posthorntest.Drain(t, o.Client)
	stop() // Run has recorded all settlements when it returns
	for _, name := range []string{"process default", "settle default"} {
		s := o.only(name)
		same(t, name+": parent", s.Parent().IsValid(), false)
		same(t, name+": trace", s.SpanContext().TraceID() == around.SpanContext().TraceID(), false)
		same(t, name+": messages", attributes(s.Attributes())["messaging.batch.message_count"], "3")
		same(t, name+": links", len(s.Links()), 4)
		for i, publish := range o.ended("publish default") {
			same(t, name+": link", s.Links()[i].SpanContext.SpanID(), publish.SpanContext().SpanID())
			same(t, name+": event of the link", attributes(s.Links()[i].Attributes),
				map[string]string{"messaging.message.id": strconv.FormatInt(ids[i], 10)})
		}
		same(t, name+": link to what is around", s.Links()[3].SpanContext.SpanID(), around.SpanContext().SpanID())
	}
	if len(o.ended("around")) > 0 {
		t.Error("the caller's span was ended")
	}
}

// With transactions, each event of a lease is settled separately.
func TestSpansOfTransactions(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	g := o.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning})
	g.HandleTx("book", ">", func(context.Context, pgx.Tx, posthorn.Event) error { return nil })
	ids := posthorntest.Publish(t, o.Client, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"}, posthorn.Message{Type: "c"})
	stop := posthorntest.Run(t, o.Client)
	posthorntest.Drain(t, o.Client)
	stop() // Run has recorded all settlements when it returns
	for _, name := range []string{"process default", "settle default"} {
		var settled []string
		for _, s := range o.ended(name) {
			settled = append(settled, attributes(s.Attributes())["messaging.message.id"])
		}
		same(t, name, settled, []string{fmt.Sprint(ids[0]), fmt.Sprint(ids[1]), fmt.Sprint(ids[2])})
	}
}

// runIn runs the client in a context until the test ends, or stop is called.
func runIn(t *testing.T, ctx context.Context, ph *posthorn.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- ph.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// seed 002.17
func TestMetrics(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	g := o.Group("billing", posthorn.GroupConfig{Attempts: 2, Delays: []time.Duration{time.Hour}})
	g.Handle("charge", "order.*", func(_ context.Context, e posthorn.Event) error {
		switch e.Type {
		case "order.declined":
			return errors.New("card declined")
		case "order.broken":
			return posthorn.Permanent(errors.New("no such card"))
		case "order.wild":
			panic("out of cards")
		}
		return nil
	})
	g.HandleTx("ledger", "order.placed", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error { return nil })
	stop := posthorntest.Run(t, o.Client)
	for _, eventType := range []string{"order.placed", "order.placed", "order.declined", "order.broken", "order.wild"} {
		posthorntest.Publish(t, o.Client, posthorn.Message{Type: eventType, Stream: "orders"})
	}
	posthorntest.Drain(t, o.Client)
	posthorntest.Advance(t, o.Client, time.Hour) // until the last attempts of declined and wild events
	posthorntest.Drain(t, o.Client)
	stop() // Run has recorded all settlements when it returns
	if _, err := o.Publish(t.Context(), o.Pool(), posthorn.Message{Type: "bad\ntype"}); err == nil {
		t.Error("a message with an invalid type was published")
	}

	group := attribute.String("messaging.consumer.group.name", "billing")
	charge := attribute.String("messaging.destination.subscription.name", "charge")
	ledger := attribute.String("messaging.destination.subscription.name", "ledger")
	stream := attribute.String("messaging.destination.name", "orders")
	failed := func(class string) attribute.KeyValue { return attribute.String("error.type", class) }
	operation := func(name string) attribute.KeyValue { return attribute.String("messaging.operation.name", name) }
	type row struct {
		metric string
		with   []attribute.KeyValue
		want   int64
	}
	for _, r := range []row{
		{"messaging.client.sent.messages", []attribute.KeyValue{stream}, 5},
		{"messaging.client.sent.messages", []attribute.KeyValue{failed("invalid")}, 1},
		{"messaging.client.operation.duration", []attribute.KeyValue{operation("publish"), stream}, 5},
		{"messaging.client.consumed.messages", []attribute.KeyValue{group, charge}, 7},
		{"messaging.client.consumed.messages", []attribute.KeyValue{group, charge, failed("_OTHER")}, 2},
		{"messaging.client.consumed.messages", []attribute.KeyValue{group, charge, failed("permanent")}, 1},
		{"messaging.client.consumed.messages", []attribute.KeyValue{group, charge, failed("panic")}, 2},
		{"messaging.client.consumed.messages", []attribute.KeyValue{group, ledger}, 2},
		{"messaging.process.duration", []attribute.KeyValue{group, charge, operation("process")}, 7},
		{"messaging.posthorn.failed.messages", []attribute.KeyValue{group, charge}, 5},
		{"messaging.posthorn.dead.messages", []attribute.KeyValue{group, charge}, 3},
		{"messaging.posthorn.dead.messages", []attribute.KeyValue{group, ledger}, 0},
		{"messaging.posthorn.lost.leases", nil, 0},
	} {
		same(t, fmt.Sprint(r.metric, r.with), o.sum(r.metric, r.with...), r.want)
	}
	if n := o.sum("messaging.client.operation.duration", operation("settle"), group); n == 0 {
		t.Error("no settlement was measured")
	}
	for _, s := range o.ended("process orders") {
		all := attributes(s.Attributes())
		want := map[string]string{"order.declined": "_OTHER", "order.broken": "permanent", "order.wild": "panic"}[all["messaging.posthorn.event.type"]]
		same(t, "class of error", all["error.type"], want)
		same(t, "status", s.Status().Code == codes.Error, want != "")
	}

	stats := o.Stats()
	same(t, "groups", len(stats), 1)
	same(t, "group", stats[0].Group, "billing")
	type counts struct {
		Handler                     string
		Calls, Events, Failed, Dead int64
	}
	var got []counts
	for _, h := range stats[0].Handlers {
		got = append(got, counts{h.Handler, h.Calls, h.Events, h.Failed, h.DeadLetters})
		if last := h.Latencies[len(h.Latencies)-1]; last.Calls != h.Calls || h.Busy < 0 {
			t.Errorf("%s: %d of %d calls within %v, busy %v", h.Handler, last.Calls, h.Calls, last.UpTo, h.Busy)
		}
	}
	same(t, "stats", got, []counts{{"charge", 7, 7, 5, 3}, {"ledger", 2, 2, 0, 0}})
}

// If several events of a lease fail, each in its own transaction, each failure is counted
// once.
func TestStatsOfTransactions(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	g := ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning, Attempts: 1})
	g.HandleTx("book", "order.*", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error {
		if e.Type == "order.declined" {
			return errors.New("card declined")
		}
		return nil
	})
	for range 10 {
		posthorntest.Publish(t, ph, posthorn.Message{Type: "order.declined"}, posthorn.Message{Type: "order.placed"})
	}
	stop := posthorntest.Run(t, ph)
	posthorntest.Drain(t, ph)
	stop() // Run has recorded all settlements when it returns
	h := ph.Stats()[0].Handlers[0]
	same(t, "events, failed, dead", []int64{h.Events, h.Failed, h.DeadLetters}, []int64{20, 10, 10})
	groups, err := ph.Admin().Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "groups", []any{groups[0].Group, groups[0].DeadLetters}, []any{"ledger", int64(10)})
}

// The spans of a job belong to the trace in which it was enqueued.
func TestSpansOfAJob(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	o.Work([]string{"mail"}, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error { return posthorn.Permanent(errors.New("no")) })
	posthorntest.Run(t, o.Client)
	ctx, around := o.tracer.Start(t.Context(), "around")
	if _, err := o.Enqueue(ctx, o.Pool(), posthorn.NewJob{Title: "a", Tags: []string{"mail"}}); err != nil {
		t.Fatal(err)
	}
	around.End()
	posthorntest.Drain(t, o.Client)
	// The database has the result of the job before the span of the settlement ends.
	await.True(t, "the span of the settlement has ended", func() bool { return len(o.ended("settle jobs")) > 0 })
	enqueued, done, settled := o.ended("enqueue"), o.ended("process jobs"), o.ended("settle jobs")
	if len(enqueued) != 1 || len(done) != 1 || len(settled) != 1 {
		t.Fatalf("%d spans for enqueueing, %d for handling, %d for settling", len(enqueued), len(done), len(settled))
	}
	if enqueued[0].Parent().SpanID() != around.SpanContext().SpanID() || done[0].Parent().SpanID() != enqueued[0].SpanContext().SpanID() {
		t.Errorf("enqueued under %v, done under %v", enqueued[0].Parent(), done[0].Parent())
	}
	if done[0].Status().Code != codes.Error {
		t.Errorf("its status is %v", done[0].Status())
	}
}

// A batch of jobs has one span, with links to the spans that enqueued its jobs.
func TestSpanOfABatchOfJobs(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	o.WorkBatch([]string{"mail"}, posthorn.WorkConfig{Concurrency: 1}, func(context.Context, []posthorn.Job) error { return nil })
	job := posthorn.NewJob{Title: "a", Tags: []string{"mail"}}
	if _, err := o.Enqueue(t.Context(), o.Pool(), job, job); err != nil {
		t.Fatal(err)
	}
	posthorntest.Run(t, o.Client)
	posthorntest.Drain(t, o.Client)
	enqueued, done := o.only("enqueue"), o.only("process jobs")
	same(t, "parent", done.Parent().IsValid(), false)
	same(t, "jobs", attributes(done.Attributes())["messaging.batch.message_count"], "2")
	same(t, "links", len(done.Links()), 2)
	same(t, "link", done.Links()[1].SpanContext.SpanID(), enqueued.SpanContext().SpanID())
}

// A job that is put off has not failed.
func TestSpanOfASnooze(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	var calls atomic.Int64
	o.Work([]string{"mail"}, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error {
		if calls.Add(1) == 1 {
			return posthorn.Snooze(0)
		}
		return nil
	})
	posthorntest.Run(t, o.Client)
	if _, err := o.Enqueue(t.Context(), o.Pool(), posthorn.NewJob{Title: "a", Tags: []string{"mail"}}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it was handled twice", func() bool { return len(o.ended("process jobs")) == 2 })
	for _, s := range o.ended("process jobs") {
		if s.Status().Code == codes.Error {
			t.Errorf("a span has the status %v", s.Status())
		}
	}
}

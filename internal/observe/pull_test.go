package observe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// A buffered message belongs to the trace in which it was published, not to that of the
// batch in which it is written.
func TestSpansOfAPublisher(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	ctx, around := o.tracer.Start(t.Context(), "around")
	p := o.Publisher(posthorn.PublisherConfig{})
	if _, err := p.Publish(ctx, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	around.End()
	for _, e := range posthorntest.Published(t, o.Client, ">") {
		from := trace.SpanContextFromContext(o.TraceContext(context.Background(), e))
		same(t, "origin of "+e.Type, from.SpanID(), around.SpanContext().SpanID())
	}
	s := o.only("publish default")
	same(t, "kind", s.SpanKind(), trace.SpanKindClient)
	same(t, "messages", attributes(s.Attributes())["messaging.batch.message_count"], "2")
	same(t, "links", len(s.Links()), 2)
	same(t, "link", s.Links()[0].SpanContext.SpanID(), around.SpanContext().SpanID())
	same(t, "sent", o.sum("messaging.client.sent.messages", attribute.String("messaging.destination.name", "default")), 2)
}

func TestSpansOfFetch(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	g := o.Group("billing", posthorn.GroupConfig{Start: posthorn.Beginning})
	posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.placed"})
	posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.broken"})
	ctx, around := o.tracer.Start(t.Context(), "around")
	deliveries, err := g.Fetch(ctx, 2)
	if err != nil || len(deliveries) != 2 {
		t.Fatalf("%d deliveries, %v", len(deliveries), err)
	}
	if err := deliveries[0].Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if err := deliveries[1].Term(ctx, errors.New("no such card")); err != nil {
		t.Fatal(err)
	}
	around.End()
	fetch, settle := o.only("fetch default"), o.only("settle default")
	same(t, "parent", fetch.Parent().SpanID(), around.SpanContext().SpanID())
	same(t, "kind", fetch.SpanKind(), trace.SpanKindClient)
	same(t, "attributes", attributes(fetch.Attributes()), map[string]string{
		"messaging.system": "posthorn", "messaging.operation.name": "fetch", "messaging.operation.type": "receive",
		"messaging.consumer.group.name": "billing", "messaging.destination.name": "default", "messaging.batch.message_count": "2",
		"messaging.client.id": "node-1", "messaging.posthorn.namespace": "default",
	})
	for i, publish := range o.ended("publish default") {
		same(t, "link", fetch.Links()[i].SpanContext.SpanID(), publish.SpanContext().SpanID())
	}
	same(t, "settled", attributes(settle.Attributes())["messaging.batch.message_count"], "2")
	group := attribute.String("messaging.consumer.group.name", "billing")
	same(t, "consumed", o.sum("messaging.client.consumed.messages", group), 2)
	same(t, "dead", o.sum("messaging.posthorn.dead.messages", group), 1)
	h := o.Stats()[0].Handlers[0]
	same(t, "stats", []int64{h.Events, h.Failed, h.DeadLetters}, []int64{2, 1, 1})
}

// An event that a blocked projection cannot apply counts as failed. The projection does
// not delay Drain.
func TestStatsOfAProjection(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	var broken atomic.Bool
	broken.Store(true)
	config := posthorn.ProjectionConfig{Backoff: posthorn.Backoff{From: time.Hour, To: time.Hour}}
	o.Project("totals", "order.*", config, func(_ context.Context, _ pgx.Tx, events []posthorn.Event) error {
		for _, e := range events {
			if broken.Load() && e.Type == "order.broken" {
				return errors.New("no such order")
			}
		}
		return nil
	})
	posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.broken"}, posthorn.Message{Type: "other"})
	stop := posthorntest.Run(t, o.Client)
	await.True(t, "the event has failed in a batch and alone", func() bool {
		stats := o.Stats()
		return len(stats) > 0 && len(stats[0].Handlers) > 0 && stats[0].Handlers[0].Failed == 2
	})
	posthorntest.Drain(t, o.Client)
	posthorntest.Publish(t, o.Client, posthorn.Message{Type: "order.placed"})
	posthorntest.Drain(t, o.Client)
	broken.Store(false)
	posthorntest.Advance(t, o.Client, time.Hour)
	posthorntest.Drain(t, o.Client)
	stop()
	stats := o.Stats()[0]
	h := stats.Handlers[0]
	same(t, "names", []string{stats.Group, h.Handler}, []string{"totals", "totals"})
	same(t, "events, failed", []int64{h.Events, h.Failed}, []int64{4, 2}) // tried in a batch and alone
	same(t, "spans", len(o.ended("process default")), int(h.Calls))
}

// A lease that another client takes over is counted by the client that lost it.
func TestLeasesLost(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	config := posthorn.GroupConfig{Start: posthorn.Beginning, LeaseFor: time.Hour} // not extended meanwhile
	handling, goOn := make(chan struct{}), make(chan struct{})
	o.Group("billing", config).Handle("charge", ">", func(context.Context, posthorn.Event) error {
		close(handling)
		<-goOn
		return nil
	})
	posthorntest.Publish(t, o.Client, posthorn.Message{Type: "a"})
	stop := posthorntest.Run(t, o.Client)
	<-handling
	other := posthorntest.Open(t, posthorn.Config{Pool: o.Pool()})
	other.Group("billing", config).Handle("charge", ">", nothing)
	posthorntest.Advance(t, o.Client, 2*time.Hour)
	posthorntest.Run(t, other)
	posthorntest.Drain(t, other)
	close(goOn)
	stop()
	same(t, "lost", o.Stats()[0].LeasesLost, 1)
	same(t, "lost by the other client", other.Stats()[0].LeasesLost, 0)
	same(t, "metric", o.sum("messaging.posthorn.lost.leases", attribute.String("messaging.consumer.group.name", "billing")), 1)
}

package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay"
	"github.com/posthorn/posthorn/relay/nats"
)

// restored returns events of a log that was restored and gives out ids again.
func restored(first, n int) []posthorn.Event {
	all := events("orders", first, n)
	for i := range all {
		all[i].PublishedAt = at.Add(time.Hour)
	}
	return all
}

// sinks are those that may write after a restore, given the one that wrote before.
var sinks = map[string]func(t *testing.T, before *nats.Sink, url string) *nats.Sink{
	"a sink that lives on": func(_ *testing.T, before *nats.Sink, _ string) *nats.Sink { return before },
	"a new sink":           func(t *testing.T, _ *nats.Sink, url string) *nats.Sink { return open(t, url, nats.Config{}) },
}

// Another event under an id that the broker has is no repeat.
func TestAnotherEventUnderAKnownIDIsRefused(t *testing.T) {
	t.Parallel()
	for name, sink := range sinks {
		for batch, test := range map[string]struct{ n, refused int }{"beyond the end": {7, 5}, "before the end": {3, 3}} {
			t.Run(name+", "+batch, func(t *testing.T) {
				t.Parallel()
				server := testnats.NewAccount(t)
				_, js := testnats.Connect(t, server)
				before := open(t, server.URL, nats.Config{})
				write(t, before, events("orders", 1, 10)...)
				failures := failed(t, sink(t, before, server.URL).Write(t.Context(), batchOf(restored(6, test.n), 1000)))
				for id := int64(6); id < int64(6+test.n); id++ {
					err := failures[id]
					switch refused := id < int64(6+test.refused); {
					case refused && (err == nil || !isPermanent(err) || !strings.Contains(err.Error(), "the broker has another event under id")):
						t.Errorf("event %d: %v", id, err)
					case !refused && err != nil:
						t.Errorf("event %d is new: %v", id, err)
					}
				}
				wantOrder(t, ids(t, js, orders), 1, 10+test.n-test.refused)
			})
		}
	}
}

// A new sink sees that the broker has an event whose id the log has not given out.
func TestTheBrokerIsAheadOfTheLog(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 10)...)
	s := open(t, server.URL, nats.Config{})
	err := s.Write(t.Context(), batchOf(restored(6, 3), 8))
	if err == nil || isPermanent(err) || !strings.Contains(err.Error(), "the broker is ahead of the log: it has event 10, and the log has given out ids up to 8") ||
		!strings.Contains(posthorn.Hint(err), "old primary") {
		t.Errorf("got %v (%s)", err, posthorn.Hint(err))
	}
	write(t, s, events("orders", 11, 2)...) // the numbers have moved on
	wantOrder(t, ids(t, js, orders), 1, 12)
}

// batchOf is a batch of a log that has given out ids up to last.
func batchOf(all []posthorn.Event, last int64) posthorn.SinkBatch {
	b := batch(all...)
	b.LastID = func(context.Context) (int64, error) { return last, nil }
	return b
}

// A relay whose lead was taken anew may be one of a log that was restored. Its sink
// compares each event with those that the stream had before, also an event that comes
// late, behind new ones, and when JetStream has forgotten the ids.
func TestANewLeadComparesEachEvent(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, events("orders", 1, 1)...)
	publishLongAgo(t, js, events("orders", 2, 198))
	write(t, s, events("orders", 200, 1)...) // now it knows the last sequence
	next := func(first, n int) error {
		b := batchOf(restored(first, n), 1000)
		b.Lead = 2
		return s.Write(t.Context(), b)
	}
	if refused := len(failed(t, next(150, 11))); refused != 11 {
		t.Errorf("%d of 11 are refused", refused)
	}
	if err := next(201, 100); err != nil {
		t.Error(err)
	}
	if refused := len(failed(t, next(170, 3))); refused != 3 {
		t.Errorf("%d of 3 that come late are refused", refused)
	}
	if refused := len(failed(t, next(199, 12))); refused != 2 {
		t.Errorf("%d are refused, of which the stream had 2 before", refused)
	}
	wantOrder(t, ids(t, js, orders), 1, 300)
}

// publishLongAgo publishes the messages of events as they are two minutes later: JetStream
// does not know their ids any more.
func publishLongAgo(t *testing.T, js jetstream.JetStream, all []posthorn.Event) {
	t.Helper()
	for i := range all {
		e := relay.NewEntry(relay.Source(origin, "shop"), &all[i])
		m := natsgo.NewMsg("posthorn.shop.orders.order.placed")
		m.Data = e.Data
		for name, value := range map[string]string{
			relay.SpecVersion: "1.0", relay.ID: e.ID, relay.SourceName: e.Source, relay.Type: e.Type, relay.Time: e.Time,
		} {
			m.Header["ce-"+name] = []string{value}
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
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
		!strings.Contains(posthorn.Hint(err), "posthorn rebase --force") {
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

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/relay/redis"
)

// restored returns a batch of a log that was restored and gives out ids again, up to
// last so far.
func restored(from, to, last int64) posthorn.SinkBatch {
	all := events("a", from, to)
	for i := range all {
		all[i].PublishedAt = all[i].PublishedAt.Add(time.Hour)
	}
	b := batchOf(all)
	b.LastID = func(context.Context) (int64, error) { return last, nil }
	return b
}

// Another event under an id that the broker has is no repeat.
func TestAnotherEventUnderAKnownIDIsRefused(t *testing.T) {
	t.Parallel()
	for name, sink := range map[string]func(t *testing.T, before *redis.Sink, url string) *redis.Sink{
		"a sink that lives on": func(_ *testing.T, before *redis.Sink, _ string) *redis.Sink { return before },
		"a new sink":           func(t *testing.T, _ *redis.Sink, url string) *redis.Sink { return open(t, url) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			before := open(t, server.URL())
			write(t, before, events("a", 1, 10))
			some := failures(t, sink(t, before, server.URL()).Write(t.Context(), restored(6, 12, 12)))
			equal(t, "refused", len(some), 5)
			for id := int64(6); id <= 10; id++ {
				_, permanent := errors.AsType[*worker.PermanentError](some[id])
				if !permanent || !strings.Contains(some[id].Error(), fmt.Sprintf("the broker has another event under id %d,", id)) {
					t.Errorf("event %d: %v", id, some[id])
				}
			}
			equal(t, "entries", ids(t, server.Client, "a"), numbers(1, 12))
		})
	}
}

// A sink sees that the broker has an event whose id the log has not given out.
func TestTheBrokerIsAheadOfTheLog(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	write(t, open(t, server.URL()), events("a", 1, 10))
	s := open(t, server.URL())
	some := failures(t, s.Write(t.Context(), restored(6, 8, 8)))
	for id := int64(6); id <= 8; id++ {
		_, permanent := errors.AsType[*worker.PermanentError](some[id])
		if permanent || !strings.Contains(some[id].Error(), "the broker is ahead of the log: it has event 10, and the log has given out ids up to 8") ||
			!strings.Contains(posthorn.Hint(some[id]), "old primary") {
			t.Errorf("event %d: %v (%s)", id, some[id], posthorn.Hint(some[id]))
		}
	}
	write(t, s, events("a", 11, 12)) // the numbers have moved on
	equal(t, "entries", ids(t, server.Client, "a"), numbers(1, 12))
}

// A relay whose lead was taken anew may be one of a log that was restored. Its sink
// compares each event with those that the stream had before, also an event that comes
// late, behind new ones.
func TestANewLeadComparesEachEvent(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s := open(t, server.URL())
	write(t, s, events("a", 1, 200))
	next := func(from, to int64) error {
		batch := restored(from, to, 1000)
		batch.Lead = 2
		return s.Write(t.Context(), batch)
	}
	equal(t, "refused", len(failures(t, next(150, 160))), 11)
	if err := next(201, 300); err != nil {
		t.Error(err)
	}
	equal(t, "refused of those that come late", len(failures(t, next(170, 172))), 3)
	equal(t, "refused beside new ones", len(failures(t, next(199, 210))), 2)
	equal(t, "entries", ids(t, server.Client, "a"), numbers(1, 300))
}

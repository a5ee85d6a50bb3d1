package inflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// What a broker has is handled as if it came from the log: types, keys, metadata
// and times are those of the origin.
func TestEventsAreThoseOfTheOrigin(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	broker.put("orders", 7, func(e *posthorn.Event) { e.Type, e.Key, e.Tags = "order.placed", "k", []string{"a", "b"} })
	ph := w.open()
	got := make(chan posthorn.Event, 1)
	ph.Group("billing", from("shelf://"+host)).Handle("charge", "order.*", func(_ context.Context, e posthorn.Event) error {
		got <- e
		return nil
	})
	w.run(ph)
	e := <-got
	if e.ID != 7 || e.Stream != "orders" || e.Type != "order.placed" || e.Key != "k" || !slices.Equal(e.Tags, []string{"a", "b"}) ||
		string(e.Payload) != "7" || string(e.Metadata) != `{"from": "afar"}` || e.PublishedAt.Nanosecond() != 6000 || e.Delivery != 1 {
		t.Errorf("got %+v", e)
	}
	w.passed("orders", "1")
	w.eventually(func() string {
		if broker.keptOf("orders") == "1" {
			return ""
		}
		return "the broker was not told"
	})
}

// An event that the broker repeats is handled once: in one reading, later, and
// after a restart.
func TestRepeatsAreDropped(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for _, id := range []int64{1, 2, 1, 3, 3} {
		broker.put("s", id)
	}
	open := func() (stop func()) {
		ph := w.open()
		ph.Group("g", from("shelf://"+host)).Handle("h", ">", func(_ context.Context, e posthorn.Event) error {
			w.say("%d", e.ID)
			return nil
		})
		return w.run(ph)
	}
	stop := open()
	w.passed("s", "5")
	broker.put("s", 2)
	for id := range int64(300) {
		broker.put("s", id+1)
	}
	w.passed("s", "306")
	stop()
	open()
	broker.put("s", 250)
	broker.put("s", 301)
	w.passed("s", "308")
	w.hears(numbers(1, 301)...)
}

// What fails is tried again, buried and brought back in the database of the
// consumer, for the handler that failed alone.
func TestFailuresAreLocal(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	ph := w.open()
	config := from("shelf://" + host)
	config.Attempts = 3
	g := ph.Group("g", config)
	var mended atomic.Bool
	g.Handle("fails", ">", func(_ context.Context, e posthorn.Event) error {
		if e.ID == 2 && !mended.Load() {
			w.say("fail %s %d.%d", e.Stream, e.ID, e.Delivery)
			return errors.New("not yet")
		}
		w.say("fails %s %d", e.Stream, e.ID)
		return nil
	})
	g.HandleTx("works", ">", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error {
		w.say("works %s %d", e.Stream, e.ID)
		return nil
	})
	w.run(ph)
	for id := range int64(3) {
		broker.put("a", id+1)
		broker.put("b", id+1) // another log, with the same ids
	}
	var want []string
	for _, stream := range []string{"a", "b"} {
		for id := 1; id <= 3; id++ {
			want = append(want, fmt.Sprintf("works %s %d", stream, id))
			if id != 2 {
				want = append(want, fmt.Sprintf("fails %s %d", stream, id))
				continue
			}
			for delivery := range 3 {
				want = append(want, fmt.Sprintf("fail %s 2.%d", stream, delivery+1))
			}
		}
	}
	w.hears(want...)
	w.eventually(func() string {
		var letters []posthorn.DeadLetter
		for letter, err := range ph.DeadLetters(t.Context(), "g", posthorn.DeadLetterFilter{}) {
			if err != nil {
				return err.Error()
			}
			letters = append(letters, letter)
		}
		switch {
		case len(letters) != 2:
			return fmt.Sprintf("%d dead letters", len(letters))
		case letters[0].Subscription != "fails" || string(letters[0].Payload) != "2" || letters[0].Attempts != 3:
			return fmt.Sprintf("%+v", letters[0])
		}
		return ""
	})
	mended.Store(true)
	if n, err := ph.Redrive(t.Context(), "g", posthorn.DeadLetterFilter{}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	w.hears(append(want, "fails a 2", "fails b 2")...)
}

// The position does not pass what is not done, however the handlers finish.
func TestNothingIsSkippedSideBySide(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for id := range int64(20) {
		broker.put("s", id+1)
	}
	hold := make(chan struct{})
	var handled atomic.Int64
	ph := w.open()
	config := from("shelf://" + host)
	config.LeaseFor = 3 * time.Second // whose heartbeat settles what is done before it
	ph.Group("g", config).Handle("h", ">", func(ctx context.Context, e posthorn.Event) error {
		if e.ID == 5 {
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		handled.Add(1)
		return nil
	})
	w.run(ph)
	w.eventually(func() string {
		if handled.Load() >= 9 {
			return ""
		}
		return "others do not go on"
	})
	w.eventually(func() string {
		if at := ask[string](w, "select position from posthorn.source_streams"); at != "4" {
			return "position " + at
		}
		return ""
	})
	close(hold)
	w.passed("s", "20")
}

// Entries that are no events, and what was thrown away, are passed over, loudly.
func TestWhatIsNoEventIsToldOf(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	var log strings.Builder
	w.log = newLog(&log)
	for id := range int64(5) {
		broker.put("s", id+1)
	}
	broker.trim("s", 2)
	broker.putEntry(posthorn.SourceEntry{Stream: "s", Err: errors.New("it has no type")})
	broker.put("s", 6)
	ph := w.open()
	ph.Group("g", from("shelf://"+host)).Handle("h", ">", func(_ context.Context, e posthorn.Event) error {
		w.say("%d", e.ID)
		return nil
	})
	stop := w.run(ph)
	w.hears(numbers(3, 6)...)
	w.passed("s", "7")
	stop()
	if !strings.Contains(log.String(), "thrown away") || !strings.Contains(log.String(), "it has no type") {
		t.Error(log.String())
	}
	if ask[int](w, "select count(*) from posthorn.source_streams where trimmed_at is not null") != 1 {
		t.Error("the database does not know that something was thrown away")
	}
}

// A broker that does not answer is asked again and again, complained of once, and
// everything goes on when it answers.
func TestABrokerMayBeDown(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	var log strings.Builder
	w.log = newLog(&log)
	broker.put("s", 1)
	ph := w.open()
	ph.Group("g", from("shelf://"+host)).Handle("h", ">", func(_ context.Context, e posthorn.Event) error {
		w.say("%d", e.ID)
		return nil
	})
	stop := w.run(ph)
	w.hears("1")
	broker.setDown(errors.New("out for lunch"))
	broker.put("s", 2)
	w.eventually(func() string {
		broker.mu.Lock()
		defer broker.mu.Unlock()
		if broker.asked >= 4 {
			return ""
		}
		return "it is not asked again"
	})
	broker.setDown(nil)
	w.hears("1", "2")
	stop()
	if n := strings.Count(log.String(), "cannot read from the broker"); n != 1 {
		t.Errorf("complained %d times: %s", n, log.String())
	}
}

package inflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// A group that read the log reads a broker from then on: what it had begun is
// finished, nothing of the log comes any more, and the log is not kept for it.
// It goes back, too: with what is published from then on.
func TestFromTheLogToABrokerAndBack(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	broker.put("s", 1)
	mended := make(chan struct{})
	open := func(source posthorn.Broker) (ph *posthorn.Client, stop func()) {
		ph = w.open()
		config := from("")
		config.Source, config.Attempts = source, posthorn.Unlimited
		handle(ph.Group("g", config), false, func(e posthorn.Event) error {
			select {
			case <-mended:
			default:
				if string(e.Payload) == `"later"` {
					return errors.New("not yet")
				}
			}
			w.say("%s", e.Payload)
			return nil
		})
		return ph, w.run(ph)
	}
	ph, stop := open(posthorn.Broker{})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "e", Payload: "log"}, posthorn.Message{Type: "e", Payload: "later"})
	w.hears(`"log"`)
	w.eventually(func() string {
		if ask[int](w, "select count(*) from posthorn.retries") == 1 {
			return ""
		}
		return "no retry"
	})
	stop()

	ph, stop = open(posthorn.From("shelf://" + host))
	w.hears(`"log"`, "1")
	posthorntest.Publish(t, ph, posthorn.Message{Type: "e", Payload: "unseen"})
	close(mended)
	w.hears(`"log"`, "1", `"later"`)
	broker.put("s", 2)
	w.hears(`"log"`, "1", `"later"`, "2")
	if lag := ask[int](w, "select lag_events from posthorn.group_status"); lag != 0 {
		t.Errorf("it lags %d events behind the log", lag)
	}
	w.eventually(func() string { // the retry is settled soon after it was heard
		owed := ask[int](w, "select count(*) from posthorn.partitions p where posthorn.owed_from(p.name) is not null")
		if owed == 0 {
			return ""
		}
		return fmt.Sprintf("%d partitions are kept for it", owed)
	})
	other := w.open()
	handle(other.Group("g", posthorn.GroupConfig{}), false, func(posthorn.Event) error { return nil })
	if err := other.Run(t.Context()); !errors.Is(err, posthorn.ErrConflict) || posthorn.Hint(err) == "" {
		t.Errorf("from the log while it reads a broker: %v", err)
	}
	stop()

	ph, _ = open(posthorn.Broker{})
	w.eventually(func() string {
		if ask[int](w, "select count(*) from posthorn.source_groups") == 0 {
			return ""
		}
		return "it still reads the broker"
	})
	broker.put("s", 3)
	posthorntest.Publish(t, ph, posthorn.Message{Type: "e", Payload: "back"})
	w.hears(`"log"`, "1", `"later"`, "2", `"back"`)
	if n := ask[int](w, "select (select count(*) from posthorn.source_streams) + (select count(*) from posthorn.source_seen)"); n != 0 {
		t.Errorf("%d rows are left of the broker", n)
	}
}

// Where a group begins: with what comes, by default, and streams that are new
// then are read whole; or at a time.
func TestWhereAGroupBegins(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for id := range int64(4) {
		broker.put("s", id+1, func(e *posthorn.Event) { e.PublishedAt = e.PublishedAt.AddDate(0, 0, int(id)) })
	}
	ph := w.open()
	now, later := from("shelf://"+host), from("shelf://"+host, "s*", "none")
	now.Start = posthorn.Moment{}
	later.Start = posthorn.At(time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC))
	handle(ph.Group("later", later), false, func(e posthorn.Event) error {
		w.say("later %s%d", e.Stream, e.ID)
		return nil
	})
	handle(ph.Group("now", now), false, func(e posthorn.Event) error {
		w.say("now %s%d", e.Stream, e.ID)
		return nil
	})
	w.run(ph)
	w.eventually(func() string {
		if ask[bool](w, "select count(*) = 2 and bool_and(begun) from posthorn.source_groups") {
			return ""
		}
		return "it has not begun"
	})
	broker.put("s", 5) // long ago
	broker.put("new", 1)
	w.hears("now s5", "now new1", "later s3", "later s4")
}

// Another broker of the same kind has the same positions; one of another kind is
// begun anew, and what was handled is known there.
func TestFromBrokerToBroker(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	broker.put("s", 1)
	open := func(url string) (stop func()) {
		ph := w.open()
		handle(ph.Group("g", from(url)), false, func(e posthorn.Event) error {
			w.say("%d", e.ID)
			return nil
		})
		return w.run(ph)
	}
	stop := open("shelf://u:secret@" + host + "/x?password=secret")
	w.passed("s", "1")
	if source := ask[string](w, "select source from posthorn.source_groups"); source != "shelf://"+host+"/x" {
		t.Errorf("the source is called %s", source)
	}
	stop()
	broker.trim("s", 1)
	broker.put("s", 2)
	stop = open("shelves://" + host)
	w.hears("1", "2")
	stop()
	if n := ask[int](w, "select count(*) from posthorn.source_streams where trimmed_at is not null"); n != 0 {
		t.Error("it has begun anew")
	}
	other, host := newShelf(t)
	for id := range int64(3) {
		other.put("s", id+1)
	}
	open("board://" + host)
	w.passed("s", "3")
	w.hears("1", "2", "3")
}

// What only groups can do that read the log is refused for others.
func TestWhatNeedsTheLogIsRefused(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	broker.put("s", 1)
	ph := w.open()
	g := ph.Group("g", from("shelf://"+host))
	handle(g, false, func(posthorn.Event) error { return nil })
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- ph.Run(ctx) }()
	w.passed("s", "1")
	refused := func(what string, err error, want error) {
		t.Helper()
		if !errors.Is(err, want) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := g.Fetch(t.Context(), 1)
	refused("fetch", err, posthorn.ErrInvalid)
	refused("seek", ph.Seek(t.Context(), "g", posthorn.Beginning), posthorn.ErrRefused)
	for _, sql := range []string{
		`select posthorn.subscribe('default', 'g', 's')`,
		`select posthorn.define_group('default', 'g', '{"order": "total"}')`,
		`select * from posthorn.read_next_events('g')`,
		`select posthorn.set_group_cursor('g', null, true)`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s is not refused", sql)
		}
	}
	// Deleting it leaves nothing, and its readers notice.
	w.exec("select posthorn.delete_group('default', 'g')")
	if n := ask[int](w, `select (select count(*) from posthorn.source_groups) + (select count(*) from posthorn.source_streams)
		+ (select count(*) from posthorn.source_seen) + (select count(*) from posthorn.source_events)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if err := await.Value(t, "the end of Run, whose group is gone", ended); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("run: %v", err)
	}
}

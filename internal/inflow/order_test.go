package inflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// In a group ordered by stream an event that fails holds back those after it,
// in its stream alone, until it is done or buried.
// Seed 003.3
func TestAFailureHoldsBackItsStream(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional=%v", transactional), func(t *testing.T) {
			w := newWorld(t)
			broker, host := newShelf(t)
			for id := range int64(5) {
				broker.put("a", 5-id) // ids need not rise
				broker.put("b", id+1)
			}
			ph := w.open()
			config := from("shelf://" + host)
			config.Order, config.Attempts = posthorn.OrderStream, posthorn.Unlimited
			var mended atomic.Bool
			handle(ph.Group("g", config), transactional, func(e posthorn.Event) error {
				if e.Stream == "a" && e.ID == 3 && !mended.Load() {
					return errors.New("not yet")
				}
				w.say("%s%d", e.Stream, e.ID)
				return nil
			})
			w.run(ph)
			w.hears("a5", "a4", "b1", "b2", "b3", "b4", "b5")
			w.eventually(func() string {
				if ask[int](w, "select coalesce(max(attempts), 0) from posthorn.retries") > 3 {
					return ""
				}
				return "it is not tried again"
			})
			if n := ask[int](w, "select count(*) from posthorn.retries"); n != 1 {
				t.Errorf("%d events have a row: those that wait for another should not", n)
			}
			w.hears("a5", "a4", "b1", "b2", "b3", "b4", "b5")
			mended.Store(true)
			w.passed("a", "5")
			w.inOrder("a5", "a4", "a3", "a2", "a1")
			w.inOrder("b1", "b2", "b3", "b4", "b5")
		})
	}
}

// handle registers a handler of one kind or the other.
func handle(g *posthorn.Group, transactional bool, do func(e posthorn.Event) error) {
	if transactional {
		g.HandleTx("h", ">", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error { return do(e) })
	} else {
		g.Handle("h", ">", func(_ context.Context, e posthorn.Event) error { return do(e) })
	}
}

// inOrder sees to it that some things were said in this order.
func (w *world) inOrder(want ...string) {
	w.t.Helper()
	var got []string
	for _, said := range w.heard() {
		if slices.Contains(want, said) {
			got = append(got, said)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("heard %v, want %v", got, want)
	}
}

// A dead letter does not hold back what comes after it.
func TestADeadLetterHoldsNothingBack(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for id := range int64(5) {
		broker.put("s", id+1)
	}
	ph := w.open()
	config := from("shelf://" + host)
	config.Order, config.Attempts = posthorn.OrderStream, 2
	handle(ph.Group("g", config), true, func(e posthorn.Event) error {
		w.say("%d.%d", e.ID, e.Delivery)
		if e.ID == 2 {
			return errors.New("never")
		}
		return nil
	})
	w.run(ph)
	w.passed("s", "5")
	w.inOrder("1.1", "2.1", "2.2", "3.1", "4.1", "5.1")
}

// By key, what fails holds back the events of its key alone, and they come in
// their order when it goes on.
func TestAFailureHoldsBackItsKey(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional=%v", transactional), func(t *testing.T) {
			w := newWorld(t)
			broker, host := newShelf(t)
			put := func(first, last int64) {
				for id := first; id <= last; id++ {
					broker.put("s", id, func(e *posthorn.Event) { e.Key = []string{"", "x", "y"}[id%3] })
				}
			}
			put(1, 30)
			ph := w.open()
			config := from("shelf://" + host)
			config.Order, config.Attempts = posthorn.OrderKey, posthorn.Unlimited
			var mended atomic.Bool
			handle(ph.Group("g", config), transactional, func(e posthorn.Event) error {
				if e.Key == "x" && e.ID >= 7 && !mended.Load() {
					return errors.New("not yet")
				}
				w.say("%s%d", e.Key, e.ID)
				return nil
			})
			w.run(ph)
			w.passedEntries("s", "30")
			put(31, 60)
			w.passedEntries("s", "60")
			var none, x, y, others []string
			for id := 1; id <= 60; id++ {
				switch id % 3 {
				case 0:
					none = append(none, fmt.Sprint(id))
				case 1:
					x = append(x, fmt.Sprintf("x%d", id))
				default:
					y = append(y, fmt.Sprintf("y%d", id))
				}
			}
			others = append(append(append(others, none...), y...), x[:2]...)
			w.hears(others...)
			mended.Store(true)
			w.passed("s", "60")
			w.inOrder(x...)
			w.inOrder(y...)
		})
	}
}

// passedEntries waits until a stream is read to a position, whatever failed.
func (w *world) passedEntries(stream, position string) {
	w.t.Helper()
	w.eventually(func() string {
		if at := ask[string](w, "select coalesce(max(position), 'none') from posthorn.source_streams where stream = $1", stream); at != position {
			return "it is at " + at
		}
		return ""
	})
}

// A total order over streams is nothing that a broker has.
func TestTotalOrderIsRefused(t *testing.T) {
	w := newWorld(t)
	_, host := newShelf(t)
	ph := w.open()
	config := from("shelf://" + host)
	config.Order = posthorn.OrderTotal
	handle(ph.Group("g", config), false, func(posthorn.Event) error { return nil })
	err := ph.Run(t.Context())
	if !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" || !strings.Contains(err.Error(), "total order") {
		t.Errorf("got %v", err)
	}
}

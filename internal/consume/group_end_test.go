package consume_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// goroutinesOf counts the goroutines that run a component of any client.
func goroutinesOf(client string) int {
	buffer := make([]byte, 1<<24)
	n := 0
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, ".runComponent(") && strings.Contains(stack, client) {
			n++
		}
	}
	return n
}

// A group needs a goroutine only while it has handlers and exists, and its name is free
// after it was deleted.
func TestDeletedGroupLeavesNothing(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	testworld.Run(t, ph)
	self := fmt.Sprintf("(%p", ph)
	const groups = 20
	for i := range groups {
		g := ph.Group(fmt.Sprintf("polled-%d", i), quick)
		posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
		deliveries, err := g.Fetch(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deliveries {
			if err := d.Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := goroutinesOf(self); n != 0 {
		t.Fatalf("%d goroutines run groups that have no handlers", n)
	}
	handle := func(tag string) {
		ph.Group("handled", quick).Handle("book", "order.*", func(_ context.Context, e posthorn.Event) error {
			w.say("%s %d", tag, e.ID)
			return nil
		})
	}
	handle("first")
	w.awaitLines(groups)
	if n := goroutinesOf(self); n != 1 {
		t.Errorf("%d goroutines run a group with handlers, want 1", n)
	}
	if _, err := ph.Admin().DeleteGroup(t.Context(), "handled"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the group has ended", func() bool { return goroutinesOf(self) == 0 && len(ph.Stats()) == groups })
	handle("again")
	w.awaitLines(2 * groups)
	w.settled("handled")
	if n := len(w.lines()); n != 2*groups {
		t.Errorf("%d calls, want %d", n, 2*groups)
	}
}

// A deploy with another order changes it when nothing is in flight, and works until then.
func TestOrderChangesInADeploy(t *testing.T) {
	for _, c := range []struct{ before, after posthorn.Order }{
		{posthorn.Unordered, posthorn.OrderKey}, {posthorn.OrderKey, posthorn.Unordered}, {posthorn.OrderKey, posthorn.OrderTotal},
	} {
		t.Run(fmt.Sprintf("%s to %s", c.before, c.after), func(t *testing.T) {
			w := newWorld(t)
			hold := make(chan struct{})
			deploy := func(tag string, order posthorn.Order) {
				ph := w.OpenWith(posthorn.Config{})
				config := quick
				config.Order, config.Attempts = order, 3
				if tag == "new" {
					config.Attempts = 7
				}
				ph.Group("billing", config).Handle("book", "order.*", func(ctx context.Context, e posthorn.Event) error {
					w.say("%s %s", tag, e.Key)
					if e.Key == "held" {
						select {
						case <-hold:
						case <-ctx.Done():
						}
					}
					return nil
				})
				testworld.Run(t, ph)
			}
			deploy("old", c.before)
			ph := w.OpenWith(posthorn.Config{})
			posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Key: "held"})
			w.awaitLines(1)
			deploy("new", c.after)
			w.Await("select attempts = 7 and ordering = $1 from posthorn.groups where name = 'billing'", string(c.before))
			close(hold)
			w.Await("select attempts = 7 and ordering = $1 from posthorn.groups where name = 'billing'", string(c.after))
			posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 100)...)
			w.awaitLines(101)
			w.settled("billing")
			if n := len(w.lines()); n != 101 {
				t.Errorf("%d calls, want 101", n)
			}
		})
	}
}

package consume_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// seed 000.40: a rolling deploy of two versions, one with a handler that the
// other lacks. No event is buried, and each handler gets all.
func TestRollingDeploy(t *testing.T) {
	w := newWorld(t)
	config := quick
	config.DeadLetterUnhandled = true
	version := func(name string, handlers ...string) (stop func()) {
		ph := w.OpenWith(posthorn.Config{})
		g := ph.Group("billing", config)
		for _, h := range handlers {
			handler, pattern, _ := strings.Cut(h, " ")
			g.Handle(handler, pattern, func(_ context.Context, e posthorn.Event) error {
				w.say("%s %d", handler, e.ID)
				return nil
			})
		}
		stop = testworld.Run(t, ph)
		w.Await(`select count(*) = $2 from posthorn.node_handlers where node_id = $1`, ph.NodeID(), len(handlers))
		return stop
	}
	fresh := version("new", "charge order.*", "mail order.*", "greet user.*")
	version("old", "charge order.*")
	ph := w.OpenWith(posthorn.Config{})
	const orders, users = 200, 50
	for range orders / 4 {
		posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 4)...)
		posthorntest.Publish(t, ph, posthorn.Message{Type: "user.born"})
	}
	w.settled("billing")
	if letters := w.deadLetters("billing"); len(letters) > 0 {
		t.Errorf("%d events were buried, the first is %+v", len(letters), letters[0])
	}
	count := map[string]int{}
	for _, line := range w.lines() {
		count[strings.Fields(line)[0]]++
	}
	if count["charge"] != orders || count["mail"] != orders || count["greet"] != users {
		t.Errorf("handled %v, want %d charges and mails and %d greetings", count, orders, users)
	}
	// With the last node that knows them gone, events without a handler are buried.
	fresh()
	posthorntest.Publish(t, ph, posthorn.Message{Type: "user.born"})
	w.Await("select count(*) = 1 from posthorn.dead_letters where reason = 'No handler for event user.born'")
}

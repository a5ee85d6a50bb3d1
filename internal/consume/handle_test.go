package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

type order struct {
	Order int `json:"order"`
}

// seed 000.33–35, 002.19, 002.23: handlers per type, several per type, in
// registration order.
func TestHandlersGetWhatTheirPatternsMatch(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	g := ph.Group("billing", quick)
	for name, patterns := range map[string]string{"exact": "order.placed"} {
		g.Handle(name, patterns, func(_ context.Context, e posthorn.Event) error { w.say("%s %s", name, e.Type); return nil })
	}
	for _, h := range [][2]string{{"two", "order.paid, refund.paid"}, {"part", "order.*"}, {"rest", "order.>"}, {"all", ">"}} {
		g.Handle(h[0], h[1], func(_ context.Context, e posthorn.Event) error { w.say("%s %s", h[0], e.Type); return nil })
	}
	testworld.Run(t, ph)
	first := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
	w.awaitLines(4)
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed.twice"})
	w.awaitLines(6)
	posthorntest.Publish(t, ph, posthorn.Message{Type: "refund.paid"})
	w.awaitLines(8)
	w.settled("billing")
	want := []string{
		"exact order.placed", "part order.placed", "rest order.placed", "all order.placed",
		"rest order.placed.twice", "all order.placed.twice", "two refund.paid", "all refund.paid",
	}
	if diff := cmp.Diff(want, w.lines()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	if outcomes, err := ph.Admin().Outcomes(t.Context(), first); err != nil || len(outcomes) != 1 || outcomes[0].State != admin.Completed {
		t.Errorf("outcomes %+v, %v; want one that is completed", outcomes, err)
	}
}

// Handlers that have succeeded are not run again; those that failed are retried, also
// when another has failed for good.
//
// seed 002.19–22, 002.24, 002.26
func TestOnlyFailedHandlersGetTheEventAgain(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	g := ph.Group("billing", quick)
	note := func(name string, answer func(e posthorn.Event) error) {
		g.Handle(name, "order.*", func(_ context.Context, e posthorn.Event) error {
			w.say("%s %d %v", name, e.Delivery, e.Subscriptions)
			return answer(e)
		})
	}
	note("fine", func(posthorn.Event) error { return nil })
	note("hopeless", func(posthorn.Event) error { return posthorn.Permanent(errors.New("no such card")) })
	note("later", func(e posthorn.Event) error {
		if e.Delivery < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
	testworld.Run(t, ph)
	w.awaitLines(5)
	w.settled("billing")
	want := []string{"fine 1 []", "hopeless 1 []", "later 1 []", "later 2 [later]", "later 3 [later]"}
	if diff := cmp.Diff(want, w.lines()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	letters := []letter{{id, "hopeless", 1, "Handler error", "no such card"}}
	if diff := cmp.Diff(letters, w.deadLetters("billing")); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	// Of the rest nothing is kept.
	if left := testworld.Ask[string](w, "select (select count(*) from posthorn.leases) || ' ' || (select count(*) from posthorn.retries)"); left != "0 0" {
		t.Errorf("leases and retries left: %s", left)
	}
	outcomes, err := ph.Admin().Outcomes(t.Context(), id)
	if err != nil || len(outcomes) != 1 || outcomes[0].State != admin.CompletedWithErrors || outcomes[0].Subscription != "hopeless" {
		t.Errorf("outcomes %+v, %v; want one that is completed with errors", outcomes, err)
	}
}

// seed 000.42, 53–54: a handler's panic is a failure of its event, with its
// stack, and never of the process.
func TestPanicsAreFailures(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts = 2
	ph.Group("billing", config).Handle("charge", "order.*", func(_ context.Context, e posthorn.Event) error {
		w.say("%d", e.Delivery)
		panic("out of cheese")
	})
	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
	testworld.Run(t, ph)
	w.Await("select exists (select from posthorn.dead_letters)")
	if diff := cmp.Diff([]letter{{id, "charge", 2, "Handler error", "panic: out of cheese"}}, w.deadLetters("billing")); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	if stack := testworld.Ask[string](w, "select stack from posthorn.dead_letters"); !strings.Contains(stack, "TestPanicsAreFailures") {
		t.Errorf("the stack does not show where: %s", stack)
	}
}

// seed 002.27
func TestTypedHandlers(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	posthorn.On(ph.Group("billing", quick), "charge", "order.*", func(_ context.Context, _ posthorn.Event, o order) error {
		w.say("order %d", o.Order)
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Payload: order{7}})
	bad := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Payload: map[string]string{"order": "seven"}})[0]
	testworld.Run(t, ph)
	w.awaitLines(1)
	w.Await("select exists (select from posthorn.dead_letters)")
	letters := w.deadLetters("billing")
	if len(letters) != 1 || letters[0].Event != bad || letters[0].Attempts != 1 ||
		!strings.Contains(letters[0].Error, "payload of order.placed does not fit into consume_test.order") {
		t.Errorf("dead letters %+v", letters)
	}
}

func TestTimeout(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Timeout, config.Attempts = 20*time.Millisecond, 1
	ph.Group("billing", config).Handle("charge", "order.*", func(ctx context.Context, _ posthorn.Event) error {
		<-ctx.Done()
		return fmt.Errorf("charge: %w", ctx.Err())
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.Await("select exists (select from posthorn.dead_letters)")
	if text := w.deadLetters("billing")[0].Error; !strings.Contains(text, "the handler has used up its time of 20ms") {
		t.Errorf("error %q", text)
	}
}

func TestMiddlewareWrapsFromTheOutsideIn(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	around := func(name string) posthorn.Middleware {
		return func(next posthorn.Handler) posthorn.Handler {
			return func(ctx context.Context, e posthorn.Event) error {
				w.say("into %s", name)
				defer w.say("out of %s", name)
				return next(ctx, e)
			}
		}
	}
	config := quick
	config.Middleware = []posthorn.Middleware{around("outer"), around("inner")}
	ph.Group("billing", config).Handle("charge", ">", func(context.Context, posthorn.Event) error { w.say("charge"); return nil })
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.awaitLines(5)
	want := []string{"into outer", "into inner", "charge", "out of inner", "out of outer"}
	if diff := cmp.Diff(want, w.lines()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// seed 000.40, 52
func TestWithoutAHandler(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	strict := quick
	strict.DeadLetterUnhandled = true
	handler := func(_ context.Context, e posthorn.Event) error { w.say("%s", e.Type); return nil }
	ph.Group("lenient", quick).Handle("charge", "order.placed", handler)
	ph.Group("strict", strict).Handle("charge", "order.placed", handler)
	ids := posthorntest.Publish(t, ph, posthorn.Message{Type: "user.born"}, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.awaitLines(2)
	w.settled("lenient")
	w.settled("strict")
	if diff := cmp.Diff([]letter{{ids[0], "", 1, "No handler for event user.born", ""}}, w.deadLetters("strict")); diff != "" {
		t.Errorf("dead letters of the strict group (-want +got):\n%s", diff)
	}
	if letters := w.deadLetters("lenient"); len(letters) > 0 {
		t.Errorf("dead letters of the lenient group: %v", letters)
	}
}

// seed 000.36, 000.48: registering on a running node starts it consuming.
func TestHandlersMayComeLater(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	g := ph.Group("billing", quick)
	testworld.Run(t, ph)
	note := func(name string) func(context.Context, posthorn.Event) error {
		return func(context.Context, posthorn.Event) error { w.say("%s", name); return nil }
	}
	g.Handle("charge", ">", note("charge"))
	posthorntest.Publish(t, ph, posthorn.Message{Type: "a"})
	w.awaitLines(1)
	g.Handle("mail", ">", note("mail"))
	posthorntest.Publish(t, ph, posthorn.Message{Type: "b"})
	w.awaitLines(3)
	ph.Group("late", quick).Handle("log", ">", note("log"))
	w.awaitLines(5)
	said := w.lines()
	slices.Sort(said)
	if diff := cmp.Diff([]string{"charge", "charge", "log", "log", "mail"}, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// seed 002.28
func TestWhatIsWrongRunTells(t *testing.T) {
	w := newWorld(t)
	nothing := func(context.Context, posthorn.Event) error { return nil }
	for name, test := range map[string]struct {
		setUp func(ph *posthorn.Client)
		want  string
	}{
		"twice": {func(ph *posthorn.Client) { // seed 002.29
			g := ph.Group("g", quick)
			g.Handle("x", ">", nothing)
			g.Handle("x", "a", nothing)
		}, `handler with id "x" is already registered`},
		"no name":   {func(ph *posthorn.Client) { ph.Group("g", quick).Handle("", "a", nothing) }, `a handler needs a name`},
		"pattern":   {func(ph *posthorn.Client) { ph.Group("g", quick).Handle("x", "a.>.b", nothing) }, `"a.>.b" is not a pattern`},
		"nil":       {func(ph *posthorn.Client) { ph.Group("g", quick).Handle("x", "a", nil) }, `handler "x" is nil`},
		"no types":  {func(ph *posthorn.Client) { ph.Group("g", quick).Handle("x", " ,", nothing) }, `handler "x" has no patterns`},
		"two names": {func(ph *posthorn.Client) { ph.Group("g", quick); ph.Group("g", quick).Handle("x", "a", nothing) }, `"g" is registered twice`},
		"order": {func(ph *posthorn.Client) {
			ph.Group("g", posthorn.GroupConfig{Order: "chaos"}).Handle("x", "a", nothing)
		}, `"order" must be none, key, stream or total`},
	} {
		t.Run(name, func(t *testing.T) {
			ph := w.OpenWith(posthorn.Config{})
			test.setUp(ph)
			ctx := await.Context(t)
			err := ph.Run(ctx)
			if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Run returned %v, want %s", err, test.want)
			}
		})
	}
}

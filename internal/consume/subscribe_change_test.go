package consume_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// Handlers with patterns and subscriptions exclude each other: the handlers would miss
// the events that match no subscription.
func TestSubscriptionsAndPatternsAreNotMixed(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, posthorn.Event) error { return nil }
	for name, test := range map[string]struct {
		set  func(w *world, g *posthorn.Group)
		want []string
	}{
		"in one program": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", ofType("e"))
				g.Handle("a", posthorn.Subscribed, nothing)
				g.Handle("b", "order.*", nothing)
			},
			[]string{`handler "b" has patterns`, `"a" is a subscription`, "posthorn.Subscribed"},
		},
		"made elsewhere": {
			func(w *world, g *posthorn.Group) {
				w.Exec("select posthorn.subscribe('default', 'g', 'x', '{}')")
				g.Handle("b", "order.*, user.>", nothing)
			},
			[]string{`handler "b" would get no events`, "posthorn groups subscribe g b --type 'order.*' --type 'user.>'"},
		},
		"nowhere": {
			func(_ *world, g *posthorn.Group) { g.Handle("b", posthorn.Subscribed, nothing) },
			[]string{`subscription that does not exist`, "posthorn groups subscribe g b"},
		},
		"twice": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", ofType("e"))
				g.Subscribe("a", ofType("f"))
			},
			[]string{`"a" is registered twice`},
		},
		"condition and filter": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", posthorn.Subscription{Condition: "true", Filter: posthorn.Filter{Keys: []string{"k"}}})
			},
			[]string{"both Filter and Condition"},
		},
		"bad condition": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", posthorn.Subscription{Condition: "e.colour = 'red'"})
				g.Handle("a", posthorn.Subscribed, nothing)
			},
			[]string{`subscription "a"`, "colour", "A condition is an expression over e"},
		},
		"nothing can match": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", ofType([]string{}...))
				g.Subscribe("b", posthorn.Subscription{Filter: posthorn.Filter{Keys: []string{}}})
				g.Handle("b", posthorn.Subscribed, nothing)
			},
			[]string{`subscription "b"`, "empty list"},
		},
		"short life": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", posthorn.Subscription{ExpireAfter: time.Second})
			},
			[]string{"ExpireAfter must be"},
		},
		"payload": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", posthorn.Subscription{Filter: posthorn.Filter{Payload: make(chan int)}})
			},
			[]string{`subscription "a": filter`},
		},
		"params alone": {
			func(_ *world, g *posthorn.Group) { g.Subscribe("a", posthorn.Subscription{Params: 1}) },
			[]string{"Params are given without Condition"},
		},
		"no name": {
			func(_ *world, g *posthorn.Group) { g.Subscribe("", posthorn.Subscription{}) },
			[]string{"needs a name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.set(w, w.Group("g", testworld.FromBeginning()))
			w.refuses(test.want...)
		})
	}
}

// A handler with patterns goes on by the name of its subscription, as during a
// deploy that turns one into the other, and back.
func TestHandlerBecomesSubscription(t *testing.T) {
	w := newWorld(t)
	var events, versions tally
	handle := func(version string) posthorn.Handler {
		return func(_ context.Context, e posthorn.Event) error {
			events.add("%d", e.ID)
			versions.add("%s", version)
			return nil
		}
	}
	w.Group("g", testworld.FromBeginning()).Handle("h", "e", handle("old"))
	w.Start()
	w.PublishN(10)
	w.settled("g")
	fresh := w.other()
	g := fresh.Group("g", testworld.FromBeginning())
	g.Subscribe("h", ofType("e"))
	g.Handle("h", posthorn.Subscribed, handle("new"))
	stop := fresh.Start()
	w.subscribed(1)
	w.PublishN(100)
	w.settled("g")
	stop()
	again := w.other()
	again.Group("g", testworld.FromBeginning()).Handle("h", "e", handle("back"))
	again.Start()
	w.PublishN(20)
	w.settled("g")
	testworld.Equal(t, "events", len(events.all()), 130)
	calls := versions.all()
	testworld.Equal(t, "calls", calls["old"]+calls["new"]+calls["back"], 130)
	testworld.Equal(t, "dead letters", len(w.deadLetters("g")), 0)
}

// loud is a client of the same database, with its log messages.
func (w *world) loud() (*world, *testworld.Buffer) {
	w.T.Helper()
	log := &testworld.Buffer{}
	return &world{World: testworld.Open(w.T, posthorn.Config{DatabaseURL: w.URL, Logger: slog.New(slog.NewTextHandler(log, nil))})}, log
}

// Somebody makes the first subscription of a group whose handlers have patterns:
// the nodes that run say so.
func TestWithheldEventsAreTold(t *testing.T) {
	w := newWorld(t)
	loud, log := w.loud()
	loud.Group("g", testworld.FromBeginning()).Handle("h", ">", func(context.Context, posthorn.Event) error { return nil })
	loud.Start()
	loud.PublishN(1)
	loud.settled("g")
	w.Exec("select posthorn.subscribe('default', 'g', 'x', '{}')")
	await.True(t, "it is logged", func() bool {
		return strings.Contains(log.String(), `a handler gets no events`) && strings.Contains(log.String(), `handler \"h\" would get no events`)
	})
}

// A subscription is made with its handler, not before: its events would find nobody.
func TestSubscriptionWithoutHandler(t *testing.T) {
	loud, log := newWorld(t).loud()
	g := loud.Group("g", testworld.FromBeginning())
	nothing := func(context.Context, posthorn.Event) error { return nil }
	g.Subscribe("a", ofType("x"))
	g.Handle("a", posthorn.Subscribed, nothing)
	g.Subscribe("b", ofType("y"))
	loud.Start()
	await.True(t, "it is logged", func() bool { return strings.Contains(log.String(), "subscription=b") })
	loud.subscribed(1)
	g.Handle("b", posthorn.Subscribed, nothing)
	loud.subscribed(2)
}

// Subscriptions are added and changed while the program runs and when it is
// deployed anew; one that is gone from it stays, and its events are deadLetters until
// it is removed.
func TestSubscriptionsChange(t *testing.T) {
	w := newWorld(t)
	var got tally
	on := func(c *world, g *posthorn.Group, name, pattern string) {
		g.Subscribe(name, ofType(pattern))
		g.Handle(name, posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
			got.add("%s %s", name, e.Type)
			return nil
		})
	}
	first := w.other()
	g := first.Group("g", testworld.FromBeginning())
	on(first, g, "a", "x")
	stop := first.Start()
	w.subscribed(1)
	on(first, g, "b", "y")
	w.subscribed(2)
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"})
	w.settled("g")
	testworld.Equal(t, "handled", got.all(), map[string]int{"a x": 1, "b y": 1})
	stop()

	second := w.other()
	on(second, second.Group("g", testworld.FromBeginning()), "a", "z")
	second.Start()
	await.True(t, "it is changed", func() bool {
		return testworld.Ask[bool](w, `select params->'type' = '["z"]' from posthorn.subscriptions where name = 'a'`)
	})
	ids := posthorntest.Publish(t, w.Client, posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"})
	w.settled("g")
	testworld.Equal(t, "handled", got.all(), map[string]int{"a x": 1, "b y": 1, "a z": 1})
	testworld.Equal(t, "dead letters", w.deadLetters("g"), []letter{{ids[1], "b", 1, "No handler for event y", ""}})

	owed, err := w.Admin().Unsubscribe(t.Context(), "g", "b")
	if err != nil || owed != 0 {
		t.Errorf("unsubscribe: %d, %v", owed, err)
	}
	_, err = w.Admin().Unsubscribe(t.Context(), "g", "b")
	testworld.WantErr(t, "unsubscribe again", err, posthorn.ErrNotFound)
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "y"})
	w.settled("g")
	testworld.Equal(t, "dead letters", len(w.deadLetters("g")), 1)
}

// seed 000.40: during a rolling deploy the version that lacks a subscription hands
// its events over, from the first one on.
func TestSubscriptionsDuringADeploy(t *testing.T) {
	w := newWorld(t)
	var got tally
	version := func(names ...string) *world {
		c := w.other()
		g := c.Group("g", testworld.FromBeginning())
		for _, name := range names {
			g.Subscribe(name, ofType(name+".*"))
			g.Handle(name, posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
				got.add("%s", name)
				return nil
			})
		}
		c.Start()
		return c
	}
	version("a")
	w.subscribed(1)
	// Published in the very transaction after which there is a second one.
	w.Exec(`create function made() returns trigger language plpgsql as $$ begin
		perform posthorn.publish('default', 'b.first') from generate_series(1, 20); return null; end $$`)
	w.Exec("create trigger made after insert on posthorn.subscriptions for each row when (new.name = 'b') execute function made()")
	version("a", "b")
	w.subscribed(2)
	for range 20 {
		posthorntest.Publish(t, w.Client, posthorn.Message{Type: "a.x"}, posthorn.Message{Type: "b.x"}, posthorn.Message{Type: "b.y"})
	}
	w.settled("g")
	testworld.Equal(t, "dead letters", len(w.deadLetters("g")), 0)
	testworld.Equal(t, "handled", got.all(), map[string]int{"a": 20, "b": 60})
}

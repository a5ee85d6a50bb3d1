package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// A fetched event names its subscriptions; after a failure it is retried for those
// that failed only.
//
// seed 001.45
func TestFetchSubscribed(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	g.Subscribe("a", ofType("x", "y"))
	g.Subscribe("b", ofType("y"))
	w.create(g, 2)
	ids := posthorntest.Publish(t, w.Client, posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"}, posthorn.Message{Type: "y"})
	deliveries := w.FetchAll(g, 3)
	testworld.Equal(t, "events", testworld.IDs(deliveries), []int64{ids[0], ids[1], ids[3]})
	testworld.Equal(t, "subscriptions", [][]string{deliveries[0].Subscriptions, deliveries[1].Subscriptions}, [][]string{{"a"}, {"a", "b"}})
	w.Ack(deliveries[0])
	if err := deliveries[1].Nack(t.Context(), errors.New("no")); err != nil {
		t.Fatal(err)
	}
	if err := deliveries[2].Term(t.Context(), errors.New("never")); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "dead letters", w.deadLetters("g"), []letter{{ids[3], "a", 1, "Handler error", "never"}, {ids[3], "b", 1, "Handler error", "never"}})
	// By now one of them wants it no more, and it is owed to the other alone.
	testworld.Equal(t, "owed", testworld.Ask[string](w, "select string_agg(subscription || ' ' || attempts, ', ' order by subscription) from posthorn.retries"), "a 1, b 1")
	if owed, err := w.Admin().Unsubscribe(t.Context(), "g", "b"); err != nil || owed != 1 {
		t.Fatalf("unsubscribe: %d, %v", owed, err)
	}
	again := w.Fetch(g, 10)
	testworld.Equal(t, "events", testworld.IDs(again), []int64{ids[1]})
	testworld.Equal(t, "subscriptions", again[0].Subscriptions, []string{"a"})
	testworld.Equal(t, "delivery", again[0].Delivery, 2)
	w.Ack(again...)
	w.Nothing(g)
}

// A fetch of few events gets no more than it asked for, however far it has to look.
func TestFetchSubscribedFewOfMany(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	g.Subscribe("a", ofType("wanted"))
	w.create(g, 1)
	w.PublishN(1000) // of another type
	var want []int64
	for range 30 {
		want = append(want, posthorntest.Publish(t, w.Client, posthorn.Message{Type: "wanted"})...)
	}
	w.PublishN(1000)
	var got []int64
	for len(got) < len(want) {
		deliveries := w.Fetch(g, 4)
		if len(deliveries) > 4 {
			t.Fatalf("fetched %d events, asked for 4", len(deliveries))
		}
		for _, d := range deliveries {
			got = append(got, d.ID)
			testworld.Equal(t, "delivery", d.Delivery, 1)
		}
		w.Ack(deliveries...)
	}
	slices.Sort(got) // the events that were cut off come later
	testworld.Equal(t, "events", got, want)
	w.Nothing(g)
}

// A message for one subscription reaches nobody else, and is retried and deadLetters
// like others.
//
// seed 001.11, 001.12
func TestPublishTo(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	var got tally
	g := w.Group("g", testworld.FromBeginning())
	for _, name := range []string{"a", "b"} {
		g.Subscribe(name, posthorn.Subscription{})
		g.Handle(name, posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
			got.add("%s %s %s %s %v %s", name, e.Type, e.Stream, e.Key, e.Tags, e.Payload)
			if e.Type == "bad" {
				return errors.New("no")
			}
			return nil
		})
	}
	other := w.Group("other", testworld.FromBeginning())
	other.Handle("h", ">", func(context.Context, posthorn.Event) error { got.add("other"); return nil })
	w.Start()
	w.subscribed(2)
	tx := w.Begin()
	if _, err := w.PublishTo(ctx, tx, "g", "a", posthorn.Message{Type: "undone"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	ids, err := w.PublishTo(ctx, w.Pool(), "g", "b",
		posthorn.Message{Type: "plain"},
		posthorn.Message{Type: "full", Stream: "s", Key: "k", Tags: []string{"x", `y"z`}, Payload: []int{1}},
		posthorn.Message{Type: "bad"},
		posthorn.Message{Type: "later", DeliverAt: time.Now().Add(24 * time.Hour)},
	)
	if err != nil || len(ids) != 4 || !slices.IsSorted(ids) {
		t.Fatalf("publish to: %v, %v", ids, err)
	}
	await.True(t, "it is done", func() bool { return len(w.deadLetters("g")) == 1 && len(got.all()) == 3 })
	testworld.Equal(t, "handled", got.all(), map[string]int{
		"b plain default  [] {}": 1, `b full s k [x y"z] [1]`: 1, "b bad default  [] {}": 3,
	})
	testworld.Equal(t, "dead letters", w.deadLetters("g"), []letter{{ids[2], "b", 3, "Handler error", "no"}})
	testworld.Equal(t, "owed", testworld.Ask[string](w, "select string_agg(subscription, ',') from posthorn.retries where due_at > posthorn.now() + interval '1 hour'"), "b")
	w.TurnClock(25 * time.Hour)
	await.True(t, "its time has come", func() bool { return got.all()["b later default  [] {}"] == 1 })

	_, err = w.PublishTo(ctx, w.Pool(), "g", "nobody", posthorn.Message{Type: "e"})
	testworld.WantErr(t, "to nobody", err, posthorn.ErrNotFound)
	_, err = w.PublishTo(ctx, w.Pool(), "nowhere", "a", posthorn.Message{Type: "e"})
	testworld.WantErr(t, "to no group", err, posthorn.ErrNotFound)
	_, err = w.PublishTo(ctx, w.Pool(), "g", "a", posthorn.Message{Type: "e"}, posthorn.Message{})
	testworld.WantErr(t, "no type", err, posthorn.ErrInvalid)
	_, err = w.PublishTo(ctx, w.Pool(), "g", "a", posthorn.Message{Type: "e", DedupKey: "k"})
	testworld.WantErr(t, "a dedup key", err, posthorn.ErrInvalid)
	if ids, err := w.PublishTo(ctx, w.Pool(), "g", "a"); ids != nil || err != nil {
		t.Errorf("publish nothing: %v, %v", ids, err)
	}
}

// A subscription that may expire stays as long as somebody consumes its group,
// also when nothing is published, by Run or by Fetch.
//
// seed 001.28
func TestSubscriptionsAreKept(t *testing.T) {
	t.Parallel()
	want := posthorn.Subscription{ExpireAfter: time.Hour}
	for name, consume := range map[string]func(w *world, g *posthorn.Group) (stop func()){
		"run": func(w *world, g *posthorn.Group) func() {
			g.Handle("a", posthorn.Subscribed, func(context.Context, posthorn.Event) error { return nil })
			return w.Start()
		},
		"fetch": func(w *world, g *posthorn.Group) func() {
			ctx, cancel := context.WithCancel(w.T.Context())
			var fetching sync.WaitGroup
			fetching.Go(func() { _, _ = g.Fetch(ctx, 1) })
			return func() { cancel(); fetching.Wait() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			consumer := w.other()
			g := consumer.Group("g", testworld.FromBeginning())
			g.Subscribe("a", want)
			stop := consume(consumer, g)
			w.subscribed(1)
			for hours := 1; hours <= 3; hours++ {
				before := time.Duration(hours)*50*time.Minute - time.Minute
				w.TurnClock(before)
				await.True(t, "it is kept", func() bool {
					return testworld.Ask[bool](w, "select expires_at > posthorn.now() + interval '55 minutes' from posthorn.subscriptions")
				})
			}
			stop()
			// A statement that the program has sent may run a moment longer than the program: it may keep the subscription
			// once more, and of two calls that do the upkeep at once, one does nothing.
			hours := 3 * time.Hour
			await.True(t, "it expires", func() bool {
				hours += 2 * time.Hour
				w.TurnClock(hours)
				w.Exec("select posthorn.tend()")
				return testworld.Ask[int](w, "select count(*) from posthorn.subscriptions") == 0
			})
			testworld.Equal(t, "groups", testworld.Ask[int](w, "select count(*) from posthorn.groups"), 0)
		})
	}
}

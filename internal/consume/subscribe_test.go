package consume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// refuses sees to it that Run ends by itself with an error and a hint.
func (w *world) refuses(want ...string) {
	w.T.Helper()
	ctx := await.Context(w.T)
	err := w.Run(ctx)
	if err == nil {
		w.T.Fatal("Run accepts it")
	}
	for _, part := range want {
		if !strings.Contains(err.Error()+"; "+posthorn.Hint(err), part) {
			w.T.Errorf("error %q, hint %q: want %q", err, posthorn.Hint(err), part)
		}
	}
}

// subscribed waits until the database has that many subscriptions.
func (w *world) subscribed(n int) {
	w.T.Helper()
	w.Await("select count(*) = $1 from posthorn.subscriptions", n)
}

// tally counts the calls of handlers.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(format string, args ...any) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	line := fmt.Sprintf(format, args...)
	c.counts[line]++
	return c.counts[line]
}

func (c *tally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for line, n := range c.counts {
		all[line] = n
	}
	return all
}

func ofType(patterns ...string) posthorn.Subscription {
	return posthorn.Subscription{Filter: posthorn.Filter{Types: patterns}}
}

func TestFilterAsJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		filter posthorn.Filter
		want   string
	}{
		{posthorn.Filter{}, `{}`},
		{posthorn.Filter{Types: []string{}}, `{"type":[]}`},
		{
			posthorn.Filter{
				Types: []string{"a.*", "b"}, Streams: []string{"s"}, Keys: []string{"k"}, TagsAny: []string{"x"}, TagsAll: []string{"y", "z"},
				Payload: map[string]any{"shop": 7},
			},
			`{"type":["a.*","b"],"stream":["s"],"key":["k"],"tags_any":["x"],"tags_all":["y","z"],"payload":{"shop":7}}`,
		},
	} {
		got, err := json.Marshal(test.filter)
		if err != nil || string(got) != test.want {
			t.Errorf("%s, %v; want %s", got, err, test.want)
		}
	}
}

// Each subscription gets the events that match it, with every form of handler; events
// that match none are skipped.
//
// seed 001.21, 001.23, 001.50
func TestSubscribe(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (event_id bigint, by text)")
	var got tally
	g := w.Group("g", testworld.FromBeginning())
	g.Subscribe("each", posthorn.Subscription{Filter: posthorn.Filter{Types: []string{"order.*"}, Keys: []string{"7", "8"}}})
	g.Handle("each", posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
		got.add("each %d", e.ID)
		return nil
	})
	g.Subscribe("tx", posthorn.Subscription{Filter: posthorn.Filter{TagsAny: []string{"web", "app"}}})
	g.HandleTx("tx", posthorn.Subscribed, func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		got.add("tx %d", e.ID)
		_, err := tx.Exec(ctx, "insert into effects values ($1, 'tx')", e.ID)
		return err
	})
	g.Subscribe("batch", posthorn.Subscription{Filter: posthorn.Filter{TagsAll: []string{"web", "paid"}}})
	g.HandleBatch("batch", posthorn.Subscribed, func(_ context.Context, events []posthorn.Event) error {
		for _, e := range events {
			got.add("batch %d", e.ID)
		}
		return nil
	})
	// The SQL is the application's, the numbers are the subscription's.
	g.Subscribe("large", posthorn.Subscription{
		Condition: "e.type = 'order.placed' and (e.payload->>'Cents')::int >= (s.params->>'from')::int",
		Params:    map[string]int{"from": 1000},
	})
	posthorn.On(g, "large", posthorn.Subscribed, func(_ context.Context, e posthorn.Event, o cents) error {
		got.add("large %d %d", e.ID, o.Cents)
		return nil
	})
	w.Start()
	w.subscribed(4)
	ids := posthorntest.Publish(t, w.Client,
		posthorn.Message{Type: "order.placed", Key: "7", Tags: []string{"web"}, Payload: cents{Cents: 1990}},
		posthorn.Message{Type: "order.placed", Key: "9", Tags: []string{"paid", "web"}, Payload: cents{Cents: 10}},
		posthorn.Message{Type: "user.born", Key: "7"},
		posthorn.Message{Type: "order.placed", Key: "9", Payload: cents{Cents: 1000}},
	)
	w.settled("g")
	want := map[string]int{}
	for _, line := range []string{
		fmt.Sprintf("each %d", ids[0]), fmt.Sprintf("tx %d", ids[0]), fmt.Sprintf("large %d 1990", ids[0]),
		fmt.Sprintf("tx %d", ids[1]), fmt.Sprintf("batch %d", ids[1]),
		fmt.Sprintf("large %d 1000", ids[3]),
	} {
		want[line] = 1
	}
	testworld.Equal(t, "handled", got.all(), want)
	testworld.Equal(t, "effects", testworld.Ask[int](w, "select count(*) from effects"), 2)
	testworld.Equal(t, "dead letters", len(w.deadLetters("g")), 0)
}

// An event that one subscription's handler fails at is retried for that subscription
// only, after its own delay, and buried for it only.
//
// seed 001.45, 001.46, 001.47, 001.48, 001.49
func TestSubscriptionFailsAlone(t *testing.T) {
	w := newWorld(t)
	var got tally
	g := w.Group("g", testworld.FromBeginning())
	for _, name := range []string{"good", "bad", "late"} {
		g.Subscribe(name, ofType("e"))
	}
	g.Handle("good", posthorn.Subscribed, func(context.Context, posthorn.Event) error {
		got.add("good")
		return nil
	})
	g.Handle("bad", posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
		got.add("bad, delivery %d, for %v", e.Delivery, e.Subscriptions)
		return errors.New("no")
	})
	g.Handle("late", posthorn.Subscribed, func(context.Context, posthorn.Event) error {
		if got.add("late") == 1 {
			return posthorn.RetryAfter(time.Hour, errors.New("busy"))
		}
		return nil
	})
	w.Start()
	w.subscribed(3)
	id := w.PublishN(1)[0]
	await.True(t, "it is buried for one, and waits for another", func() bool {
		return len(w.deadLetters("g")) == 1 && testworld.Ask[bool](w, `select count(*) = 1
			and bool_and(subscription = 'late' and lease_id is null and due_at > posthorn.now() + interval '50 minutes') from posthorn.retries`)
	})
	testworld.Equal(t, "dead letters", w.deadLetters("g"), []letter{{id, "bad", 3, "Handler error", "no"}})
	w.TurnClock(2 * time.Hour)
	w.settled("g")
	testworld.Equal(t, "handled", got.all(), map[string]int{
		"good": 1, "late": 2,
		"bad, delivery 1, for [good bad late]": 1, "bad, delivery 2, for [bad]": 1, "bad, delivery 3, for [bad]": 1,
	})
}

// A handler that hangs stops neither the other subscriptions of its group nor reading
// ahead, and its time is limited.
//
// seed 001.50, 001.54, 001.55, 001.57, 001.59
func TestSlowSubscriptionHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.BatchSize = 20
	config.Timeout = time.Hour
	g := w.Group("g", config)
	release := make(chan struct{})
	var got tally
	g.Subscribe("slow", posthorn.Subscription{Filter: posthorn.Filter{Keys: []string{"slow"}}})
	g.Handle("slow", posthorn.Subscribed, func(ctx context.Context, _ posthorn.Event) error {
		got.add("slow")
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	g.Subscribe("quick", posthorn.Subscription{Filter: posthorn.Filter{Keys: []string{"k"}}})
	g.Handle("quick", posthorn.Subscribed, func(context.Context, posthorn.Event) error {
		got.add("quick")
		return nil
	})
	w.Start()
	w.subscribed(2)
	const slow, events = 5, 500 // half of the concurrency
	for range slow {
		posthorntest.Publish(t, w.Client, posthorn.Message{Type: "e", Key: "slow"})
	}
	for range 5 {
		w.PublishN(events / 5)
	}
	await.True(t, "the others go on", func() bool { return got.all()["quick"] == events })
	testworld.Equal(t, "calls of the slow handler", got.all()["slow"], slow)
	if n := testworld.Ask[int](w, "select count(*) from posthorn.leases"); n > 10 {
		t.Errorf("%d leases are read ahead", n)
	}
	close(release)
	w.settled("g")
	testworld.Equal(t, "dead letters", len(w.deadLetters("g")), 0)
}

// A handler whose time is over has failed at its event, alone.
//
// seed 001.58
func TestSubscriptionTimeout(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.Timeout = 50 * time.Millisecond
	config.Attempts = 1
	g := w.Group("g", config)
	g.Subscribe("hangs", ofType("e"))
	g.Handle("hangs", posthorn.Subscribed, func(ctx context.Context, _ posthorn.Event) error {
		<-ctx.Done()
		return ctx.Err()
	})
	g.Subscribe("fine", ofType("e"))
	var got tally
	g.Handle("fine", posthorn.Subscribed, func(context.Context, posthorn.Event) error {
		got.add("fine")
		return nil
	})
	w.Start()
	w.subscribed(2)
	w.PublishN(3)
	w.settled("g")
	testworld.Equal(t, "handled", got.all(), map[string]int{"fine": 3})
	letters := w.deadLetters("g")
	if len(letters) != 3 || slices.ContainsFunc(letters, func(l letter) bool {
		return l.Subscription != "hangs" || l.Attempts != 1 || !strings.Contains(l.Error, "used up its time")
	}) {
		t.Errorf("dead letters %+v", letters)
	}
}

// An event for which a condition fails is a dead letter of that subscription, which
// goes on. Bringing it back evaluates the condition that there is then.
func TestConditionFails(t *testing.T) {
	w := newWorld(t)
	var got tally
	handle := func(c *world, condition string) *posthorn.Group {
		g := c.Group("g", testworld.FromBeginning())
		g.Subscribe("picky", posthorn.Subscription{Condition: condition})
		g.Handle("picky", posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
			got.add("picky %s", e.Payload)
			return nil
		})
		g.Subscribe("all", posthorn.Subscription{})
		g.Handle("all", posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
			got.add("all %s", e.Payload)
			return nil
		})
		return g
	}
	handle(w, "e.payload::text::int > 1")
	stop := w.Start()
	w.subscribed(2)
	for _, payload := range []any{1, 2, "x", 3} {
		posthorntest.Publish(t, w.Client, posthorn.Message{Type: "e", Payload: payload})
	}
	w.settled("g")
	status, err := w.Admin().Subscriptions(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range status {
		testworld.Equal(t, s.Name, s.State, "active")
	}
	testworld.Equal(t, "handled", got.all(), map[string]int{"all 1": 1, "all 2": 1, "all 3": 1, `all "x"`: 1, "picky 2": 1, "picky 3": 1})
	if letters := w.deadLetters("g"); len(letters) != 1 || letters[0].Reason != "Condition failed" {
		t.Errorf("dead letters %+v", letters)
	}
	stop()

	mended := w.other()
	handle(mended, "e.payload = '\"x\"'")
	mended.Start()
	mended.subscribed(2)
	await.True(t, "the condition is the new one", func() bool {
		status, err := w.Admin().Subscriptions(t.Context(), "g")
		return err == nil && strings.Contains(status[1].Condition, "=")
	})
	if n, err := w.Admin().Redrive(t.Context(), admin.DeadLetterFilter{Group: "g"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	await.True(t, "it comes back", func() bool { return got.all()[`picky "x"`] == 1 })
}

type cents struct{ Cents int }

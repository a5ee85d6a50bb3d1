package posthorn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// start lets the client run until the test ends, or stop is called.
func (w *world) start() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// refuses sees to it that Run ends by itself with an error and a hint.
func (w *world) refuses(want ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	err := w.Run(ctx)
	if err == nil {
		w.t.Fatal("Run accepts it")
	}
	for _, part := range want {
		if !strings.Contains(err.Error()+"; "+posthorn.Hint(err), part) {
			w.t.Errorf("error %q, hint %q: want %q", err, posthorn.Hint(err), part)
		}
	}
}

// send publishes messages, and returns the ids.
func (w *world) send(messages ...posthorn.Message) []int64 {
	w.t.Helper()
	ids, err := w.Publish(w.t.Context(), w.Pool(), messages...)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

// done returns when a group has nothing left to do.
func (w *world) done(group string) {
	w.t.Helper()
	eventually(w.t, group+" is done", func() bool {
		return ask[bool](w, `select exists (select from posthorn.group_status
			where group_name = $1 and lag_events = 0 and leases = 0 and retries = 0)`, group)
	})
}

// subscribed waits until the database has that many subscriptions.
func (w *world) subscribed(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d subscriptions", n), func() bool {
		return ask[int](w, "select count(*) from posthorn.subscriptions") == n
	})
}

func (w *world) buried(group string) []string {
	w.t.Helper()
	var letters []string
	for letter, err := range w.DeadLetters(w.t.Context(), group, posthorn.DeadLetterFilter{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		letters = append(letters, fmt.Sprintf("%d %s %d %s: %s", letter.EventID, letter.Subscription, letter.Attempts, letter.Reason, letter.Error))
	}
	return letters
}

// tally counts what handlers were called with.
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

// Each subscription gets what it wants, in every form of handler, and what none
// wants is passed over.
//
// seed 001.21, 001.23, 001.50
func TestSubscribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("create table effects (event_id bigint, by text)")
	var got tally
	g := w.Group("g", fromBeginning())
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
	posthorn.On(g, "large", posthorn.Subscribed, func(_ context.Context, e posthorn.Event, o Order) error {
		got.add("large %d %d", e.ID, o.Cents)
		return nil
	})
	w.start()
	w.subscribed(4)
	ids := w.send(
		posthorn.Message{Type: "order.placed", Key: "7", Tags: []string{"web"}, Payload: Order{Cents: 1990}},
		posthorn.Message{Type: "order.placed", Key: "9", Tags: []string{"paid", "web"}, Payload: Order{Cents: 10}},
		posthorn.Message{Type: "user.born", Key: "7"},
		posthorn.Message{Type: "order.placed", Key: "9", Payload: Order{Cents: 1000}},
	)
	w.done("g")
	want := map[string]int{}
	for _, line := range []string{
		fmt.Sprintf("each %d", ids[0]), fmt.Sprintf("tx %d", ids[0]), fmt.Sprintf("large %d 1990", ids[0]),
		fmt.Sprintf("tx %d", ids[1]), fmt.Sprintf("batch %d", ids[1]),
		fmt.Sprintf("large %d 1000", ids[3]),
	} {
		want[line] = 1
	}
	equal(t, "handled", got.all(), want)
	equal(t, "effects", ask[int](w, "select count(*) from effects"), 2)
	equal(t, "dead letters", len(w.buried("g")), 0)
}

// What one subscription's handler fails at comes again for it alone, after its own
// delay, and is buried for it alone.
//
// seed 001.45, 001.46, 001.47, 001.48, 001.49
func TestSubscriptionFailsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got tally
	g := w.Group("g", fromBeginning())
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
	w.start()
	w.subscribed(3)
	id := w.publish(1)[0]
	eventually(t, "it is buried for one, and waits for another", func() bool {
		return len(w.buried("g")) == 1 && ask[bool](w, `select count(*) = 1
			and bool_and(subscription = 'late' and lease_id is null and due_at > posthorn.now() + interval '50 minutes') from posthorn.retries`)
	})
	equal(t, "dead letters", w.buried("g"), []string{fmt.Sprintf("%d bad 3 Handler error: no", id)})
	w.turnClock(2 * time.Hour)
	w.done("g")
	equal(t, "handled", got.all(), map[string]int{
		"good": 1, "late": 2,
		"bad, delivery 1, for [good bad late]": 1, "bad, delivery 2, for [bad]": 1, "bad, delivery 3, for [bad]": 1,
	})
}

// A handler that does not get on holds up neither the other subscriptions of its
// group nor what is read ahead, and its time is limited.
//
// seed 001.50, 001.54, 001.55, 001.57, 001.59
func TestSlowSubscriptionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := fromBeginning()
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
	w.start()
	w.subscribed(2)
	const slow, events = 5, 500 // half of what may run at once
	for range slow {
		w.send(posthorn.Message{Type: "e", Key: "slow"})
	}
	for range 5 {
		w.publish(events / 5)
	}
	eventually(t, "the others go on", func() bool { return got.all()["quick"] == events })
	equal(t, "calls of the slow handler", got.all()["slow"], slow)
	if n := ask[int](w, "select count(*) from posthorn.leases"); n > 10 {
		t.Errorf("%d leases are read ahead", n)
	}
	close(release)
	w.done("g")
	equal(t, "dead letters", len(w.buried("g")), 0)
}

// A handler whose time is over has failed at its event, alone.
//
// seed 001.58
func TestSubscriptionTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := fromBeginning()
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
	w.start()
	w.subscribed(2)
	w.publish(3)
	w.done("g")
	equal(t, "handled", got.all(), map[string]int{"fine": 3})
	letters := w.buried("g")
	if len(letters) != 3 || slices.ContainsFunc(letters, func(l string) bool {
		return !strings.Contains(l, " hangs 1 ") || !strings.Contains(l, "used up its time")
	}) {
		t.Errorf("dead letters %q", letters)
	}
}

// A condition that fails at run time stops its subscription alone, and what that
// missed comes when it is replaced.
func TestConditionFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got tally
	handle := func(c *world, condition string) *posthorn.Group {
		g := c.Group("g", fromBeginning())
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
	stop := w.start()
	w.subscribed(2)
	w.send(posthorn.Message{Type: "e", Payload: 1}, posthorn.Message{Type: "e", Payload: 2})
	w.done("g")
	w.send(posthorn.Message{Type: "e", Payload: 3}, posthorn.Message{Type: "e", Payload: "x"})
	w.done("g")
	w.send(posthorn.Message{Type: "e", Payload: 4})
	w.done("g")
	status, err := w.Subscriptions(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if s := status[1]; s.Name != "picky" || s.State != posthorn.SubscriptionStopped || s.StoppedAt.IsZero() || !strings.Contains(s.Error, "integer") {
		t.Errorf("status %+v", s)
	}
	equal(t, "state of the other", status[0].State, posthorn.SubscriptionActive)
	equal(t, "handled", got.all(), map[string]int{"all 1": 1, "all 2": 1, "all 3": 1, `all "x"`: 1, "all 4": 1, "picky 2": 1})
	stop()

	mended := w.other()
	handle(mended, "jsonb_typeof(e.payload) = 'number' and e.payload::text::int > 1")
	mended.start()
	eventually(t, "it gets what it missed", func() bool { return got.all()["picky 3"] == 1 && got.all()["picky 4"] == 1 })
	eventually(t, "it has caught up", func() bool {
		status, err := w.Subscriptions(t.Context(), "g")
		return err == nil && status[1].State == posthorn.SubscriptionActive && status[1].Error == ""
	})
	w.done("g")
	equal(t, "handled", got.all(), map[string]int{
		"all 1": 1, "all 2": 1, "all 3": 1, `all "x"`: 1, "all 4": 1, "picky 2": 1, "picky 3": 1, "picky 4": 1,
	})
}

// What has patterns and what has a subscription do not go together: the former
// would get nothing that no subscription wants.
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
				w.exec("select posthorn.subscribe('default', 'g', 'x', '{}')")
				g.Handle("b", "order.*, user.>", nothing)
			},
			[]string{`handler "b" would get nothing`, "posthorn groups subscribe g b --type 'order.*' --type 'user.>'"},
		},
		"nowhere": {
			func(_ *world, g *posthorn.Group) { g.Handle("b", posthorn.Subscribed, nothing) },
			[]string{`subscription that is not there`, "posthorn groups subscribe g b"},
		},
		"twice": {
			func(_ *world, g *posthorn.Group) {
				g.Subscribe("a", ofType("e"))
				g.Subscribe("a", ofType("f"))
			},
			[]string{`"a" is there already`},
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
			func(_ *world, g *posthorn.Group) { g.Subscribe("a", posthorn.Subscription{ExpireAfter: time.Second}) },
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
			t.Parallel()
			w := newWorld(t)
			test.set(w, w.Group("g", fromBeginning()))
			w.refuses(test.want...)
		})
	}
}

// A handler with patterns goes on by the name of its subscription, as during a
// deploy that turns one into the other, and back.
func TestHandlerBecomesSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var events, versions tally
	handle := func(version string) posthorn.Handler {
		return func(_ context.Context, e posthorn.Event) error {
			events.add("%d", e.ID)
			versions.add("%s", version)
			return nil
		}
	}
	w.Group("g", fromBeginning()).Handle("h", "e", handle("old"))
	w.start()
	w.publish(10)
	w.done("g")
	fresh := w.other()
	g := fresh.Group("g", fromBeginning())
	g.Subscribe("h", ofType("e"))
	g.Handle("h", posthorn.Subscribed, handle("new"))
	stop := fresh.start()
	w.subscribed(1)
	w.publish(100)
	w.done("g")
	stop()
	again := w.other()
	again.Group("g", fromBeginning()).Handle("h", "e", handle("back"))
	again.start()
	w.publish(20)
	w.done("g")
	equal(t, "events", len(events.all()), 130)
	calls := versions.all()
	equal(t, "calls", calls["old"]+calls["new"]+calls["back"], 130)
	equal(t, "dead letters", len(w.buried("g")), 0)
}

// Somebody makes the first subscription of a group whose handlers have patterns:
// the nodes that run say so.
func TestWithheldEventsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log lines
	c, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: w.url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	loud := &world{c, t, w.url}
	loud.Group("g", fromBeginning()).Handle("h", ">", func(context.Context, posthorn.Event) error { return nil })
	loud.start()
	loud.publish(1)
	loud.done("g")
	w.exec("select posthorn.subscribe('default', 'g', 'x', '{}')")
	eventually(t, "it is logged", func() bool {
		return log.contain(`events are withheld from a handler`) && log.contain(`handler \"h\" would get nothing`)
	})
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) contain(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text.Bytes(), []byte(text))
}

// Subscriptions are added and changed while the program runs and when it is
// deployed anew; one that is gone from it stays, and its events are buried until
// it is removed.
func TestSubscriptionsChange(t *testing.T) {
	t.Parallel()
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
	g := first.Group("g", fromBeginning())
	on(first, g, "a", "x")
	stop := first.start()
	w.subscribed(1)
	on(first, g, "b", "y")
	w.subscribed(2)
	w.send(posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"})
	w.done("g")
	equal(t, "handled", got.all(), map[string]int{"a x": 1, "b y": 1})
	stop()

	second := w.other()
	on(second, second.Group("g", fromBeginning()), "a", "z")
	second.start()
	eventually(t, "it is changed", func() bool {
		return ask[bool](w, `select params->'type' = '["z"]' from posthorn.subscriptions where name = 'a'`)
	})
	ids := w.send(posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"})
	w.done("g")
	equal(t, "handled", got.all(), map[string]int{"a x": 1, "b y": 1, "a z": 1})
	equal(t, "dead letters", w.buried("g"), []string{fmt.Sprintf("%d b 1 No handler for event y: ", ids[1])})

	owed, err := w.Unsubscribe(t.Context(), "g", "b")
	if err != nil || owed != 0 {
		t.Errorf("unsubscribe: %d, %v", owed, err)
	}
	_, err = w.Unsubscribe(t.Context(), "g", "b")
	wantErr(t, "unsubscribe again", err, posthorn.ErrNotFound)
	w.send(posthorn.Message{Type: "y"})
	w.done("g")
	equal(t, "dead letters", len(w.buried("g")), 1)
}

// seed 000.40: during a rolling deploy the version that lacks a subscription hands
// its events over, from the first one on.
func TestSubscriptionsDuringADeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got tally
	version := func(names ...string) *world {
		c := w.other()
		g := c.Group("g", fromBeginning())
		for _, name := range names {
			g.Subscribe(name, ofType(name+".*"))
			g.Handle(name, posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
				got.add("%s", name)
				return nil
			})
		}
		c.start()
		return c
	}
	version("a")
	w.subscribed(1)
	// Published in the very transaction after which there is a second one.
	w.exec(`create function made() returns trigger language plpgsql as $$ begin
		perform posthorn.publish('default', 'b.first') from generate_series(1, 20); return null; end $$`)
	w.exec("create trigger made after insert on posthorn.subscriptions for each row when (new.name = 'b') execute function made()")
	version("a", "b")
	w.subscribed(2)
	for range 20 {
		w.send(posthorn.Message{Type: "a.x"}, posthorn.Message{Type: "b.x"}, posthorn.Message{Type: "b.y"})
	}
	w.done("g")
	equal(t, "dead letters", len(w.buried("g")), 0)
	equal(t, "handled", got.all(), map[string]int{"a": 20, "b": 60})
}

// Whoever fetches is told which subscriptions an event is for; what fails comes
// again for those alone.
//
// seed 001.45
func TestFetchSubscribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", fromBeginning())
	g.Subscribe("a", ofType("x", "y"))
	g.Subscribe("b", ofType("y"))
	w.nothing(g)
	ids := w.send(posthorn.Message{Type: "x"}, posthorn.Message{Type: "y"}, posthorn.Message{Type: "z"}, posthorn.Message{Type: "y"})
	deliveries := w.fetchAll(g, 3)
	equal(t, "events", idsOf(deliveries), []int64{ids[0], ids[1], ids[3]})
	equal(t, "subscriptions", [][]string{deliveries[0].Subscriptions, deliveries[1].Subscriptions}, [][]string{{"a"}, {"a", "b"}})
	w.ack(deliveries[0])
	if err := deliveries[1].Nack(t.Context(), errors.New("no")); err != nil {
		t.Fatal(err)
	}
	if err := deliveries[2].Term(t.Context(), errors.New("never")); err != nil {
		t.Fatal(err)
	}
	equal(t, "dead letters", w.buried("g"), []string{
		fmt.Sprintf("%d a 1 Handler error: never", ids[3]), fmt.Sprintf("%d b 1 Handler error: never", ids[3]),
	})
	// By now one of them wants it no more, and it is owed to the other alone.
	equal(t, "owed", ask[string](w, "select string_agg(subscription || ' ' || attempts, ', ' order by subscription) from posthorn.retries"), "a 1, b 1")
	if owed, err := w.Unsubscribe(t.Context(), "g", "b"); err != nil || owed != 1 {
		t.Fatalf("unsubscribe: %d, %v", owed, err)
	}
	again := w.fetch(g, 10)
	equal(t, "events", idsOf(again), []int64{ids[1]})
	equal(t, "subscriptions", again[0].Subscriptions, []string{"a"})
	equal(t, "delivery", again[0].Delivery, 2)
	w.ack(again...)
	w.nothing(g)
}

// A fetch of few events gets no more than it asked for, however far it has to look.
func TestFetchSubscribedFewOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", fromBeginning())
	g.Subscribe("a", ofType("wanted"))
	w.nothing(g)
	w.publish(3000) // of another type
	var want []int64
	for range 30 {
		want = append(want, w.send(posthorn.Message{Type: "wanted"})...)
	}
	w.publish(3000)
	var got []int64
	for len(got) < len(want) {
		deliveries := w.fetch(g, 4)
		if len(deliveries) > 4 {
			t.Fatalf("fetched %d events, asked for 4", len(deliveries))
		}
		for _, d := range deliveries {
			got = append(got, d.ID)
			equal(t, "delivery", d.Delivery, 1)
		}
		w.ack(deliveries...)
	}
	slices.Sort(got) // what was cut off comes when its turn is
	equal(t, "events", got, want)
	w.nothing(g)
}

// A message for one subscription reaches nobody else, and is retried and buried
// like others.
//
// seed 001.11, 001.12
func TestPublishTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	var got tally
	g := w.Group("g", fromBeginning())
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
	other := w.Group("other", fromBeginning())
	other.Handle("h", ">", func(context.Context, posthorn.Event) error { got.add("other"); return nil })
	w.start()
	w.subscribed(2)
	tx := w.begin()
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
	eventually(t, "it is done", func() bool { return len(w.buried("g")) == 1 && len(got.all()) == 3 })
	equal(t, "handled", got.all(), map[string]int{
		"b plain default  [] {}": 1, `b full s k [x y"z] [1]`: 1, "b bad default  [] {}": 3,
	})
	equal(t, "dead letters", w.buried("g"), []string{fmt.Sprintf("%d b 3 Handler error: no", ids[2])})
	equal(t, "owed", ask[string](w, "select string_agg(subscription, ',') from posthorn.retries where due_at > posthorn.now() + interval '1 hour'"), "b")
	w.turnClock(25 * time.Hour)
	eventually(t, "its time has come", func() bool { return got.all()["b later default  [] {}"] == 1 })

	_, err = w.PublishTo(ctx, w.Pool(), "g", "nobody", posthorn.Message{Type: "e"})
	wantErr(t, "to nobody", err, posthorn.ErrNotFound)
	_, err = w.PublishTo(ctx, w.Pool(), "nowhere", "a", posthorn.Message{Type: "e"})
	wantErr(t, "to no group", err, posthorn.ErrNotFound)
	_, err = w.PublishTo(ctx, w.Pool(), "g", "a", posthorn.Message{Type: "e"}, posthorn.Message{})
	wantErr(t, "no type", err, posthorn.ErrInvalid)
	_, err = w.PublishTo(ctx, w.Pool(), "g", "a", posthorn.Message{Type: "e", DedupKey: "k"})
	wantErr(t, "a dedup key", err, posthorn.ErrInvalid)
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
			return w.start()
		},
		"fetch": func(w *world, g *posthorn.Group) func() {
			ctx, cancel := context.WithCancel(w.t.Context())
			var fetching sync.WaitGroup
			fetching.Go(func() { _, _ = g.Fetch(ctx, 1) })
			return func() { cancel(); fetching.Wait() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			consumer := w.other()
			g := consumer.Group("g", fromBeginning())
			g.Subscribe("a", want)
			stop := consume(consumer, g)
			w.subscribed(1)
			for hours := 1; hours <= 3; hours++ {
				before := time.Duration(hours)*50*time.Minute - time.Minute
				w.turnClock(before)
				eventually(t, "it is kept", func() bool {
					return ask[bool](w, "select expires_at > posthorn.now() + interval '55 minutes' from posthorn.subscriptions")
				})
			}
			stop()
			w.turnClock(5 * time.Hour)
			w.exec("select posthorn.tend()")
			w.subscribed(0)
			equal(t, "groups", ask[int](w, "select count(*) from posthorn.groups"), 0)
		})
	}
}

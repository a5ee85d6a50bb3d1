package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// seed 000.43: a lease lives as long as somebody works on it.
func TestLeasesLiveWhileHandlersRun(t *testing.T) {
	w := newWorld(t)
	config := quick
	config.LeaseFor, config.BatchSize = time.Second, 1
	release := make(chan struct{})
	move := w.StopClock()
	for range 2 {
		ph := w.OpenWith(posthorn.Config{})
		ph.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
			w.say("%d", e.Delivery)
			<-release
			return nil
		})
		testworld.Run(t, ph)
	}
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "order.placed"})
	w.awaitLines(1)
	for range 2 {
		move(config.LeaseFor * 3 / 4)
		w.Await("select exists (select from posthorn.leases where until = posthorn.now() + $1)", config.LeaseFor)
	}
	close(release)
	w.settled("billing")
	if diff := cmp.Diff([]string{"1"}, w.lines()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// Events that are done at the head of a lease are settled while its tail is handled, so
// that a crash repeats little.
func TestTheHeadIsSettledWhileTheTailIsHandled(t *testing.T) {
	w := newWorld(t)
	config := quick
	config.LeaseFor, config.Concurrency = time.Second, 1
	ph := w.OpenWith(posthorn.Config{})
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 5)...)
	ph.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		if e.ID == ids[1] {
			return posthorn.RetryAfter(time.Hour, errors.New("bad"))
		}
		if e.ID == ids[3] {
			<-hold
		}
		return nil
	})
	testworld.Run(t, ph)
	t.Cleanup(release) // before Run is awaited
	w.Await("select exists (select from posthorn.leases where lo = $1)", ids[2])
	w.Await("select exists (select from posthorn.retries where event_id = $1 and error = 'bad' and due_at > posthorn.now() + interval '50 minutes')", ids[1])
	release()
	w.Await("select not exists (select from posthorn.leases)")
	if n := testworld.Ask[int](w, "select count(*) from posthorn.retries"); n != 1 {
		t.Errorf("%d retries, want 1", n)
	}
}

// Guarantee 4: a worker that has lost a lease gets an error, and settles nothing.
func TestALostLeaseEndsItsHandlers(t *testing.T) {
	w := newWorld(t)
	config := quick
	config.LeaseFor = time.Second
	ph := w.OpenWith(posthorn.Config{})
	var first atomic.Bool
	ph.Group("billing", config).Handle("charge", ">", func(ctx context.Context, e posthorn.Event) error {
		if first.Swap(true) {
			w.say("again %d", e.Delivery)
			return nil
		}
		<-ctx.Done()
		w.say("lost %v", errors.Is(context.Cause(ctx), posthorn.ErrLeaseLost))
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	await.True(t, "handled", first.Load)
	// As if another node had taken the lease over, and died at once.
	w.Exec("update posthorn.leases set attempt = attempt + 1, uncounted = uncounted + 1, until = now() - interval '1 second'")
	w.awaitLines(2)
	w.settled("billing")
	said := w.lines()
	slices.Sort(said)
	if diff := cmp.Diff([]string{"again 2", "lost true"}, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// A worker that learns only when it settles that its lease is lost drops it, and goes on.
func TestALostLeaseIsDropped(t *testing.T) {
	w := newWorld(t)
	config := quick
	config.LeaseFor, config.Concurrency = time.Hour, 1
	ph := w.OpenWith(posthorn.Config{})
	begun, taken := make(chan bool, 1), make(chan bool)
	ph.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		if w.say("%d", e.Delivery); e.Delivery == 1 {
			begun <- true
			<-taken
		}
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	await.Value(t, "the handler runs", begun)
	// As if another node had taken the lease over, and died at once.
	w.Exec("update posthorn.leases set attempt = attempt + 1, uncounted = uncounted + 1, until = now() - interval '1 second'")
	close(taken)
	w.awaitLines(2)
	w.settled("billing")
	if diff := cmp.Diff([]string{"1", "2"}, w.lines()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// Events that a claim brings after Run was told to stop are given back, and no handler gets
// them.
func TestEventsTakenAtTheLastMomentGoBack(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	ph.Group("billing", quick).Handle("charge", ">", func(context.Context, posthorn.Event) error { w.say("handled"); return nil })
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	unlock := testpg.Lock(t, ph.Pool(), "leases")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(ctx) }()
	w.Await(`select exists (
		select from pg_locks l join pg_stat_activity a on a.pid = l.pid
		where l.relation = 'posthorn.leases'::regclass and not l.granted and a.query ~ 'posthorn.take')`)
	stop()
	unlock()
	if err := await.Value(t, "the end of Run", ended); err != nil {
		t.Error(err)
	}
	if said := w.lines(); len(said) > 0 {
		t.Errorf("a handler got them: %v", said)
	}
	if n := testworld.Ask[int](w, "select count(*) from posthorn.leases where until is not null and until > posthorn.now()"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// Run drains: events that handlers finish in time are settled.
//
// seed 000.50
func TestDrain(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	started, release := make(chan struct{}, 20), make(chan struct{})
	ph.Group("billing", quick).Handle("charge", ">", func(context.Context, posthorn.Event) error {
		started <- struct{}{}
		<-release
		return nil
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 3)...)
	stop := testworld.Run(t, ph)
	for range 3 {
		<-started
	}
	go stop()
	// It takes nothing more, and waits for what it has.
	later := w.OpenWith(posthorn.Config{})
	posthorntest.Publish(t, later, posthorn.Message{Type: "order.placed"})
	close(release)
	stop()
	w.Await("select not exists (select from posthorn.leases) and not exists (select from posthorn.retries)")
	if n := testworld.Ask[int](w, "select count(*) from posthorn.nodes"); n != 0 {
		t.Errorf("%d nodes are registered after the last has stopped", n)
	}
}

// The contexts of handlers end after DrainFor; unfinished events go to other workers at
// once, and the attempt does not count.
func TestDrainIsBounded(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			w := newWorld(t)
			ph := w.OpenWith(posthorn.Config{DrainFor: 50 * time.Millisecond})
			config := quick
			config.LeaseFor, config.Concurrency, config.Attempts = time.Hour, 2, 1
			var started atomic.Int64
			handler := func(ctx context.Context) error {
				started.Add(1)
				<-ctx.Done()
				return ctx.Err()
			}
			g := ph.Group("billing", config)
			if transactional {
				g.HandleTx("charge", ">", func(ctx context.Context, _ pgx.Tx, _ posthorn.Event) error { return handler(ctx) })
			} else {
				g.Handle("charge", ">", func(ctx context.Context, _ posthorn.Event) error { return handler(ctx) })
			}
			posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 20)...)
			stop := testworld.Run(t, ph)
			await.True(t, "handlers run", func() bool { return started.Load() > 0 })
			stop()

			other := w.OpenWith(posthorn.Config{})
			other.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
				w.say("%d", e.Delivery)
				return nil
			})
			testworld.Run(t, other)
			w.awaitLines(20)
			w.settled("billing")
			if said := strings.Join(w.lines(), " "); said != strings.TrimSpace(strings.Repeat("1 ", 20)) {
				t.Errorf("deliveries %s", said)
			}
			if letters := w.deadLetters("billing"); len(letters) > 0 {
				t.Errorf("dead letters %v", letters)
			}
		})
	}
}

// A slow handler does not hold back others, as long as there are slots.
func TestSlowHandlersHoldNobodyBack(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	release := make(chan struct{})
	ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 100)...)
	ph.Group("billing", quick).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		if e.ID%20 == ids[0]%20 {
			<-release
		}
		w.say("%d", e.ID)
		return nil
	})
	testworld.Run(t, ph)
	w.awaitLines(95)
	close(release)
	w.settled("billing")
}

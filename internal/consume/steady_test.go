package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// A lease that is being settled is not extended: the heartbeat would wait for its
// row, find it gone, and take the lease for lost.
func TestASlowSettleLosesNoLease(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("together %v", together), func(t *testing.T) {
			w := newWorld(t)
			w.Exec(`
				create function public.wait() returns trigger language plpgsql as $$
				begin
					perform pg_sleep(0.7); -- two heartbeats
					return old;
				end $$;
				create trigger wait before delete on posthorn.leases for each row execute function public.wait();
				create table public.effects (event bigint)`)
			var log testworld.Buffer
			ph := w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			config := quick
			config.LeaseFor, config.BatchSize, config.Concurrency, config.SharedTx = time.Second, 1, 1, together
			ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
				w.say("%d", e.Delivery)
				_, err := tx.Exec(ctx, "insert into public.effects values ($1)", e.ID)
				return err
			})
			posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 3)...)
			testworld.Run(t, ph)
			w.Await("select count(*) = 3 from public.effects")
			w.settled("ledger")
			if strings.Contains(log.String(), "lost") {
				t.Errorf("logged:\n%s", log.String())
			}
			if n := len(w.lines()); n != 3 {
				t.Errorf("%d deliveries of 3 events", n)
			}
		})
	}
}

// seed 001.50: an event that failed is tried again after its delay, while another of
// its lease is still handled.
func TestAFailureDoesNotWaitForItsNeighbours(t *testing.T) {
	for _, order := range []posthorn.Order{posthorn.Unordered, posthorn.OrderTotal} {
		t.Run(string(order), func(t *testing.T) {
			w := newWorld(t)
			ph := w.OpenWith(posthorn.Config{})
			ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 3)...)
			config := quick
			config.Order, config.SetAside = order, order != posthorn.Unordered
			config.Concurrency, config.Delays = 3, []time.Duration{200 * time.Millisecond}
			again := make(chan struct{})
			ph.Group("billing", config).Handle("charge", ">", func(ctx context.Context, e posthorn.Event) error {
				switch {
				case e.ID == ids[1] && e.Delivery == 1:
					return errors.New("bad")
				case e.ID == ids[1]:
					close(again)
				case e.ID == ids[2]:
					w.say("waits")
					if order == posthorn.Unordered {
						<-again
						return nil
					}
					// Its lease is the only one of the group.
					await.True(t, "the failure is settled", func() bool {
						return testworld.Ask[bool](w, "select exists (select from posthorn.retries where event_id = $1)", ids[1])
					})
				}
				return nil
			})
			testworld.Run(t, ph)
			w.awaitLines(1)
			<-again
			w.settled("billing")
		})
	}
}

// Failures are logged: with the time of the next attempt, with the stack of a
// panic, and as an error when there is no further attempt.
func TestFailuresAreLogged(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			w := newWorld(t)
			var log testworld.Buffer
			ph := w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			config := quick
			config.Attempts = 2
			handle := func(e posthorn.Event) error {
				if e.Delivery == 1 {
					panic("no card")
				}
				return errors.New("card declined")
			}
			g := ph.Group("billing", config)
			if transactional {
				g.HandleTx("charge", ">", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error { return handle(e) })
			} else {
				g.Handle("charge", ">", func(_ context.Context, e posthorn.Event) error { return handle(e) })
			}
			id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
			testworld.Run(t, ph)
			w.Await("select exists (select from posthorn.dead_letters)")
			for _, text := range []string{
				fmt.Sprintf("event=%d type=order.placed attempt=1 error=\"panic: no card\"", id),
				"level=WARN", "group=billing handler=charge", "next_attempt=", "steady_test.go",
				"level=ERROR", fmt.Sprintf("event=%d type=order.placed attempt=2 error=\"card declined\"", id),
			} {
				await.True(t, text+" is logged", func() bool { return strings.Contains(log.String(), text) })
			}
		})
	}
}

// The log says what the database has made of a failure, also when another process has changed the policy of the group.
func TestLogOfAFailureTellsItsFate(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			w := newWorld(t)
			var log testworld.Buffer
			ph := w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			g := ph.Group("billing", quick)
			g.Handle("charge", ">", func(context.Context, posthorn.Event) error {
				w.Exec(`select posthorn.define_group('default', 'billing', '{"attempts": 1}')`)
				return errors.New("card declined")
			})
			if transactional { // the transaction settles the failure of the other handler
				g.HandleTx("book", ">", func(context.Context, pgx.Tx, posthorn.Event) error { return nil })
			}
			posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
			testworld.Run(t, ph)
			await.True(t, "a dead letter is logged", func() bool {
				return strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(), "is a dead letter now") &&
					strings.Contains(log.String(), "handler=charge") && !strings.Contains(log.String(), "next_attempt=")
			})
		})
	}
}

// Handlers in transactions leave connections to those of them that use the pool
// too.
func TestHandlersInTransactionsUseThePool(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{MaxConns: 4})
	config := quick
	config.BatchSize, config.Concurrency = 1, 4
	ph.Group("billing", config).HandleTx("charge", ">", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error {
		// Long enough for all that can to begin.
		if _, err := tx.Exec(ctx, "select pg_sleep(0.2)"); err != nil {
			return err
		}
		_, err := ph.Pool().Exec(ctx, "select 1")
		w.say("done")
		return err
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 8)...)
	testworld.Run(t, ph)
	w.awaitLines(8)
	w.settled("billing")
}

// Handlers that wait for connections that nobody will give back do not do so in
// silence.
func TestHandlersThatHoldAllConnectionsAreReported(t *testing.T) {
	w := newWorld(t)
	var log testworld.Buffer
	ph := w.OpenWith(posthorn.Config{MaxConns: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var reported atomic.Bool
	waiting, enough := context.WithCancel(t.Context())
	defer enough()
	ph.Group("billing", quick).HandleTx("charge", ">", func(context.Context, pgx.Tx, posthorn.Event) error {
		if reported.Load() {
			return nil
		}
		one, err := ph.Pool().Acquire(waiting)
		if err != nil {
			return err
		}
		defer one.Release()
		two, err := ph.Pool().Acquire(waiting) // all are in use
		if err != nil {
			return err
		}
		two.Release()
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	await.True(t, "it is logged", func() bool { return strings.Contains(log.String(), "all connections of the pool are in use") })
	reported.Store(true)
	enough()
	w.settled("billing")
}

package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

func book(ctx context.Context, tx pgx.Tx, by string, e posthorn.Event) error {
	_, err := tx.Exec(ctx, "insert into effects (handler, event) values ($1, $2)", by, e.ID)
	return err
}

// Effect and acknowledgement commit together, also for events that the handler
// publishes.
//
// seed 000.4
func TestAFailedTransactionLeavesNoEffect(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	g := ph.Group("ledger", quick)
	var succeeded atomic.Int64
	g.HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if err := book(ctx, tx, "book", e); err != nil {
			return err
		}
		if _, err := ph.Publish(ctx, tx, posthorn.Message{Type: "booked"}); err != nil {
			return err
		}
		if e.Delivery < 3 {
			return errors.New("not yet")
		}
		succeeded.Add(1)
		return nil
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 20)...)
	testworld.Run(t, ph)
	w.settled("ledger")
	if n := succeeded.Load(); n != 20 {
		t.Errorf("%d events were handled without an error, want 20", n)
	}
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 20 {
		t.Errorf("%d effects, want 20", n)
	}
	if n := testworld.Ask[int](w, "select count(*) from posthorn.events where type = 'booked'"); n != 20 {
		t.Errorf("%d events published, want 20", n)
	}
}

// Several handlers in transactions of one event: each has its effect once,
// also if others fail, and so has a plain one beside them.
//
// seed 000.67
func TestEachTransactionByItself(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	g := ph.Group("ledger", quick)
	for _, name := range []string{"one", "two", "three"} {
		g.HandleTx(name, "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
			if err := book(ctx, tx, name, e); err != nil {
				return err
			}
			if name == "two" && e.Delivery < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	g.Handle("plain", "order.*", func(_ context.Context, e posthorn.Event) error {
		w.say("%d", e.ID)
		return nil
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 30)...)
	testworld.Run(t, ph)
	w.settled("ledger")
	for _, name := range []string{"one", "two", "three"} {
		if n := testworld.Ask[int](w, "select count(*) from effects where handler = $1", name); n != 30 {
			t.Errorf("%s: %d effects, want 30", name, n)
		}
	}
	if n := len(w.lines()); n != 30 {
		t.Errorf("the plain handler ran %d times, want 30", n)
	}
}

// seed 000.41: all handlers of an event in one transaction.
//
// seed 000.44
func TestTogether(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.SharedTx = true
	g := ph.Group("ledger", config)
	for _, name := range []string{"one", "two"} {
		g.HandleTx(name, "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
			w.say("%s %d %v", name, e.Delivery, e.Subscriptions)
			if err := book(ctx, tx, name, e); err != nil {
				return err
			}
			if name == "two" && e.Delivery < 2 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.awaitLines(4)
	w.settled("ledger")
	if diff := cmp.Diff([]string{"one 1 []", "two 1 []", "one 2 []", "two 2 []"}, w.lines()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

func TestHandlersCannotEndTheirTransaction(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	ph.Group("ledger", quick).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if err := book(ctx, tx, "book", e); err != nil {
			return err
		}
		return posthorn.Permanent(tx.Commit(ctx))
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.Await("select exists (select from posthorn.dead_letters)")
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 0 {
		t.Errorf("%d effects of an event that failed", n)
	}
}

func TestSwallowedErrorsAreFailures(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts = 1
	ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error {
		_, _ = tx.Exec(ctx, "select 1/0") // and nobody says a word
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.Await("select exists (select from posthorn.dead_letters)")
	if text := w.deadLetters("ledger")[0].Error; !strings.Contains(text, "a statement failed in the transaction") {
		t.Errorf("error %q", text)
	}
}

// A handler that returns after its time limit has failed, although it returns no error: its transaction, in which a statement
// was cut off or was not sent, does not commit.
func TestSwallowedTimeoutsAreFailures(t *testing.T) {
	for name, late := range map[string]struct {
		limit time.Duration
		wait  func(ctx context.Context, tx pgx.Tx)
	}{
		"a statement is cut off": {5 * time.Second, func(ctx context.Context, tx pgx.Tx) { // longer than the statement takes to begin
			_, _ = tx.Exec(ctx, "select pg_sleep(3600)")
		}},
		"a statement is not sent": {10 * time.Millisecond, func(ctx context.Context, tx pgx.Tx) {
			<-ctx.Done()
			_, _ = tx.Exec(ctx, "select 1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Exec("create table effects (handler text, event bigint)")
			ph := w.OpenWith(posthorn.Config{})
			config := quick
			config.Attempts, config.Timeout = 1, late.limit
			ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
				if err := book(context.WithoutCancel(ctx), tx, "book", e); err != nil {
					return err
				}
				late.wait(ctx, tx)
				return nil
			})
			posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
			testworld.Run(t, ph)
			w.settled("ledger")
			dead := w.deadLetters("ledger")
			if len(dead) != 1 || !strings.Contains(dead[0].Error, "the handler has used up its time") {
				t.Errorf("dead letters: %+v", dead)
			}
			if n := testworld.Ask[int](w, "select count(*) from effects"); n != 0 {
				t.Errorf("%d effects of an event that failed", n)
			}
		})
	}
}

// Transactions that collide are run again, without counting an attempt.
func TestCollisionsAreNoFailures(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts = 1
	codes := []string{"40001", "40P01", "55P03"}
	var calls atomic.Int64
	ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if err := book(ctx, tx, "book", e); err != nil {
			return err
		}
		if n := int(calls.Add(1)); n <= len(codes) {
			_, err := tx.Exec(ctx, "do $$ begin raise 'they collide' using errcode = '"+codes[n-1]+"'; end $$")
			return err
		}
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.settled("ledger")
	effects, failed := testworld.Ask[int](w, "select count(*) from effects"), len(w.deadLetters("ledger"))
	if n := calls.Load(); n != int64(len(codes))+1 || effects != 1 || failed != 0 {
		t.Errorf("%d calls, %d effects, %d failures", n, effects, failed)
	}
}

// A failed batch is retried event by event, and only the bad event fails again.
func TestBatches(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			w := newWorld(t)
			w.Exec("create table effects (handler text, event bigint)")
			ph := w.OpenWith(posthorn.Config{})
			config := quick
			config.Attempts, config.Concurrency = 3, 1
			g := ph.Group("ledger", config)
			ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 10)...)
			handle := func(events []posthorn.Event, do func(posthorn.Event) error) error {
				w.say("%d", len(events))
				for _, e := range events {
					if err := do(e); err != nil {
						return err
					}
					if e.ID == ids[4] {
						return errors.New("bad")
					}
				}
				return nil
			}
			if transactional {
				g.HandleBatchTx("book", ">", func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
					return handle(events, func(e posthorn.Event) error { return book(ctx, tx, "book", e) })
				})
			} else {
				g.HandleBatch("book", ">", func(_ context.Context, events []posthorn.Event) error {
					return handle(events, func(posthorn.Event) error { return nil })
				})
			}
			testworld.Run(t, ph)
			w.Await("select exists (select from posthorn.dead_letters)")
			w.settled("ledger")
			if diff := cmp.Diff([]letter{{ids[4], "book", 3, "Handler error", "bad"}}, w.deadLetters("ledger")); diff != "" {
				t.Errorf("dead letters (-want +got):\n%s", diff)
			}
			if first := w.lines()[0]; first != "10" {
				t.Errorf("the first batch had %s events, want 10", first)
			}
			for _, n := range w.lines()[1:] {
				if n != "1" {
					t.Errorf("an event came again among %s", n)
				}
			}
			if n := testworld.Ask[int](w, "select count(*) from effects"); transactional && n != 9 {
				t.Errorf("%d effects, want 9", n)
			}
		})
	}
}

func TestBatchesMayFailInPart(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts, config.Concurrency = 2, 1
	ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 5)...)
	ph.Group("ledger", config).HandleBatch("book", ">", func(_ context.Context, events []posthorn.Event) error {
		w.say("%d", len(events))
		for _, e := range events {
			if e.ID == ids[3] {
				return posthorn.EventErrors{e.ID: errors.New("bad")}
			}
		}
		return nil
	})
	testworld.Run(t, ph)
	w.Await("select exists (select from posthorn.dead_letters)")
	w.settled("ledger")
	if diff := cmp.Diff([]string{"5", "1"}, w.lines()); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// A database that goes away is waited out, and nothing is handled in vain.
//
// seed 000.54
func TestTroubleWithTheDatabase(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{ApplicationName: "victim"})
	config := quick
	config.LeaseFor = time.Second // a lease whose take has failed expires soon
	ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		return book(ctx, tx, "book", e)
	})
	testworld.Run(t, ph)
	for range 5 {
		posthorntest.Publish(t, w.Client, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 50)...)
		w.Exec(`select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name = 'victim'`)
	}
	w.settled("ledger")
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 250 {
		t.Errorf("%d effects, want 250", n)
	}
	if n := testworld.Ask[int](w, "select count(distinct event) from effects"); n != 250 {
		t.Errorf("%d events had an effect, want 250", n)
	}
}

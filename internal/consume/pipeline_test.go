package consume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

// A setting that is local to a transaction does not reach the next one on the same
// connection.
func TestTransactionsInheritNothing(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	ph.Group("ledger", quick).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if e.Type == "order.odd" {
			_, err := tx.Exec(ctx, "set transaction isolation level serializable; set local lock_timeout = '7s'")
			return err
		}
		var level, limit string
		err := tx.QueryRow(ctx, "select current_setting('transaction_isolation'), current_setting('lock_timeout')").Scan(&level, &limit)
		w.say("%s %s", level, limit)
		return err
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.odd"}, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	if line := w.awaitLines(1)[0]; line != "read committed 0" {
		t.Errorf("the next transaction began with %q", line)
	}
}

// A transaction is over when its handler has returned, though the connection goes
// on with the next.
func TestATransactionEndsWithItsHandler(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint)")
	ph := w.OpenWith(posthorn.Config{})
	var kept pgx.Tx
	ph.Group("ledger", quick).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if kept == nil {
			kept = tx
			return nil
		}
		batch := &pgx.Batch{}
		batch.Queue("insert into effects values ('late', 1)")
		_, begin := kept.Begin(ctx)
		_, exec := kept.Exec(ctx, "insert into effects values ('late', 2)")
		_, query := kept.Query(ctx, "insert into effects values ('late', 3) returning 1")
		_, copied := kept.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"event"}, pgx.CopyFromRows([][]any{{int64(4)}}))
		var n int
		for _, err := range []error{
			begin, exec, query, copied, kept.SendBatch(ctx, batch).Close(),
			kept.QueryRow(ctx, "insert into effects values ('late', 5) returning 1").Scan(&n),
		} {
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("after the handler has returned: %v", err)
			}
		}
		return book(ctx, tx, "book", e)
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 2)...)
	testworld.Run(t, ph)
	w.settled("ledger")
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 1 {
		t.Errorf("%d effects, want that of the second event", n)
	}
}

// A violated deferred constraint is a failure of the event, not of the database.
func TestDeferredConstraints(t *testing.T) {
	w := newWorld(t)
	w.Exec("create table effects (handler text, event bigint unique deferrable initially deferred)")
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts = 2
	var calls atomic.Int64
	ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if e.Type == "order.twice" {
			calls.Add(1)
			if err := book(ctx, tx, "book", e); err != nil {
				return err
			}
		}
		return book(ctx, tx, "book", e)
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"}, posthorn.Message{Type: "order.twice"}, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.settled("ledger")
	letters := w.deadLetters("ledger")
	if len(letters) != 1 || letters[0].Attempts != 2 || !strings.Contains(letters[0].Error, "effects_event_key") || calls.Load() != 2 {
		t.Errorf("%d calls, dead letters: %+v", calls.Load(), letters)
	}
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 2 {
		t.Errorf("%d effects, want those of the others", n)
	}
}

func TestUnreadRowsAreAFailure(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Attempts = 1
	ph.Group("ledger", config).HandleTx("book", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if e.Type == "order.placed" {
			return nil
		}
		_, err := tx.Query(ctx, "select generate_series(1, 1000)") // and nobody closes it
		return err
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.odd"}, posthorn.Message{Type: "order.placed"})
	testworld.Run(t, ph)
	w.settled("ledger")
	if letters := w.deadLetters("ledger"); len(letters) != 1 || !strings.Contains(letters[0].Error, "the rows of a query") {
		t.Errorf("dead letters: %+v", letters)
	}
}

// A pool that is shared is not kept for a whole lease.
func TestOthersGetTheirConnection(t *testing.T) {
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	shared, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	ph, err := posthorn.Open(t.Context(), posthorn.Config{Pool: shared})
	if err != nil {
		t.Fatal(err)
	}
	defer ph.Close()
	other, err := shared.Acquire(t.Context()) // so that one is left
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	got := make(chan error, 1)
	handled, begun := 0, time.Time{}
	group := quick
	group.Concurrency = 1
	ph.Group("ledger", group).HandleTx("book", ">", func(context.Context, pgx.Tx, posthorn.Event) error {
		if handled == 0 {
			begun = time.Now()
			go func() { got <- shared.Ping(context.WithoutCancel(t.Context())) }()
		}
		if handled++; handled < 10 && len(got) == 0 {
			await.True(t, "the connection was kept for long enough", func() bool { return time.Since(begun) > worker.PipelineFor })
			begun = time.Now()
			return nil
		}
		select {
		case err := <-got:
			w.say("others: %v", err)
		default:
			w.say("others still wait")
		}
		return nil
	})
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 10)...)
	stop := testworld.Run(t, ph)
	defer stop()
	if said := w.awaitLines(1)[0]; said != "others: <nil>" {
		t.Error(said)
	}
}

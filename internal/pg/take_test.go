package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

func TestTakeBringsWhatWasPublished(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		long := pg.Message{Type: "long", Payload: json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)}
		var want []pg.Event
		for i := range 100 {
			m := messages[i%len(messages)]
			if i == 50 {
				m = long
			}
			m.Stream = fmt.Sprint("stream-", i%7)
			want = append(want, delivered(m, publish(t, pool, m)))
		}
		lease := take(t, pool, group)
		diffEvents(t, want, lease.Events)
		// Appending to the payload of an event must not change another event.
		for _, e := range lease.Events {
			_ = append(e.Payload, "overrun"...)
		}
		diffEvents(t, want, lease.Events)
	})
}

// A take that most likely finds nothing gets the same events, with and without subscriptions.
func TestDoubtfulTake(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		for _, filtered := range []bool{false, true} {
			group := defineGroup(t, pool, fmt.Sprint("g", filtered), pg.GroupConfig{})
			if filtered {
				must(admin.New(pool, ns).Subscribe(t.Context(), group.Name, "s", admin.Subscription{Filter: json.RawMessage(`{"type": "a"}`)}))(t)
				must(pg.KeepGroup(t.Context(), pool, group, "node", nil))(t)
			}
			doubtful := takeOf(group)
			doubtful.Doubtful = true
			if l := must(pool.Take(t.Context(), doubtful))(t); l.Held() {
				t.Errorf("took %v", l)
			}
			publish(t, pool, pg.Message{Type: "a"})
			if l := must(pool.Take(t.Context(), doubtful))(t); len(l.Events) != 1 {
				t.Errorf("took %v", l)
			}
		}
	})
}

func TestTakeSettlesTheLastLease(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		first := take(t, pool, group)
		next := takeOf(group)
		next.Settle = first
		if l := must(pool.Take(t.Context(), next))(t); l.Held() {
			t.Errorf("took %v", l)
		}
		publish(t, pool, pg.Message{Type: "b"})
		if _, err := pool.Take(t.Context(), next); !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("settled twice: %v", err)
		}
		if l := take(t, pool, group); len(l.Events) != 1 {
			t.Errorf("a take that failed has taken: %v", l)
		}
	})
}

// A take that is refused leaves no transaction open, for which the pool would close the
// connection.
func TestTakeThatFailsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	publish(t, pool, pg.Message{Type: "a"})
	conn := must(pool.Acquire(t.Context()))(t)
	server := conn.Conn().PgConn().PID()
	conn.Release()
	lost := takeOf(group)
	lost.Settle = pg.Lease{ID: 1000, Attempt: 1}
	for range 2 {
		if _, err := pool.Take(t.Context(), lost); !errors.Is(err, pg.ErrLeaseLost) {
			t.Fatalf("settled a lease that never was: %v", err)
		}
		conn := must(pool.Acquire(t.Context()))(t)
		if got := conn.Conn().PgConn().PID(); got != server {
			t.Errorf("the connection was given up: server process %d, before %d", got, server)
		}
		conn.Release()
	}
	if l := take(t, pool, group); len(l.Events) != 1 {
		t.Errorf("took %v", l)
	}
}

func TestTakePassesOverEmptyWindows(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		batch := make([]pg.Message, 100)
		for i := range batch {
			batch[i].Type = "a"
		}
		must(pg.PublishBatch(t.Context(), pool, ns, batch))(t) // dense ids: the windows that follow are not counted
		must(pool.Exec(t.Context(), "select nextval('posthorn.event_id') from generate_series(1, 200)"))(t)
		last := publish(t, pool, pg.Message{Type: "b"})
		small := takeOf(group)
		small.MaxEvents = 10
		n := 0
		for {
			lease := must(pool.Take(t.Context(), small))(t)
			if !lease.Held() {
				break
			}
			if len(lease.Events) == 0 {
				t.Fatal("a lease without events")
			}
			small.Settle = lease
			n += len(lease.Events)
		}
		if n != 101 || small.Settle.Events[0].ID != last {
			t.Errorf("%d events, the last one %+v", n, small.Settle.Events)
		}
	})
}

func TestTakeOfRetriesNamesSubscriptions(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		id := publish(t, pool, pg.Message{Type: "a"})
		soon := time.Duration(0)
		check(t, pg.Settle(t.Context(), pool, take(t, pool, group),
			pg.Failure{Event: id, Subscription: "two", RetryIn: &soon},
			pg.Failure{Event: id, Subscription: "one", RetryIn: &soon}))
		want := delivered(pg.Message{Type: "a"}, id)
		want.Delivery, want.Subscriptions = 2, []string{"one", "two"}
		diffEvents(t, []pg.Event{want}, take(t, pool, group).Events)
	})
}

func TestTakeAfterStatementsWereDiscarded(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	take(t, pool, group)
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		must(conn.Exec(t.Context(), "deallocate all"))(t)
		conn.Release()
	}
	publish(t, pool, pg.Message{Type: "a"})
	if _, err := pool.Take(t.Context(), takeOf(group)); err == nil {
		t.Error("took with statements that are gone")
	}
	if l := take(t, pool, group); len(l.Events) != 1 {
		t.Errorf("took %v", l)
	}
}

// Preparing can fail after some of the statements, as under a short statement_timeout. The
// connection can still be used.
func TestTakeAfterPreparingFailed(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	publish(t, pool, pg.Message{Type: "a"})
	must(pool.Exec(t.Context(), "alter function posthorn.lease_events rename to lease_events_elsewhere"))(t)
	for range 2 {
		const undefinedFunction = "42883"
		_, err := pool.Take(t.Context(), takeOf(group))
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != undefinedFunction {
			t.Fatalf("took without the function that reads the events: %v", err)
		}
	}
	must(pool.Exec(t.Context(), "alter function posthorn.lease_events_elsewhere rename to lease_events"))(t)
	conn := must(pool.Acquire(t.Context()))(t)
	// The server has prepared a statement, but its answer got lost.
	must(conn.Exec(t.Context(), "prepare posthorn_lease_events as select 1"))(t)
	conn.Release()
	if l := take(t, pool, group); len(l.Events) != 1 {
		t.Errorf("took %v", l)
	}
}

func TestTakeThatIsCancelled(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	publish(t, pool, pg.Message{Type: "a"})
	tx := must(pool.Begin(t.Context()))(t) // another claim of the group is under way
	must(tx.Exec(t.Context(), "select posthorn.lock_group($1)", group.ID))(t)
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan error)
	go func() {
		_, err := pool.Take(ctx, takeOf(group))
		taken <- err
	}()
	for !must(waiting(t, pool))(t) {
	}
	cancel()
	if err := <-taken; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for must(waiting(t, pool))(t) { // until the server has noticed
	}
	check(t, tx.Rollback(t.Context()))
	if l := take(t, pool, group); len(l.Events) != 1 {
		t.Errorf("took %v", l)
	}
}

func waiting(t *testing.T, db pg.DB) (yes bool, err error) {
	err = db.QueryRow(t.Context(), `
		select exists (
			select from pg_locks l
			where l.locktype = 'advisory' and not l.granted
				and l.database = (select oid from pg_database where datname = current_database()))`).Scan(&yes)
	return yes, err
}

package pg_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// begin opens a transaction that writes an effect.
func begin(t *testing.T, pool *pg.Pool) *pgxpool.Conn {
	t.Helper()
	conn := must(pool.Acquire(t.Context()))(t)
	t.Cleanup(conn.Release)
	must(conn.Exec(t.Context(), "begin"))(t)
	must(conn.Exec(t.Context(), "insert into effects values (1)"))(t)
	return conn
}

const effects = "create table effects (n int unique deferrable initially deferred)"

func TestCommitSettles(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		must(pool.Exec(t.Context(), effects))(t)
		defineGroup(t, pool, "g", pg.GroupConfig{})
		first, second := publish(t, pool, pg.Message{Type: "a"}), publish(t, pool, pg.Message{Type: "b"})
		ending := pg.Ending{
			Lease: claim(t, pool, "g"), Part: true, UpTo: first, LeaseFor: time.Minute, Another: true,
			Failures: []pg.Failure{{Event: first, Error: "it's \\ odd", Permanent: true}},
		}
		conn := begin(t, pool)
		must(pg.Commit(t.Context(), conn.Conn(), ending))(t)
		if status := conn.Conn().PgConn().TxStatus(); status != 'T' {
			t.Errorf("after another was asked for: %c", status)
		}
		ending.Part, ending.Another = false, false
		ending.Failures = []pg.Failure{{Event: second, Permanent: true}}
		must(pg.Commit(t.Context(), conn.Conn(), ending))(t)
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("at the end: %c", status)
		}
		dead := must(deadLetters(t.Context(), admin.New(pool, ns), admin.DeadLetterFilter{Group: "g"}))(t)
		if len(dead) != 2 || dead[0].Error+dead[1].Error != "it's \\ odd" {
			t.Errorf("dead letters: %+v", dead)
		}
		wantEffects(t, pool, 1)
	})
}

// Effects are not committed if their events cannot be settled.
func TestCommitOfALostLease(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		must(pool.Exec(t.Context(), effects))(t)
		defineGroup(t, pool, "g", pg.GroupConfig{})
		first := publish(t, pool, pg.Message{Type: "a"})
		publish(t, pool, pg.Message{Type: "b"})
		lease := claim(t, pool, "g")
		check(t, pg.Release(t.Context(), pool, lease))
		for _, upTo := range []int64{first, 0} {
			conn := begin(t, pool)
			_, err := pg.Commit(t.Context(), conn.Conn(), pg.Ending{Lease: lease, Part: upTo > 0, UpTo: upTo, LeaseFor: time.Minute, Another: true})
			if !errors.Is(err, pg.ErrLeaseLost) {
				t.Errorf("up to %d: %v", upTo, err)
			}
			must(conn.Exec(t.Context(), "rollback"))(t)
		}
		wantEffects(t, pool, 0)
	})
}

// If a deferred constraint refuses effects, their events are not settled.
func TestCommitRefused(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		must(pool.Exec(t.Context(), effects))(t)
		defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		lease := claim(t, pool, "g")
		conn := begin(t, pool)
		must(conn.Exec(t.Context(), "insert into effects values (1)"))(t)
		_, err := pg.Commit(t.Context(), conn.Conn(), pg.Ending{Lease: lease, Another: true})
		if refused, ok := errors.AsType[*pg.CommitError](err); !ok || !refused.Refused() {
			t.Errorf("commit: %v", err)
		}
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("after a commit that failed: %c", status)
		}
		wantEffects(t, pool, 0)
		check(t, pg.Settle(t.Context(), pool, lease))
	})
}

func wantEffects(t *testing.T, db pg.DB, want int) {
	t.Helper()
	rows := must(db.Query(t.Context(), "select n from effects"))(t)
	if got := must(pgx.CollectRows(rows, pgx.RowTo[int]))(t); len(got) != want {
		t.Errorf("%d effects, want %d", len(got), want)
	}
}

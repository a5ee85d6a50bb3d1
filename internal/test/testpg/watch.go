package testpg

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// queryer is a connection or a pool.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// WatchTurn returns the process of Postgres that serves the connection which watches the log for all
// processes of a database, or 0, and how many connections follow it.
func WatchTurn(t testing.TB, db queryer) (pid, followers int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `
		select coalesce(max(l.pid) filter (where l.objid = 0), 0), count(*) filter (where l.objid = 1 and l.mode = 'ShareLock')
		from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
		where l.locktype = 'advisory' and l.classid::int = posthorn.lock_class('watch') and l.granted`).Scan(&pid, &followers)
	if err != nil {
		t.Fatal(err)
	}
	return pid, followers
}

// AwaitWatchTurn waits until a connection has the turn that another process serves, and returns that.
func AwaitWatchTurn(t testing.TB, db queryer, not int) (pid int) {
	t.Helper()
	await.True(t, "another connection has the turn", func() bool {
		pid, _ = WatchTurn(t, db)
		return pid != 0 && pid != not
	})
	return pid
}

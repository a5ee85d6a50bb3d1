package pg_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testpg"
)

// The address of a connection has moved to an old primary, as a pooler's may: a connection that
// has been used for a while is asked again before it is used.
func TestConnectionsAreAskedAgain(t *testing.T) {
	t.Parallel()
	pool := openURL(t, testpg.StartPrimary(t, nil).URL(), pgx.QueryExecModeCacheStatement)
	conn := must(pool.Acquire(t.Context()))(t)
	pg.LaterTimeline(conn.Conn())
	conn.Release()
	if conn, err := pool.Acquire(t.Context()); err == nil {
		conn.Release()
		t.Error("the old primary is used")
	} else if !strings.Contains(err.Error(), "is an old primary, of timeline 1: this process has seen timeline 2") {
		t.Error(err)
	}
}

package pg_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// The server of a connection is asked one thing before the connection is used: a ping, or its identity. A pool counts the time in which
// it made a connection as idle.
func TestConnectionsAreAskedOneThing(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	conn := must(pool.Acquire(t.Context()))(t)
	defer conn.Release()
	pings := func(ago, idle time.Duration) bool {
		pg.AskedAgo(conn.Conn(), ago)
		return pool.Config().ShouldPing(t.Context(), pgxpool.ShouldPingParams{Conn: conn.Conn(), IdleDuration: idle})
	}
	for _, c := range []struct {
		ago, idle time.Duration
		want      bool
	}{{0, 2 * time.Second, false}, {10 * time.Second, 2 * time.Second, true}, {10 * time.Second, 0, false}, {time.Hour, 2 * time.Second, false}} {
		if got := pings(c.ago, c.idle); got != c.want {
			t.Errorf("a connection that was asked %v ago and has been idle for %v is pinged: %v", c.ago, c.idle, got)
		}
	}
}

// The timeline that a pool has seen counts for the pools whose URL has the same address and database:
// a program may use both sides of a move.
func TestOldPrimaryOfAnotherURL(t *testing.T) {
	t.Parallel()
	url := testpg.StartPrimary(t, nil).URL()
	other := strings.Replace(url, "/posthorn?", "/postgres?", 1)
	elsewhere := strings.Replace(url, "127.0.0.1", "localhost", 1)
	if other == url || elsewhere == url {
		t.Fatal("the URL has changed: " + url)
	}
	conn := must(openURL(t, url, pgx.QueryExecModeCacheStatement).Acquire(t.Context()))(t)
	defer conn.Release()
	pg.LaterTimeline(conn.Conn())
	for _, url := range []string{other, elsewhere} {
		must(openURL(t, url, pgx.QueryExecModeCacheStatement).Acquire(t.Context()))(t).Release()
	}
	both := strings.Replace(url, "127.0.0.1", "localhost,127.0.0.1", 1)
	for _, url := range []string{url, both} {
		if _, err := pg.Open(t.Context(), must(pgxpool.ParseConfig(url))(t), slog.New(slog.DiscardHandler)); err == nil {
			t.Error("the old primary is used")
		}
	}
}

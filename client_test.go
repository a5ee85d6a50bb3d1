package posthorn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// In a pool of one connection, a handler that uses the pool beside its transaction would wait for itself.
func TestPoolOfOneConnectionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for setting, config := range map[string]posthorn.Config{
		"Set MaxConns to 2": {DatabaseURL: w.URL, MaxConns: 1}, "Set pgxpool.Config.MaxConns to 2": {Pool: pool},
	} {
		ph, err := posthorn.Open(t.Context(), config)
		if err == nil {
			ph.Close()
		}
		if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "the pool has 1 connection, and 2 are needed") || !strings.Contains(posthorn.Hint(err), setting) {
			t.Errorf("open with one connection: %v", err)
		}
	}
}

// Heartbeats keep a node alive. A node that upkeep has removed registers again, with its
// handlers.
//
// seed 000.17, 000.47–49
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"quiet", "swept"} {
		ph, err := posthorn.Open(t.Context(), posthorn.Config{
			DatabaseURL: w.URL, NodeID: id, DisplayName: "the " + id, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ph.Close)
		posthorn.SetHeartbeat(ph, 20*time.Millisecond)
		ph.Group("billing", testworld.FromBeginning()).Handle("charge", "order.*", func(context.Context, posthorn.Event) error { return nil })
		(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	}
	holds := func(sql string) {
		t.Helper()
		await.True(t, sql, func() bool { return testworld.Ask[bool](w, "select exists (select from "+sql+")") })
	}
	holds("posthorn.node_handlers having count(*) = 2")
	w.Exec("delete from posthorn.nodes where node_id = 'swept'")
	w.TurnClock(5 * time.Minute)
	holds("posthorn.node_status where node_id = 'quiet' and state = 'alive'")
	holds("posthorn.node_handlers where node_id = 'swept' and patterns = '{order.*}'")
	holds("posthorn.nodes where node_id = 'swept' and display_name = 'the swept'")
}

// After load a client that runs closes the connections that it does not need.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	ph := testworld.OpenClient(t, posthorn.Config{
		DatabaseURL: withSettings(t, url, "pool_max_conn_idle_time=20ms&pool_health_check_period=20ms"), ApplicationName: "loaded",
	})
	w := &testworld.World{Client: ph, T: t, URL: url}
	w.Start()
	observer := testworld.Open(t, posthorn.Config{DatabaseURL: url})
	connections := func() int64 {
		return testworld.Ask[int64](observer, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'loaded'")
	}
	load := func(pool *pgxpool.Pool) {
		var held []*pgxpool.Conn
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
		}
		if n := connections(); n < int64(len(held)) {
			t.Errorf("%d connections under load; want at least %d", n, len(held))
		}
		for _, conn := range held {
			conn.Release()
		}
	}
	load(ph.Pool())
	load(posthorn.Control(ph))
	await.True(t, "idle connections are closed", func() bool { return connections() <= 3 })
}

// Without a setting in the URL the time is ours, not the half an hour of pgx; an explicit
// setting is kept.
func TestIdleTimeOfPools(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	for given, want := range map[string]string{url: pg.IdleTime.String(), withSettings(t, url, "pool_max_conn_idle_time=5m"): "5m0s"} {
		ph := testworld.OpenClient(t, posthorn.Config{DatabaseURL: given})
		for _, pool := range []*pgxpool.Pool{ph.Pool(), posthorn.Control(ph)} {
			if got := pool.Config().MaxConnIdleTime; fmt.Sprint(got) != want {
				t.Errorf("idle connections stay for %s; want %s", got, want)
			}
		}
	}
}

// withSettings adds settings to the URL of a database.
func withSettings(t *testing.T, url, settings string) string {
	t.Helper()
	parsed, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.RawQuery
	if query != "" {
		query += "&"
	}
	parsed.RawQuery = query + settings
	return parsed.String()
}

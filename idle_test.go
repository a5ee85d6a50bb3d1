package posthorn_test

import (
	"fmt"
	neturl "net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

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

// Package pgcron starts servers that run the extension pg_cron, for tests.
package pgcron

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/localpg"
)

// Start starts a server of the test's own that runs pg_cron from the
// database posthorn, where the extension is installed. The test is skipped
// where the server's programs come without it.
func Start(t testing.TB) *localpg.Server {
	t.Helper()
	config := localpg.Config{
		Dir:    testdir.New(t, "pg-cron-").Path,
		BinDir: os.Getenv("POSTHORN_TEST_PG_BIN"),
		Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{
			"fsync":          "off",
			"shared_buffers": "32MB",
		},
	}
	plain := start(t, config)
	available := asked(t, plain.URL(), "select exists (select from pg_available_extensions where name = 'pg_cron')")
	stop(t, plain)
	if !available {
		t.Skipf("PostgreSQL %s in %s has no pg_cron (Debian: postgresql-15-cron)", plain.Version(), plain.BinDir())
	}
	config.Settings["shared_preload_libraries"] = "pg_cron"
	config.Settings["cron.database_name"] = "posthorn"
	config.Settings["cron.use_background_workers"] = "on" // which need no password
	config.Settings["max_worker_processes"] = "20"
	s := start(t, config)
	t.Cleanup(func() { stop(t, s) })
	asked(t, s.URL(), "create extension pg_cron; select true")
	return s
}

func start(t testing.TB, config localpg.Config) *localpg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := localpg.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t testing.TB, s *localpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// asked runs statements, of which the last yields a truth.
func asked(t testing.TB, url, statements string) bool {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return string(results[len(results)-1].Rows[0][0]) == "t"
}

// Package pgcron starts servers that run the extension pg_cron, for tests.
package pgcron

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/localpg"
)

// Server is a server that runs pg_cron.
type Server struct {
	*localpg.Server
	config localpg.Config
}

// Start starts a server of the test's own that runs pg_cron from the
// database posthorn, where the extension is installed. The test is skipped
// where the server's programs come without it.
func Start(t testing.TB) *Server {
	t.Helper()
	config := testpg.Config(testdir.New(t, "pg-cron-").Path, testpg.BinDir(), map[string]string{
		"fsync":                       "off",
		"shared_buffers":              "32MB",
		"shared_preload_libraries":    "pg_cron",
		"cron.database_name":          "posthorn",
		"cron.use_background_workers": "on", // which need no password
		"max_worker_processes":        "20",
	})
	started, err := localpg.Start(await.Context(t), config)
	if err != nil {
		skipWithout(t, err)
	}
	s := &Server{Server: started, config: config}
	t.Cleanup(func() { s.kill(t) })
	asked(t, s.URL(), "create extension pg_cron; select true")
	return s
}

// Restart kills the server and starts it again, which runs the jobs that are
// scheduled for @reboot.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.kill(t)
	var err error
	if s.Server, err = localpg.Start(await.Context(t), s.config); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) kill(t testing.TB) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Error(err)
	}
}

// skipWithout skips the test when a server that failed to start has no pg_cron.
func skipWithout(t testing.TB, failure error) {
	t.Helper()
	plain, err := localpg.Start(await.Context(t), testpg.Config(testdir.New(t, "no-pg-cron-").Path, testpg.BinDir(), nil))
	if err != nil {
		t.Fatal(errors.Join(failure, err))
	}
	available := asked(t, plain.URL(), "select exists (select from pg_available_extensions where name = 'pg_cron')")
	if err := plain.Kill(); err != nil {
		t.Error(err)
	}
	if available {
		t.Fatal(failure)
	}
	t.Skipf("PostgreSQL %s in %s has no pg_cron (Debian: postgresql-15-cron)", plain.Version(), plain.BinDir())
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

package testpg

import (
	"context"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/localpg"
)

// StartServer runs a Postgres for tests in dir and returns its URL. It lives as
// long as this process. An empty binDir means the machine's newest version.
// Durability is switched off: nobody needs its data after a crash.
func StartServer(ctx context.Context, dir *testdir.Dir, binDir string) (url string, err error) {
	s, err := localpg.Start(ctx, localpg.Config{
		Dir:    dir.Path,
		BinDir: binDir,
		Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{
			"fsync":                     "off",
			"full_page_writes":          "off",
			"synchronous_commit":        "off",
			"max_connections":           "500",
			"max_prepared_transactions": "100",
			"shared_buffers":            "64MB",    // dropping a database searches all of them
			"max_wal_size":              "256MB",   // it may lie in memory
			"shared_preload_libraries":  "plpgsql", // tests open many sessions: a tenth less for each
		},
	})
	if err != nil {
		return "", err
	}
	return s.URL(), nil
}

// BinDir is where the programs of Postgres are that tests run, or empty for the
// machine's newest.
func BinDir() string { return os.Getenv("POSTHORN_TEST_PG_BIN") }

// Version returns the version of a server in words.
func Version(ctx context.Context, url string) (string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version string
	err = conn.QueryRow(ctx, "select 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	return version, err
}

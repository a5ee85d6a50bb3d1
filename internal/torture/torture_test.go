package torture

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

var (
	seed     = flag.Uint64("torture.seed", 0, "what clients do follows from this; 0 for a new one")
	duration = flag.Duration("torture.for", 4*time.Second, "how long to publish")
	kill     = flag.Duration("torture.kill", 0, "kill a Postgres of the test's own this often; 0 for never")
)

// shown is how many violations of a kind are listed.
const shown = 10

func TestTorture(t *testing.T) {
	config := Config{Seed: *seed, For: *duration, CrashEvery: *kill}
	if config.Seed == 0 {
		config.Seed = rand.Uint64N(1_000_000)
	}
	t.Logf("-torture.seed %d", config.Seed)
	if *kill > 0 {
		config.URL, config.Crash = crashableDatabase(t)
	} else {
		config.URL = posthorntest.Database(t)
	}

	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	for kind, violations := range report.Violations {
		t.Errorf("%s: %d, among them:", kind, len(violations))
		for _, v := range violations[:min(shown, len(violations))] {
			t.Error("\t" + v)
		}
	}
}

// crashableDatabase is on a server that keeps what was committed, and a way to
// kill and restart that.
func crashableDatabase(t *testing.T) (url string, crash func(context.Context) error) {
	t.Helper()
	config := localpg.Config{
		Dir: testdir.New(t, "torture-").Path, BinDir: os.Getenv("POSTHORN_TEST_PG_BIN"), Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{"max_prepared_transactions": "50"},
	}
	server, err := localpg.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() }) // its directory goes too
	migrate(t, server.URL())
	config.Port = server.Port()
	return server.URL(), func(ctx context.Context) error {
		if err := server.Kill(); err != nil {
			return err
		}
		started, err := localpg.Start(ctx, config)
		if err == nil {
			server = started
		}
		return err
	}
}

func migrate(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
}

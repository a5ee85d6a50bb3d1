package posthorntest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/internal/testpg"
)

// ServerURL returns the URL of a server that the test may use as a superuser.
// All tests of the process get the same one. What a test changes there that is
// not inside its own database, such as a role, other tests see.
func ServerURL(t testing.TB) string {
	t.Helper()
	return mustServer(t).url.String()
}

func mustServer(t testing.TB) *server {
	t.Helper()
	s, err := processServer()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asked: processServer was called.
var asked atomic.Bool

// server is the one that tests of this process use.
type server struct {
	url   *url.URL
	admin *pgxpool.Pool

	claim *pgxpool.Conn // kept for claimToken

	// token is this process's part in the names of its databases.
	token string
	count atomic.Int64

	mu        sync.Mutex
	templates map[string]func() (string, error)
}

// processServer starts the server at the first call.
var processServer = sync.OnceValues(func() (*server, error) {
	asked.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if given := os.Getenv("POSTHORN_TEST_DATABASE_URL"); given != "" {
		return useServer(ctx, given)
	}
	started, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	return openServer(ctx, started)
})

// useServer shares a server with other processes. Those that were killed have
// left databases there, which nobody else would drop.
func useServer(ctx context.Context, given string) (*server, error) {
	s, err := openServer(ctx, given)
	if err != nil {
		return nil, fmt.Errorf("use POSTHORN_TEST_DATABASE_URL: %w", err)
	}
	if err := s.claimToken(ctx); err != nil {
		return nil, fmt.Errorf("use POSTHORN_TEST_DATABASE_URL: %w", err)
	}
	return s, s.dropAbandoned(ctx)
}

// directory is the server's, and goes with this process.
var directory *testdir.Dir

// startServer runs a server that lives as long as this process.
func startServer(ctx context.Context) (url string, err error) {
	if directory, err = testdir.Make("posthorntest-"); err != nil {
		return "", err
	}
	return testpg.StartServer(ctx, directory, testpg.BinDir())
}

func openServer(ctx context.Context, given string) (*server, error) {
	parsed, err := url.Parse(given)
	if err != nil || parsed.Scheme == "" {
		return nil, errors.New("not a URL of the form postgres://user:password@host:port/database")
	}
	s := &server{url: parsed, token: newToken(), templates: map[string]func() (string, error){}}
	config, err := pgxpool.ParseConfig(given)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4 // creating databases side by side is hardly faster
	config.ConnConfig.RuntimeParams["application_name"] = s.applicationName()
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	return s, s.admin.Ping(ctx)
}

func newToken() string {
	var token [4]byte
	rand.Read(token[:])
	return hex.EncodeToString(token[:])
}

// databaseURL is the server's URL with another database.
func (s *server) databaseURL(name string) string {
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

func (s *server) applicationName() string { return "posthorntest " + s.token }

// claimToken keeps a connection open for as long as this process lives, which
// tells the others that databases with its token are in use.
func (s *server) claimToken(ctx context.Context) error {
	var err error
	s.claim, err = s.admin.Acquire(ctx)
	return err
}

// dropAbandoned drops what processes that are gone have left. Several processes
// may be at it, so that a database is gone already is fine.
func (s *server) dropAbandoned(ctx context.Context) error {
	rows, err := s.admin.Query(ctx, `
		select d.datname
		from pg_database d
		where d.datname ~ '^posthorn_(template|test)_[0-9a-f]{8}_[0-9]+$'
		and not exists (
			select from pg_stat_activity a
			where a.application_name = 'posthorntest ' || split_part(d.datname, '_', 3)
		)`)
	if err != nil {
		return fmt.Errorf("list abandoned databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list abandoned databases: %w", err)
	}
	for _, name := range names {
		_ = s.drop(ctx, name) // another process is dropping it too
	}
	return nil
}

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

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
)

// ServerURL returns the URL of the server that the tests of this process share. The
// role is a superuser. Changes outside the test's own database, for example of a
// role, affect the other tests.
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

// started reports whether processServer was called.
var started atomic.Bool

// server is the server that the tests of this process share.
type server struct {
	url   *url.URL
	admin *pgxpool.Pool

	claim *pgxpool.Conn // kept open by claimToken

	// token is part of the name of each database of this process.
	token string
	count atomic.Int64

	mu        sync.Mutex
	templates map[string]func() (string, error)
}

// processServer starts the server on the first call.
var processServer = sync.OnceValues(func() (*server, error) {
	started.Store(true)
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

// useServer shares a server with other processes. It drops the databases of killed
// processes, which nothing else would drop.
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

// directory is the server's directory, which is removed when this process ends.
var directory *testdir.Dir

// startServer starts a server that ends with this process.
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
	config.MaxConns = 4 // more connections hardly speed up the creation of databases
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

// databaseURL returns the server's URL with another database.
func (s *server) databaseURL(name string) string {
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

func (s *server) applicationName() string { return "posthorntest " + s.token }

// claimToken keeps a connection open while this process lives, so that other
// processes do not drop databases with its token.
func (s *server) claimToken(ctx context.Context) error {
	var err error
	s.claim, err = s.admin.Acquire(ctx)
	return err
}

// dropAbandoned drops the databases of ended processes. Another process may drop them
// at the same time, so it ignores errors of drop.
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
		_ = s.drop(ctx, name) // another process may be dropping it
	}
	return nil
}

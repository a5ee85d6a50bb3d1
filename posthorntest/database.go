package posthorntest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testcost"
)

// EmptyDatabase creates an empty database for the test and returns its URL. The
// database is dropped when the test ends, even if connections are open.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return mustServer(t).newDatabase(t, "template0")
}

// template is a database that is copied for tests. The key identifies it in the
// process: of several templates with one key, only the first is created. prepare
// fills it and must close its connections before it returns.
type template struct {
	key     string
	prepare func(ctx context.Context, url string) error

	// content identifies the contents that prepare creates, in characters of a
	// database name. Processes that use one server share a template with the same
	// content. Without it, each process creates its own.
	content func() string
}

// clone copies the template for the test and returns the URL of the copy. The first
// call in the process creates the template. The copy is dropped when the test ends,
// even if connections are open.
func clone(t testing.TB, from template) string {
	t.Helper()
	s := mustServer(t)
	name, err := s.template(from)
	if err != nil {
		t.Fatal(err)
	}
	return s.newDatabase(t, name)
}

func (s *server) newDatabase(t testing.TB, from string) string {
	t.Helper()
	name := s.newName("test")
	testcost.Database(t, name)
	if err := s.create(t.Context(), name, from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
		defer cancel()
		if checkConnections.Load() {
			s.expectNoConnections(ctx, t, name)
		}
		if err := s.drop(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return s.databaseURL(name)
}

// template returns the name of the template database. The first call for a key
// creates it, and concurrent calls wait.
func (s *server) template(t template) (string, error) {
	s.mu.Lock()
	prepared, ok := s.templates[t.key]
	if !ok {
		prepared = sync.OnceValues(func() (string, error) { return s.makeTemplate(t) })
		s.templates[t.key] = prepared
	}
	s.mu.Unlock()
	return prepared()
}

func (s *server) makeTemplate(t template) (string, error) {
	// The context is not that of the test that comes first, because other tests need
	// the template too.
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if t.content == nil {
		name := s.newName("template")
		return name, s.fillTemplate(ctx, name, t)
	}
	name := "posthorn_" + t.key + "_" + t.content()
	return name, s.locked(ctx, name, func() error {
		var finished bool
		err := s.admin.QueryRow(ctx,
			"select exists (select from pg_database where datname = $1 and not datallowconn)", name).Scan(&finished)
		if err != nil || finished {
			return err
		}
		if err := s.dropOutdated(ctx, t.key); err != nil {
			return err
		}
		if err := s.drop(ctx, name); err != nil { // its creator was killed
			return err
		}
		return s.fillTemplate(ctx, name, t)
	})
}

func (s *server) fillTemplate(ctx context.Context, name string, t template) error {
	if err := s.create(ctx, name, "template0"); err != nil {
		return err
	}
	if err := t.prepare(ctx, s.databaseURL(name)); err != nil {
		return fmt.Errorf("prepare the template database %q: %w", t.key, err)
	}
	// Postgres cannot copy a database that has connections.
	if _, err := s.admin.Exec(ctx, "alter database "+name+" with allow_connections false"); err != nil {
		return fmt.Errorf("close the template database %q: %w", t.key, err)
	}
	return nil
}

// locked runs do under a lock that is shared by all processes using the server.
func (s *server) locked(ctx context.Context, name string, do func() error) error {
	return pgx.BeginFunc(ctx, s.admin, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 7091))", name); err != nil {
			return err
		}
		return do()
	})
}

// dropOutdated drops templates with other contents that are older than a day. Only a
// long-lived server has any.
func (s *server) dropOutdated(ctx context.Context, key string) error {
	rows, _ := s.admin.Query(ctx, `
		select datname from pg_database
		where datname ~ $1
		and (pg_stat_file('base/' || oid || '/PG_VERSION')).modification < now() - interval '1 day'`,
		"^posthorn_"+key+"_[0-9a-f]+$")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		err = errors.Join(err, s.drop(ctx, name))
	}
	return err
}

// testNames matches the names that newName returns for the databases of tests.
const testNames = "^posthorn_test_[0-9a-f]{8}_[0-9]+$"

// newName returns a name that needs no quoting in SQL. dropAbandoned relies on its
// form.
func (s *server) newName(kind string) string {
	return fmt.Sprintf("posthorn_%s_%s_%d", kind, s.token, s.count.Add(1))
}

// create uses file_copy and not wal_log, which takes twice as long for databases of
// this size.
func (s *server) create(ctx context.Context, name, from string) error {
	_, err := s.admin.Exec(ctx, "create database "+name+" template "+from+" strategy file_copy")
	if err != nil {
		return fmt.Errorf("create database %s from %s: %w", name, from, err)
	}
	return nil
}

func (s *server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

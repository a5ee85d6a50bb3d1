package guarantee

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// session is a connection to the test's database, with helpers for the test.
type session struct {
	t        *testing.T
	conn     *pgx.Conn
	onNotice func(message string)
}

// database creates a database for the test and opens a session in it.
func database(t *testing.T) *session {
	t.Helper()
	return connect(t, posthorntest.Database(t))
}

func connect(t *testing.T, url string) *session {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["search_path"] = ""                                           // functions must find their tables without it
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(await.Limit.Milliseconds()) // a test that hangs fails by its name
	s := &session{t: t}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if s.onNotice != nil {
			s.onNotice(n.Message)
		}
	}
	if s.conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close(context.Background()) })
	return s
}

// notices sets a function that is called with each notice of the server.
func (s *session) notices(call func(message string)) { s.onNotice = call }

// another opens a second session in the same database.
func (s *session) another() *session {
	s.t.Helper()
	return connect(s.t, s.conn.Config().ConnString())
}

func (s *session) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// value returns the single value of a query.
func value[T any](s *session, sql string, args ...any) T {
	s.t.Helper()
	var v T
	if err := s.conn.QueryRow(s.t.Context(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// column returns the single column of a query.
func column[T any](s *session, sql string, args ...any) []T {
	s.t.Helper()
	rows, _ := s.conn.Query(s.t.Context(), sql, args...)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return values
}

// refused runs a statement that must fail with an SQLSTATE.
func (s *session) refused(code, sql string, args ...any) *pgconn.PgError {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), sql, args...)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != code {
		s.t.Fatalf("%s: error %v, want SQLSTATE %s", sql, err, code)
	}
	return pgErr
}

// background runs a statement in a goroutine. outcome waits for its end and returns
// its error.
func (s *session) background(sql string, args ...any) (outcome func() error) {
	done := make(chan error, 1)
	go func() {
		_, err := s.conn.Exec(s.t.Context(), sql, args...)
		done <- err
	}()
	return func() error { return await.Value(s.t, sql, done) }
}

func (s *session) pid() uint32 { return s.conn.PgConn().PID() }

// awaitBlocked waits until the other session waits for a lock.
func (s *session) awaitBlocked(other *session) {
	s.t.Helper()
	s.await("select exists (select from pg_locks where pid = $1 and not granted)", other.pid())
}

// await waits until a condition holds.
func (s *session) await(condition string, args ...any) {
	s.t.Helper()
	await.True(s.t, condition, func() bool { return value[bool](s, condition, args...) })
}

// turnClock sets the offset of the database's clock from the real time.
func (s *session) turnClock(offset time.Duration) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`create or replace function posthorn.now() returns timestamptz
		language sql volatile parallel safe
		return clock_timestamp() + interval '%d milliseconds'`, offset.Milliseconds()))
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

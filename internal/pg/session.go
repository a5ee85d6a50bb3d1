package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session has the prepared statements and caches of a direct connection. Like the
// connection, it is used by one goroutine at a time.
type session struct {
	conn      *pgx.Conn
	prepared  map[string]*pgconn.StatementDescription
	types     map[string]string // of events; there are few, so each is kept as one string
	streamIDs []int64           // of the events received last
	batch     batchEncoder
}

const sessionKey = "posthorn"

func sessionOf(conn *pgx.Conn) *session {
	s, ok := conn.PgConn().CustomData()[sessionKey].(*session)
	if !ok {
		s = &session{conn: conn, prepared: map[string]*pgconn.StatementDescription{}, types: map[string]string{}}
		conn.PgConn().CustomData()[sessionKey] = s
	}
	return s
}

// statement is a statement that a session prepares under a name.
type statement struct{ name, sql string }

// describe returns the description of a statement, which it prepares first if the session
// lacks it: because the connection is new, or after an error.
func (s *session) describe(ctx context.Context, statement statement) (*pgconn.StatementDescription, error) {
	if known := s.prepared[statement.name]; known != nil {
		return known, nil
	}
	conn := s.conn.PgConn()
	description, err := conn.Prepare(ctx, statement.name, statement.sql, nil)
	if sqlState(err) == duplicateStatement { // the server has prepared it, but did not say so
		if err = conn.Deallocate(ctx, statement.name); err == nil {
			description, err = conn.Prepare(ctx, statement.name, statement.sql, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	s.prepared[statement.name] = description
	return description, nil
}

// The errors of Postgres about the names of prepared statements.
const (
	unknownStatement   = "26000"
	duplicateStatement = "42P05"
)

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return ""
	}
	return pgErr.Code
}

// forget makes a session prepare its statements again if err says that they are gone from
// the server, for example after discard all.
func (s *session) forget(ctx context.Context, err error) {
	if sqlState(err) != unknownStatement {
		return
	}
	for name := range s.prepared {
		_ = s.conn.PgConn().Deallocate(ctx, name) // an error shows when they are prepared again
	}
	clear(s.prepared)
}

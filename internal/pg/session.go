package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// statement is a statement that this package prepares and sends itself, since pgx would
// inspect the type of every value.
type statement struct {
	name       string
	sql        string
	parameters []uint32 // their types
}

var (
	beginStatement  = statement{name: "posthorn_begin", sql: "begin"}
	commitStatement = statement{name: "posthorn_commit", sql: "commit"}
)

var takeStatement = statement{
	name: "posthorn_take",
	sql:  "select lease, attempt from posthorn.take($1, $2, $3, $4, $5, $6, $7)",
	parameters: []uint32{
		pgtype.Int8OID, pgtype.TextOID, pgtype.Int4OID, pgtype.IntervalOID, pgtype.UUIDOID, pgtype.Int8OID, pgtype.Int4OID,
	},
}

// Most events have no tags, and null costs a tenth less of an event than an empty array does.
// Empty metadata stay: telling them apart costs more than sending them.
var leaseEventsStatement = statement{
	name: "posthorn_lease_events",
	sql: `
		select event_id, stream_id, type, key, case when cardinality(tags) > 0 then tags end, payload, metadata, published_at, delivery, subscriptions
		from posthorn.lease_events($1)`,
	parameters: []uint32{pgtype.UUIDOID},
}

// session has the prepared statements and caches of a direct connection. Like the
// connection, it is used by one goroutine at a time.
type session struct {
	prepared  map[string]*pgconn.StatementDescription
	types     map[string]string // of events; there are few, so each is kept as one string
	streamIDs []int64           // of the events received last
	batch     batchEncoder
}

const sessionKey = "posthorn"

// sessionOf returns the session of a connection and prepares the statements that it lacks:
// all of them if the connection is new, or the rest after an error.
func sessionOf(ctx context.Context, conn *pgx.Conn) (*session, error) {
	s, ok := conn.PgConn().CustomData()[sessionKey].(*session)
	if !ok {
		s = &session{prepared: map[string]*pgconn.StatementDescription{}, types: map[string]string{}}
		conn.PgConn().CustomData()[sessionKey] = s
	}
	return s, s.prepare(ctx, conn, beginStatement, takeStatement, commitStatement, leaseEventsStatement)
}

// prepare prepares the statements that the session lacks.
func (s *session) prepare(ctx context.Context, conn *pgx.Conn, statements ...statement) error {
	for _, statement := range statements {
		if s.prepared[statement.name] != nil {
			continue
		}
		description, err := conn.PgConn().Prepare(ctx, statement.name, statement.sql, statement.parameters)
		if sqlState(err) == duplicateStatement { // the server has prepared it, but did not say so
			if err = conn.PgConn().Deallocate(ctx, statement.name); err == nil {
				description, err = conn.PgConn().Prepare(ctx, statement.name, statement.sql, statement.parameters)
			}
		}
		if err != nil {
			return err
		}
		s.prepared[statement.name] = description
	}
	return nil
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

// timeoutStatement limits the time of each statement of a transaction. It has no parameters
// and returns no row, so each limit is a statement of its own.
func (s *session) timeoutStatement(ctx context.Context, conn *pgx.Conn, limit time.Duration) (statement, error) {
	timeout := statement{
		name: fmt.Sprintf("posthorn_timeout_%d", limit.Milliseconds()),
		sql:  fmt.Sprintf("set local statement_timeout = %d", limit.Milliseconds()),
	}
	return timeout, s.prepare(ctx, conn, timeout)
}

// forget discards a session whose prepared statements are gone from the server, for example
// after discard all.
func (s *session) forget(ctx context.Context, conn *pgx.Conn, err error) {
	if sqlState(err) != unknownStatement {
		return
	}
	delete(conn.PgConn().CustomData(), sessionKey)
	for name := range s.prepared {
		_ = conn.PgConn().Deallocate(ctx, name) // an error shows when they are prepared again
	}
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

func (s *session) send(pipeline *pgconn.Pipeline, statement statement, parameters ...[]byte) {
	pipeline.SendQueryStatement(s.prepared[statement.name], parameters, binaryFormat, binaryFormat)
}

package schedule

import (
	"context"
	"errors"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is a session of one schedule.
type session struct {
	Session
	conn    *pgx.Conn
	next    int  // the step that is sent next
	busy    bool // a statement is under way
	atPoint bool // and stands at a point inside a function
	point   int  // the number of the point at which it stops next
	place   string
	line    int    // of the trace, for the statement under way
	sql     string // of that statement
	sent    Moment
	done    chan Outcome
	vars    Vars
	tx      *Tx
}

func newSession(s Session, conn *pgx.Conn) *session {
	return &session{Session: s, conn: conn, done: make(chan Outcome, 1), vars: Vars{}, tx: &Tx{}}
}

func (s *session) pid() int32 { return int32(s.conn.PgConn().PID()) }

// send sends a statement.
func (s *session) send(ctx context.Context, sql string) {
	s.busy = true
	go func() { s.done <- ask(ctx, s.conn, sql) }()
}

func ask(ctx context.Context, conn *pgx.Conn, sql string) (o Outcome) {
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return Outcome{Err: err}
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			rows.Close()
			return Outcome{Err: err}
		}
		o.Rows = append(o.Rows, values)
	}
	for _, f := range rows.FieldDescriptions() {
		o.Columns = append(o.Columns, f.Name)
	}
	o.Tag, o.Err = rows.CommandTag().String(), rows.Err()
	return o
}

// Code returns the SQLSTATE of an error, or "".
func Code(err error) string {
	if e, is := errors.AsType[*pgconn.PgError](err); is {
		return e.Code
	}
	return ""
}

var variable = regexp.MustCompile(`\{([a-zA-Z_][a-zA-Z0-9_]*)\}`)

// fill puts variables into SQL: of the session, or else of the scenario.
func fill(sql string, own, world Vars) (filled string, complete bool) {
	complete = true
	filled = variable.ReplaceAllStringFunc(sql, func(m string) string {
		name := m[1 : len(m)-1]
		if v, has := own[name]; has {
			return v
		}
		v, has := world[name]
		complete = complete && has
		return v
	})
	return filled, complete
}

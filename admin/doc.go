// Package admin looks at Posthorn and operates it: events, groups, dead letters, jobs,
// projections, relays, imports, archives, schedules, streams, nodes and tokens. The
// command posthorn and the HTTP API use it.
//
//	a := ph.Admin() // or admin.New(pool, "shop")
//	groups, err := a.Groups(ctx)
//	…
//	n, err := a.Redrive(ctx, admin.DeadLetterFilter{Group: "billing"})
//
// Each method is one statement in the transaction of its database handle, unless its
// comment says otherwise. A change by an Admin that has an actor, see [Admin.By], is a
// transaction that also records it in the audit log. Fields of results have the names of
// the columns of the views and functions in SQL. An unknown time is zero.
//
// Errors are those of package posthorn: errors.Is tells posthorn.ErrNotFound,
// ErrConflict, ErrInvalid and ErrRefused apart, and posthorn.Hint returns the remedy.
//
// The daily work of a program, such as publishing and handling, is in package posthorn.
package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthorn/posthorn/internal/pg"
)

// DB is a database with Posthorn's schema: a pool, a connection or a transaction of
// pgx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Opener opens payloads of confidential streams. It returns a payload that is not sealed
// as it is.
type Opener interface {
	OpenPayload(ctx context.Context, namespace, stream string, metadata, payload []byte) (plain []byte, opened bool, err error)
}

// Admin operates one namespace of a database. It is as safe for use by several
// goroutines as its database handle.
type Admin struct {
	db        DB
	namespace string
	opener    Opener
	actor     string      // the name under which changes are recorded; "": they are not recorded
	action    int64       // the action that changes are parts of; 0: each change is an action
	hidden    []string    // streams that the caller may not read
	hostsOnly bool        // URLs of webhooks are shortened
	held      *FoundToken // the token of the caller; nil: a program, with the rights of its role in the database
}

// New returns an Admin for a namespace.
func New(db DB, namespace string) *Admin { return &Admin{db: db, namespace: namespace} }

// Opening returns an Admin that opens payloads of events and dead letters. Without an
// opener they stay as they are in the log.
func (a *Admin) Opening(opener Opener) *Admin {
	other := *a
	other.opener = opener
	return &other
}

// In returns an Admin that works in a transaction, or through another handle of the
// same database.
func (a *Admin) In(db DB) *Admin {
	other := *a
	other.db = db
	return &other
}

// open opens a payload, if there is an opener. A payload that does not open stays
// sealed.
func (a *Admin) open(ctx context.Context, stream string, metadata, payload json.RawMessage) (_ json.RawMessage, sealed bool) {
	if a.opener == nil {
		return payload, false
	}
	plain, opened, err := a.opener.OpenPayload(ctx, a.namespace, stream, metadata, payload)
	if opened {
		payload = plain
	}
	return payload, err != nil
}

// Moment is a place in the log: a time, or one of its ends.
type Moment = pgtype.Timestamptz

// Now returns the time of the database, which decides when something is due.
func (a *Admin) Now(ctx context.Context) (time.Time, error) {
	return pg.Value[time.Time](ctx, a.db, "read the time", "select posthorn.now()")
}

// Connect opens one connection to a database. Its statements have no deadlines. When the
// database does not answer any more, they end, and log receives a warning.
func Connect(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error) {
	config = config.Copy()
	config.DialFunc = pg.Dial
	return pg.Connect(ctx, config, log)
}

// ConnectOnceReady is [Connect], and waits while the server starts, recovers from a crash or
// shuts down. Log receives a warning then.
func ConnectOnceReady(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error) {
	return pg.OnceReady(ctx, log, func(ctx context.Context) (*pgx.Conn, error) { return Connect(ctx, config, log) })
}

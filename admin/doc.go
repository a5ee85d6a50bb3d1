// Package admin looks at Posthorn and operates it: events, groups, dead letters, jobs,
// projections, relays, imports, archives, schedules, streams, nodes and tokens. The
// command posthorn and the HTTP API are made of it.
//
//	a := ph.Admin() // or admin.New(pool, "shop")
//	groups, err := a.Groups(ctx)
//	…
//	n, err := a.Redrive(ctx, admin.DeadLetterFilter{Group: "billing"})
//
// Each method is one statement, in whatever transaction its database handle has,
// unless it says otherwise. A change by an Admin that has an actor, see [Admin.By], is
// a transaction that also records it in the audit log. The fields of what it returns have the names of the
// columns that the same views and functions have in SQL. Times that are not known are
// zero.
//
// Errors are those of package posthorn: errors.Is tells posthorn.ErrNotFound,
// ErrConflict, ErrInvalid and ErrRefused apart, and posthorn.Hint says what to do.
//
// What a program does all day, such as publishing and handling, is in package
// posthorn.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
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

// Opener opens payloads of confidential streams. A payload that is not sealed it
// returns as it is.
type Opener interface {
	OpenPayload(ctx context.Context, namespace, stream string, metadata, payload []byte) (plain []byte, opened bool, err error)
}

// Admin operates one namespace of a database. It is as safe for use by several
// goroutines as its database handle.
type Admin struct {
	db        DB
	namespace string
	opener    Opener
	actor     string // in whose name changes are recorded; "": they are not
	action    int64  // the action of which changes are parts; 0: each is one of its own
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

// Now returns the time by which everything is decided: that of the database.
func (a *Admin) Now(ctx context.Context) (time.Time, error) {
	return pg.Value[time.Time](ctx, a.db, "read the time", "select posthorn.now()")
}

// only returns the one row that there must be. Kind and name say which thing there is
// none of.
func only[T any](a *Admin, found []T, err error, kind, name, hint string) (T, error) {
	if err == nil && len(found) == 0 {
		err = a.missing(kind, name, hint)
	}
	if err != nil {
		var none T
		return none, err
	}
	return found[0], nil
}

func (a *Admin) missing(kind, name, hint string) error {
	return fmt.Errorf("show %s: %w", kind, pg.NotFound(fmt.Sprintf("%s '%s' does not exist in namespace %s", kind, name, a.namespace), hint))
}

const keptByPrograms = "It exists once a program that has it has run; look for it in another namespace."

// seconds is a period in seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// period makes a period that is not given null.
func period(d time.Duration) *string {
	if d == 0 {
		return nil
	}
	text := pg.Period(d)
	return &text
}

// given makes a value that is not given null.
func given[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

// list is never null in SQL.
func list(texts []string) []string { return append([]string{}, texts...) }

// object makes a document that is not given null.
func object(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return raw
}

// Connect opens one connection to a database. Its statements have no deadlines, but end
// when the database falls silent, which log is told.
func Connect(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error) {
	config = config.Copy()
	config.DialFunc = pg.Dial
	return pg.Connect(ctx, config, log)
}

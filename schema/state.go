package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of [Check] and [Migrate].
var (
	ErrNotMigrated  = errors.New("database is not migrated")
	ErrTooNew       = errors.New("database schema is too new for this binary")
	ErrOtherHistory = errors.New("database schema has migrations that this binary does not have")
)

// Standing is the result of comparing a database with a binary.
type Standing string

// Standings of a database.
const (
	Absent  Standing = "not installed"
	Behind  Standing = "behind"     // Migrate would upgrade the database
	Current Standing = "up to date" // the versions are equal
	Ahead   Standing = "ahead"      // newer than the binary, which can still work with it
	TooNew  Standing = "too new"    // newer than the binary, which cannot work with it

	OtherHistory Standing = "other history" // the database has migrations that the binary does not have
)

// State describes the schema in a database.
type State struct {
	Standing       Standing   `json:"standing"`
	Binary         Version    `json:"binary"`
	Database       Version    `json:"database"` // zero if the schema is not installed
	CompatibleFrom int        `json:"compatible_from"`
	AppliedBy      string     `json:"applied_by"`
	AppliedAt      *time.Time `json:"applied_at"`
	Pending        []string   `json:"pending"` // the files that Migrate would apply
}

// There are two queries because naming a missing table is an error, which would abort
// Migrate's transaction and appear in the server's log. The first query reads the
// catalog and not to_regclass, whose cache may miss a table that was created while
// Migrate waited for its lock. The second query finds no history in a database of a
// version that did not record it.
const (
	stateExists = `
select exists (
  select
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'posthorn' and c.relname = 'schema_version'
), format('%I', current_user)`
	stateRow = `
select version, revision, functions_hash, compatible_from, applied_by, applied_at,
  array(select jsonb_array_elements_text(to_jsonb(v) -> 'history'))
from posthorn.schema_version v`
)

// state uses the simple protocol: a pooler that gives each transaction another
// connection loses prepared statements.
func (b bundle) state(ctx context.Context, db Querier) (State, error) {
	s := State{Binary: b.version, Pending: []string{}}
	var exists bool
	var user string
	var history []string
	if err := db.QueryRow(ctx, stateExists, pgx.QueryExecModeSimpleProtocol).Scan(&exists, &user); err != nil {
		return State{}, fmt.Errorf("read schema version: %w", err)
	}
	if exists {
		d := &s.Database
		err := db.QueryRow(ctx, stateRow, pgx.QueryExecModeSimpleProtocol).
			Scan(&d.Migration, &d.Revision, &d.Functions, &s.CompatibleFrom, &s.AppliedBy, &s.AppliedAt, &history)
		if isDenied(err) {
			err = noRoleError{err, user}
		}
		if err != nil {
			return State{}, fmt.Errorf("read schema version: %w", err)
		}
	}
	s.Standing = s.standing()
	if s.Standing != Absent && !b.continues(history, s.Database.Migration) {
		s.Standing = OtherHistory
	}
	for _, step := range b.pending(s) {
		s.Pending = append(s.Pending, step.Name)
	}
	return s, nil
}

// noRoleError is the error of a user without any role of Posthorn: not even the version may be read.
type noRoleError struct {
	error
	user string // as SQL writes it
}

func (e noRoleError) Unwrap() error { return e.error }

// Hint returns the grant that lets programs of the user publish, handle and work.
func (e noRoleError) Hint() string {
	return "as the owner of the schema: grant posthorn_publisher, posthorn_consumer to " + e.user + "; posthorn_admin may do everything"
}

func isDenied(err error) bool {
	var pgErr *pgconn.PgError
	const insufficientPrivilege = "42501"
	return errors.As(err, &pgErr) && pgErr.Code == insufficientPrivilege
}

// continues reports whether the database's migrations are those of the bundle, as far
// as both have them. history and newest describe the database.
func (b bundle) continues(history []string, newest int) bool {
	own := b.history()
	common := min(len(own), newest)
	return len(history) >= common && slices.Equal(history[:common], own[:common])
}

func (s State) standing() Standing {
	age := s.Binary.compare(s.Database)
	switch {
	case s.Database.Migration == 0:
		return Absent
	case age > 0:
		return Behind
	case age < 0 && s.CompatibleFrom > s.Binary.Migration:
		return TooNew
	case age < 0:
		return Ahead
	case s.Binary.Functions != s.Database.Functions:
		return Behind
	default:
		return Current
	}
}

func (b bundle) check(ctx context.Context, db Querier) error {
	s, err := b.state(ctx, db)
	if err != nil {
		return err
	}
	switch s.Standing {
	case Absent:
		return fmt.Errorf("%w: run: posthorn migrate", ErrNotMigrated)
	case Behind:
		return fmt.Errorf("%w: it has schema %s and this binary needs %s; run: posthorn migrate",
			ErrNotMigrated, s.Database, s.Binary)
	default:
		return s.refusal()
	}
}

// refusal returns the reason why the binary cannot work with the database, or nil.
func (s State) refusal() error {
	switch s.Standing {
	case TooNew:
		return s.tooNew()
	case OtherHistory:
		return fmt.Errorf("%w: it has schema %s, applied by posthorn %s, which is not a release, so it cannot be upgraded to %s; use a new database, or delete all events with: drop schema posthorn cascade",
			ErrOtherHistory, s.Database, s.AppliedBy, s.Binary)
	default:
		return nil
	}
}

func (s State) tooNew() error {
	return fmt.Errorf("%w: it has schema %s, applied by posthorn %s, and needs a binary with schema %d or newer; this one has %s",
		ErrTooNew, s.Database, s.AppliedBy, s.CompatibleFrom, s.Binary)
}

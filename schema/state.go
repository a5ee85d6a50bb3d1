package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Errors that callers may want to tell apart.
var (
	ErrNotMigrated  = errors.New("database is not migrated")
	ErrTooNew       = errors.New("database schema is too new for this binary")
	ErrOtherHistory = errors.New("database schema was made by other migrations than this binary has")
)

// Standing says how a database compares with a binary.
type Standing string

// The standings.
const (
	Absent  Standing = "not installed"
	Behind  Standing = "behind"     // Migrate has something to do
	Current Standing = "up to date" // they match
	Ahead   Standing = "ahead"      // newer than the binary, which may go on using it
	TooNew  Standing = "too new"    // newer than the binary can work with

	OtherHistory Standing = "other history" // made by migrations that the binary does not have
)

// State is what is known about a database and the schema in it.
type State struct {
	Standing       Standing   `json:"standing"`
	Binary         Version    `json:"binary"`
	Database       Version    `json:"database"` // zero when the schema is not installed
	CompatibleFrom int        `json:"compatible_from"`
	AppliedBy      string     `json:"applied_by"`
	AppliedAt      *time.Time `json:"applied_at"`
	Pending        []string   `json:"pending"` // the files that Migrate would apply
}

// Two queries, since one that names a missing table is an error, which would
// abort the transaction that Migrate reads in and show up in the server's log.
// The first reads the catalog itself: to_regclass looks into a cache, where it
// may miss a table that was made while Migrate waited for its lock. The second
// finds no history in a database that was made before there was one.
const (
	stateExists = `
select exists (
  select
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'posthorn' and c.relname = 'schema_version'
)`
	stateRow = `
select version, revision, functions_hash, compatible_from, applied_by, applied_at,
  array(select jsonb_array_elements_text(to_jsonb(v) -> 'history'))
from posthorn.schema_version v`
)

// state reads with the simple protocol: behind a pooler that gives each
// transaction another connection, prepared statements would get lost.
func (b bundle) state(ctx context.Context, db Querier) (State, error) {
	s := State{Binary: b.version, Pending: []string{}}
	var exists bool
	var history []string
	if err := db.QueryRow(ctx, stateExists, pgx.QueryExecModeSimpleProtocol).Scan(&exists); err != nil {
		return State{}, fmt.Errorf("read schema version: %w", err)
	}
	if exists {
		d := &s.Database
		err := db.QueryRow(ctx, stateRow, pgx.QueryExecModeSimpleProtocol).
			Scan(&d.Migration, &d.Revision, &d.Functions, &s.CompatibleFrom, &s.AppliedBy, &s.AppliedAt, &history)
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

// continues tells whether a database with that history and newest migration was
// made by the migrations of the bundle, as far as both have them.
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

// refusal returns why the binary can do nothing with the database, or nil.
func (s State) refusal() error {
	switch s.Standing {
	case TooNew:
		return s.tooNew()
	case OtherHistory:
		return fmt.Errorf("%w: it has schema %s, applied by posthorn %s, which no release had, so nothing leads from there to %s; use a new database, or delete all events with: drop schema posthorn cascade",
			ErrOtherHistory, s.Database, s.AppliedBy, s.Binary)
	default:
		return nil
	}
}

func (s State) tooNew() error {
	return fmt.Errorf("%w: it has schema %s, applied by posthorn %s, and needs a binary with schema %d or newer; this one has %s",
		ErrTooNew, s.Database, s.AppliedBy, s.CompatibleFrom, s.Binary)
}

// Package schema contains Posthorn's SQL: the tables, functions and views of the
// PostgreSQL schema posthorn, and the upgrade of a database from one version of them
// to the next.
//
// There are two kinds of file. migrations/NNN_name.sql create and change tables: each
// file is applied once, in order, and never edited or removed.
// functions/*/*/*.sql contain the objects that can be replaced at any time: functions,
// views and grants. Every upgrade applies all of them again, floor by floor. Since
// Postgres refuses to rename arguments or change result types in "create or replace",
// a changed signature needs a migration that drops the old function.
//
// Package internal/pg calls the functions from Go. This package does not run servers
// or create databases for tests.
package schema

import (
	"context"
	"embed"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
)

//go:generate go test -run ^Test(Revision|Reference)$ . -update

// CompatibleFrom is the newest migration in the oldest binary that still works with
// this schema. Binaries with fewer migrations refuse the database. Increase it
// together with a migration that removes or changes something that older binaries
// use. While it is unchanged, old and new binaries can share a database during a
// rolling upgrade.
const CompatibleFrom = 1

//go:embed migrations/*.sql functions/*/*/*.sql revision
var files embed.FS

// Tests check the embedded files, so a user never sees this panic.
var embedded = sync.OnceValue(func() bundle {
	b, err := load(files)
	if err != nil {
		panic(err)
	}
	return b
})

// Querier can read the state of a database: a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB can migrate a database: a *pgx.Conn or a *pgxpool.Pool. A transaction cannot,
// since Migrate chooses the isolation level.
type DB interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Embedded returns the version of the schema in this binary.
func Embedded() Version { return embedded().version }

// Migrate upgrades the database to the schema in this binary, in one transaction:
// after an error the database is unchanged. Any number of processes may call it
// concurrently; one migrates and the others wait for it. If the schema is up to date,
// Migrate reads one row, takes no lock, and needs only permission to read. It never
// changes a database that is newer than the binary: it logs a warning, or returns
// [ErrTooNew] if the binary is too old to work with that schema. It returns
// [ErrOtherHistory] for a database with migrations that the binary does not have.
//
// A migration may need a table that a long transaction is using. If it waited for
// that lock, all later transactions would wait behind it. So it gives up after
// Options.LockTimeout, pauses, and retries until ctx ends.
func Migrate(ctx context.Context, db DB, opts Options) (Report, error) {
	return embedded().migrate(ctx, db, opts)
}

// Status compares the database with the schema in this binary.
func Status(ctx context.Context, db Querier) (State, error) {
	return embedded().state(ctx, db)
}

// DryRun returns the steps that Migrate would run, in order, and changes nothing.
// Running them by hand in one transaction has the same effect as Migrate.
func DryRun(ctx context.Context, db Querier) ([]Step, error) {
	return embedded().dryRun(ctx, db)
}

// PlanMigration returns what Migrate would do, and which statements of others would wait for its locks. It
// changes nothing, and takes none of these locks.
func PlanMigration(ctx context.Context, db Querier) (Plan, error) {
	return embedded().plan(ctx, db)
}

// Check returns nil if this binary can work with the database, otherwise
// [ErrNotMigrated], [ErrTooNew] or [ErrOtherHistory], with the remedy in the text.
func Check(ctx context.Context, db Querier) error {
	return embedded().check(ctx, db)
}

// Compare returns the objects that are missing in schema posthorn, and the unexpected
// ones. It returns none if the database has another version of the schema than this
// binary.
func Compare(ctx context.Context, db Querier) (Audit, error) {
	return embedded().audit(ctx, db)
}

// Print writes a SQL script that installs the schema into a database that has none.
// The script is plain SQL, so any client can run it. It does not begin a transaction,
// which is left to the client (psql -1). The result is the same as that of Migrate.
func Print(w io.Writer) error {
	return embedded().print(w)
}

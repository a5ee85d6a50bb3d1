// Package schema owns the SQL that Posthorn is made of: the tables, functions
// and views of the PostgreSQL schema posthorn, and the way a database gets from
// one version of them to the next.
//
// There are two kinds of file. migrations/NNN_name.sql make and change tables:
// each is applied once, in order, and never edited or removed after a release.
// functions/*/*.sql hold what can be replaced at any time: functions, views and
// grants. They are all re-applied on every upgrade, folder by folder. Postgres
// refuses to rename arguments or change result types in "create or replace", so
// a signature changes only by a migration that drops the old function.
//
// The package does not own what the functions mean to a Go program; that is
// internal/pg. Nor does it run servers or make databases for tests.
package schema

import (
	"context"
	"embed"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
)

//go:generate go test -run ^Test(Revision|Reference)$ . -update

// CompatibleFrom is the newest migration that the oldest binary still working
// with this schema carries. Binaries that carry less refuse the database. Raise
// it together with a migration that takes away or changes something which older
// binaries use; as long as it stays, old and new binaries share a database
// during a rolling upgrade.
const CompatibleFrom = 1

//go:embed migrations/*.sql functions/*/*.sql revision
var files embed.FS

// The embedded files are checked by the tests, so an error here cannot reach a user.
var embedded = sync.OnceValue(func() bundle {
	b, err := load(files)
	if err != nil {
		panic(err)
	}
	return b
})

// Querier is what reading the state of a database needs: connections, pools
// and transactions have it.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB is what migrating a database needs: *pgx.Conn and *pgxpool.Pool have it.
// A transaction is no DB here, since Migrate chooses the isolation level.
type DB interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Embedded tells which schema this binary carries.
func Embedded() Version { return embedded().version }

// Migrate brings the database to the schema this binary carries. All of it
// happens in one transaction: after an error nothing has changed. Any number of
// processes may call it at once; one works and the others wait, then find
// nothing to do. When there is nothing to do it reads one row, takes no lock and
// needs no right beyond reading. A database that is newer than the binary is
// never touched: Migrate logs a warning, or returns [ErrTooNew] if the binary is
// too old to work with it. One whose migrations the binary does not have is
// refused with [ErrOtherHistory].
//
// A change that needs a table which a long transaction is using does not wait
// behind it, since everyone else would then wait behind the change. It gives up
// after Options.LockTimeout, pauses, and tries again until ctx ends.
func Migrate(ctx context.Context, db DB, opts Options) (Report, error) {
	return embedded().migrate(ctx, db, opts)
}

// Status compares the database with the schema this binary carries.
func Status(ctx context.Context, db Querier) (State, error) {
	return embedded().state(ctx, db)
}

// DryRun returns what Migrate would run, in order, and changes nothing. Run by
// hand, in one transaction, the steps do the same as Migrate.
func DryRun(ctx context.Context, db Querier) ([]Step, error) {
	return embedded().dryRun(ctx, db)
}

// Check returns nil if this binary can work with the database as it is,
// otherwise [ErrNotMigrated], [ErrTooNew] or [ErrOtherHistory] with what to do about it.
func Check(ctx context.Context, db Querier) error {
	return embedded().check(ctx, db)
}

// Compare returns the objects that are missing in schema posthorn, and those that do
// not belong to Posthorn. It returns none when the database has another version of the
// schema than this binary.
func Compare(ctx context.Context, db Querier) (Audit, error) {
	return embedded().audit(ctx, db)
}

// Print writes one SQL script that installs the whole schema into a database
// that has none, with any client: it is plain SQL without client commands. It
// leaves transactions to the client (psql -1), and leaves the same database
// behind as Migrate does.
func Print(w io.Writer) error {
	return embedded().print(w)
}

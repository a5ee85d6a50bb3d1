// Package pg calls the functions of the schema posthorn: one Go function for
// each, in a file named like the SQL file that defines it. It is the only place
// with SQL text, apart from the runner in package schema.
//
// It owns the statements, the shapes of what goes in and comes out, and the
// translation of errors. It decides nothing: when to claim, what a failure means
// or how long to wait is up to its callers, and everything else is up to the
// functions.
//
// Each call is one statement, in whatever transaction the caller has. All of
// them work with every query mode of pgx, so also through a pooler that gives
// each transaction another connection. [Taker] is the exception: it needs a
// [Pool], and takes work in one round trip of two transactions.
package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what the functions need: pools, connections and transactions have it.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// one runs a statement that yields one value.
func one[T any](ctx context.Context, db DB, verb, sql string, args ...any) (T, error) {
	var value T
	err := db.QueryRow(ctx, sql, args...).Scan(&value)
	return value, translate(verb, err)
}

// run runs a statement that yields nothing.
func run(ctx context.Context, db DB, verb, sql string, args ...any) error {
	_, err := db.Exec(ctx, sql, args...)
	return translate(verb, err)
}

// list runs a statement and scans each of its rows.
func list[T any](ctx context.Context, db DB, verb string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, translate(verb, err)
	}
	values, err := pgx.CollectRows(rows, scan)
	return values, translate(verb, err)
}

// Package pg calls the functions of the schema posthorn that the engines need: one Go
// function for each, in a file named like the SQL file that defines it. Package admin
// has those that look and operate.
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

// Value runs a statement that yields one value.
func Value[T any](ctx context.Context, db DB, verb, sql string, args ...any) (T, error) {
	var value T
	err := db.QueryRow(ctx, sql, args...).Scan(&value)
	return value, Translate(verb, err)
}

// Exec runs a statement that yields nothing.
func Exec(ctx context.Context, db DB, verb, sql string, args ...any) error {
	_, err := db.Exec(ctx, sql, args...)
	return Translate(verb, err)
}

// Collect runs a statement and scans each of its rows.
func Collect[T any](ctx context.Context, db DB, verb string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, Translate(verb, err)
	}
	values, err := pgx.CollectRows(rows, scan)
	return values, Translate(verb, err)
}

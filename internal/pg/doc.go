// Package pg calls the SQL functions that the engines need: one Go function for each SQL
// function, in a file named like the SQL file that defines it. Package admin calls the SQL
// functions for looking and operating.
//
// It owns the statements, the types of their arguments and results, and the translation of
// errors. It makes no decisions: its callers decide when to claim or how long to wait, and
// the SQL functions decide the rest.
//
// Each call is one statement in the transaction of its caller. It works in every query mode
// of pgx, and so through a pooler that gives each transaction another connection. The
// methods of [Pool] are the exception: they take a lease and its events in one round trip
// of two transactions.
//
// The package also has the connections of these statements: deadlines, and a monitor that
// notices when a server stops answering.
package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Value runs a statement that returns one value.
func Value[T any](ctx context.Context, db DB, verb, sql string, args ...any) (T, error) {
	var value T
	err := db.QueryRow(ctx, sql, args...).Scan(&value)
	return value, Translate(verb, err)
}

// Exec runs a statement that returns nothing.
func Exec(ctx context.Context, db DB, verb, sql string, args ...any) error {
	_, err := db.Exec(ctx, sql, args...)
	return Translate(verb, err)
}

// Collect runs a statement and scans each of its rows. It returns them also with an
// [ErrUnconfirmed].
func Collect[T any](ctx context.Context, db DB, verb string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, Translate(verb, err)
	}
	values, err := collectRows(rows, scan)
	return values, Translate(verb, err)
}

// collectRows is pgx.CollectRows, which drops the rows of a statement that is committed and
// not confirmed.
func collectRows[T any](rows pgx.Rows, scan pgx.RowToFunc[T]) ([]T, error) {
	defer rows.Close()
	values := []T{}
	for rows.Next() {
		value, err := scan(rows)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	err := rows.Err()
	if err != nil && !isUnconfirmed(err) {
		return nil, err
	}
	return values, err
}

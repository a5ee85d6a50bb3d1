package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Limited gives statements the deadlines of statements on a [Pool], on connections that the
// program has opened. See [Within].
func Limited(db DB) DB { return limitedDB{db} }

type limitedDB struct{ db DB }

func (l limitedDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	return l.db.Exec(ctx, sql, args...)
}

func (l limitedDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := limited(ctx)
	rows, err := l.db.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return rows, err
	}
	return limitedRows{rows, cancel}, nil
}

func (l limitedDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := limited(ctx)
	return limitedRow{l.db.QueryRow(ctx, sql, args...), cancel}
}

type limitedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r limitedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

type limitedRow struct {
	pgx.Row
	cancel context.CancelFunc
}

func (r limitedRow) Scan(into ...any) error {
	defer r.cancel()
	return r.Row.Scan(into...)
}

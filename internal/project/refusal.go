package project

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// refusal is an error caused by the events, or by the function that applies them. All
// other errors are temporary errors of the database.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Refused reports whether an error was caused by the events, or by the function that
// applies them.
func Refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// Passes reports whether an error is a temporary error of the database.
func Passes(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return !Refused(err) && (!answered || pg.IsCollision(err) || pg.IsOutage(err))
}

// Blame marks the error of a function that used tx as [Refused], unless it is an error
// of the database. After the connection was lost, any error but a timeout counts as one
// of the database.
func Blame(ctx context.Context, tx pgx.Tx, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, worker.ErrTimeout):
		return &refusal{err}
	case ctx.Err() != nil, pg.IsCollision(err), tx.Conn().IsClosed(), pg.IsOutage(err):
		return err
	}
	return &refusal{err}
}

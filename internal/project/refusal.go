package project

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// refusal is an error that comes from the events, or from the function that
// applies them. All others are the database's, and pass.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Refused reports whether an error comes from the events, or from the function
// that applies them.
func Refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// Passes reports whether an error is trouble with the database that passes.
func Passes(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return !Refused(err) && (!answered || pg.IsCollision(err) || pg.IsOutage(err))
}

// Blame tells whether the error of a function that used tx is its own, and so
// [Refused], or the database's. When the connection is gone it is the database's,
// unless the function has used up its time.
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

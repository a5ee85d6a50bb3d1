package project

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// refusal is an error that comes from the events, or from whoever applies them.
// All others are the database's, and pass.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// tries is how often a transaction is begun again at once that collided with
// another, such as a rebuild that empties the tables.
const tries = 5

func (w *Worker) insist(h *held, start, end int) (err error) {
	for range tries {
		if err = w.once(h, start, end); !Collided(err) {
			return err
		}
		w.Rest(h.ctx, rand.N(50*time.Millisecond))
	}
	return fmt.Errorf("collided with other transactions %d times: %w", tries, err)
}

// Collided reports whether a transaction failed because of another one.
func Collided(err error) bool {
	const serializationFailure, deadlock, lockTimeout = "40001", "40P01", "55P03"
	code := sqlState(err)
	return code == serializationFailure || code == deadlock || code == lockTimeout
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return ""
	}
	return pgErr.Code
}

// once applies events in one transaction and settles them there.
func (w *Worker) once(h *held, start, end int) error {
	events := h.lease.Events[start:end]
	h.begin()
	if len(w.wanted(events)) == 0 {
		return h.settle(end, func(ctx context.Context) error { return w.settle(ctx, w.Pool, h.lease, events) })
	}
	tx, err := w.Work.Begin(h.ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := worker.Outlast(h.ctx, lastWords)
		defer cancel()
		_ = tx.Rollback(ctx) // of what is committed, there is none
	}()
	if err := w.call(h.ctx, tx, w.wanted(events)); err != nil {
		return Blame(h.ctx, tx, err)
	}
	return h.settle(end, func(ctx context.Context) error {
		if err := w.settle(ctx, tx, h.lease, events); err != nil {
			return aborted(err)
		}
		return uncommitted(tx.Commit(ctx))
	})
}

func (w *Worker) settle(ctx context.Context, db pg.DB, lease pg.Lease, events []pg.Event) error {
	return pg.SettleProjection(ctx, db, lease, events[0].ID, events[len(events)-1].ID, w.LeaseFor)
}

// ApplyIn claims and applies events in a transaction of the caller's, which alone
// decides what becomes of them, and reports whether there were any.
func (w *Worker) ApplyIn(ctx context.Context, tx pgx.Tx) (bool, error) {
	lease, err := pg.Claim(ctx, tx, w.Group.Namespace, w.Group.Name, w.Node, w.BatchSize, w.LeaseFor)
	if err != nil || !lease.Held() {
		return false, err
	}
	if wanted := w.wanted(lease.Events); len(wanted) > 0 {
		if err := w.call(ctx, tx, wanted); err != nil {
			return false, Blame(ctx, tx, err)
		}
	}
	return true, w.settle(ctx, tx, lease, lease.Events)
}

// Refused reports whether an error comes from the events, or from whoever
// applies them.
func Refused(err error) bool {
	var refused *refusal
	return errors.As(err, &refused)
}

// Passes reports whether an error is trouble with the database that passes.
func Passes(err error) bool {
	return !Refused(err) && (sqlState(err) == "" || Collided(err) || isOutage(err))
}

// wanted are the events that the projection is for.
func (w *Worker) wanted(events []pg.Event) []pg.Event {
	var wanted []pg.Event
	for i := range events {
		if consume.MatchesAny(w.Patterns, events[i].Type) {
			wanted = append(wanted, events[i])
		}
	}
	return wanted
}

var errTimeout = errors.New("the batch has used up its time")

// call runs Apply. A panic is an error.
func (w *Worker) call(ctx context.Context, tx pgx.Tx, events []pg.Event) (err error) {
	if w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Timeout, errTimeout)
		defer cancel()
	}
	defer func() {
		if value := recover(); value != nil {
			err = &worker.PanicError{Value: value, Stack: debug.Stack()}
			w.Log.Error("projection panics", "projection", w.Group.Name, "panic", value, "stack", string(debug.Stack()))
		}
		if err != nil && context.Cause(ctx) == errTimeout {
			err = &timeoutError{fmt.Errorf("%w of %v: %w", errTimeout, w.Timeout, err)}
		}
	}()
	return w.Apply(ctx, Hold(tx), events)
}

// timeoutError marks what is due to Apply's own slowness, although it may have
// cost the connection.
type timeoutError struct{ error }

func (e *timeoutError) Unwrap() error { return e.error }

// Blame tells whether the error of a function that used tx is its own, and so
// [Refused], or the database's. When the connection is gone it is the database's.
func Blame(ctx context.Context, tx pgx.Tx, err error) error {
	var late *timeoutError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &late):
		return &refusal{err}
	case ctx.Err() != nil, Collided(err), tx.Conn().IsClosed(), isOutage(err):
		return err
	}
	return &refusal{err}
}

// isOutage tells errors that are the server's: a lost connection, too little of
// something, a shutdown.
func isOutage(err error) bool {
	code := sqlState(err)
	for _, class := range []string{"08", "53", "57P", "58"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

var errSwallowed = errors.New("a statement failed in the transaction, and no error was returned")

// aborted finds the projection that let an error of one of its statements pass.
func aborted(err error) error {
	const inFailedTransaction = "25P02"
	if sqlState(err) == inFailedTransaction {
		return &refusal{errSwallowed}
	}
	return err
}

// uncommitted says what it means that a transaction could not be committed: with
// an answer, that a constraint was checked only then.
func uncommitted(err error) error {
	if err == nil || Passes(err) {
		return err
	}
	return &refusal{err}
}

// Hold returns a transaction that may be used but not ended: something of ours
// is part of it.
func Hold(tx pgx.Tx) pgx.Tx { return heldTx{tx} }

type heldTx struct{ pgx.Tx }

var errHeld = errors.New("this transaction is committed or rolled back by whether the function returns an error")

func (heldTx) Commit(context.Context) error   { return errHeld }
func (heldTx) Rollback(context.Context) error { return errHeld }

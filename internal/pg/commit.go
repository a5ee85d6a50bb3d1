package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Begin begins a transaction for the effects of events of a lease. It waits for a
// connection of the pool until ctx ends, and skips connections that do not answer.
func Begin(ctx context.Context, pool *pgxpool.Pool, leaseFor time.Duration) (*pgxpool.Conn, pgx.Tx, error) {
	for {
		conn, tx, err := begin(ctx, pool, LeaseTime(leaseFor))
		if !errors.Is(err, errNoConnection) || ctx.Err() != nil {
			return conn, tx, err
		}
	}
}

// errNoConnection says that all connections of the pool are in use, or that the pool's
// ping of the chosen one was not answered.
var errNoConnection = errors.New("no connection is free")

func begin(ctx context.Context, pool *pgxpool.Pool, limit time.Duration) (*pgxpool.Conn, pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(errNoConnection, err)
		}
		return nil, nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, nil, err
	}
	return conn, tx, nil
}

// commitTime is the deadline of a commit, which checks deferred constraints: the length of
// the lease.
func commitTime(leaseFor time.Duration) time.Duration { return max(leaseFor, LeaseTime(leaseFor)) }

// Ending describes the last statements of a transaction: which events of a lease it
// settles.
type Ending struct {
	Lease    Lease
	First    int64         // the id of the first event that is settled; only for projections
	UpTo     int64         // the id of the last event that is settled; 0 for all of them
	LeaseFor time.Duration // see [SettleUntil]
	Failures []Failure
	Another  bool // begin another transaction after the commit
}

// Commit settles events of a lease and commits the transaction that is open on a
// connection, in one round trip. After a statement that failed, the server skips the rest:
// effects are committed only if their events are settled. A failure of the commit itself
// is a [CommitError]. Errors of settling are those of [Settle] and [SettleUntil].
//
// With Another, the status of the connection tells whether a new transaction has begun. A
// failure to begin one is not an error, since the last one is committed.
func Commit(ctx context.Context, conn *pgx.Conn, e Ending) error {
	ctx, cancel := context.WithTimeout(ctx, commitTime(e.LeaseFor))
	defer cancel()
	batch := &pgx.Batch{}
	if err := e.queue(batch); err != nil {
		return Translate("settle", err)
	}
	batch.Queue("commit")
	if e.Another {
		batch.Queue("begin")
	}
	results := conn.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // an error after the commit changes nothing
	if _, err := results.Exec(); err != nil {
		return Translate("settle", err)
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		return &CommitError{Translate("commit", err)}
	}
	return nil
}

// queue queues the statement that settles.
func (e Ending) queue(batch *pgx.Batch) error {
	if e.First != 0 {
		batch.Queue(settleProjectionSQL, e.Lease.ID, e.Lease.Attempt, e.First, e.UpTo, Period(e.LeaseFor))
		return nil
	}
	document, err := failuresDocument(e.Failures)
	if err != nil {
		return err
	}
	if e.UpTo == 0 {
		batch.Queue(settleSQL, e.Lease.ID, e.Lease.Attempt, document)
	} else {
		batch.Queue(settleUntilSQL, e.Lease.ID, e.Lease.Attempt, e.UpTo, Period(e.LeaseFor), document)
	}
	return nil
}

// CommitAfter runs the last statements of a transaction and commits it. A failure of the
// commit itself is a [CommitError].
func CommitAfter(ctx context.Context, tx pgx.Tx, leaseFor time.Duration, last func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, commitTime(leaseFor))
	defer cancel()
	if err := last(ctx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return &CommitError{Translate("commit", err)}
	}
	return nil
}

// CommitError is the error of a commit after its events were settled.
type CommitError struct{ Err error }

func (e *CommitError) Error() string { return e.Err.Error() }
func (e *CommitError) Unwrap() error { return e.Err }

// Refused reports whether the server refused the effects of the transaction, for example
// for a deferred constraint. Otherwise the server was unable to commit, or could not be
// reached.
func (e *CommitError) Refused() bool {
	cause, ok := errors.AsType[*pgconn.PgError](e.Err)
	return ok && !slices.Contains(outageClasses, cause.Code[:2])
}

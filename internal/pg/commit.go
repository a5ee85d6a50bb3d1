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

// Begin opens a transaction for an effect that settles events of a lease. Waiting
// for a connection of the pool has no limit but ctx; connections that do not
// answer are passed over.
func Begin(ctx context.Context, pool *pgxpool.Pool, leaseFor time.Duration) (*pgxpool.Conn, pgx.Tx, error) {
	for {
		conn, tx, err := begin(ctx, pool, LeaseTime(leaseFor))
		if !errors.Is(err, errNoConnection) || ctx.Err() != nil {
			return conn, tx, err
		}
	}
}

// errNoConnection: others have all connections of the pool, or the one that was to
// be used did not answer when the pool asked.
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

// commitTime is how long committing may take, which checks deferred constraints:
// as long as the lease.
func commitTime(leaseFor time.Duration) time.Duration { return max(leaseFor, LeaseTime(leaseFor)) }

// Ending is what a transaction says before it commits: which events of a lease
// its effects settle.
type Ending struct {
	Lease    Lease
	First    int64         // of a projection: the id of the first event that is settled
	UpTo     int64         // the id of the last event that is settled; 0 for all of them
	LeaseFor time.Duration // see [SettleUntil]
	Failures []Failure
	Another  bool // begin another transaction at once
}

// Commit settles events of a lease and commits the transaction that is open on a
// connection, in one round trip. The server looks at no further statement after
// one that failed: what is not settled is not committed. A failure of the commit
// itself is a [CommitError]; settling fails as in [Settle] and [SettleUntil].
//
// With Another, a new transaction is open if the connection says so; if it could
// not be begun, that is no error, since the last one has been committed.
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
	defer func() { _ = results.Close() }() // of what comes after the commit
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

// CommitError is that a transaction which was settled could not be committed.
type CommitError struct{ Err error }

func (e *CommitError) Error() string { return e.Err.Error() }
func (e *CommitError) Unwrap() error { return e.Err }

// Refused reports whether the server would not have what the transaction did, as
// with a deferred constraint. Otherwise it had not the means to commit it, or was
// not there.
func (e *CommitError) Refused() bool {
	cause, ok := errors.AsType[*pgconn.PgError](e.Err)
	return ok && !slices.Contains([]string{"08", "53", "57", "58", "XX"}, cause.Code[:2])
}

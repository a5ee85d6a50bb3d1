package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

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
	batch := &pgx.Batch{}
	settled, err := e.queue(batch)
	if err != nil {
		return translate("settle", err)
	}
	batch.Queue("commit")
	if e.Another {
		batch.Queue("begin")
	}
	results := conn.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // of what comes after the commit
	if _, err := results.Exec(); err != nil {
		return translate("settle", err)
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		return &CommitError{translate("commit", err)}
	}
	settled()
	return nil
}

// queue queues what settles, and returns what is to be called when it is
// committed.
func (e Ending) queue(batch *pgx.Batch) (settled func(), err error) {
	if e.Lease.Source != nil {
		return e.Lease.Source.queue(batch, e.UpTo, e.Failures)
	}
	if e.First != 0 {
		batch.Queue(settleProjectionSQL, e.Lease.ID, e.Lease.Attempt, e.First, e.UpTo, period(e.LeaseFor))
		return func() {}, nil
	}
	document, err := failuresDocument(e.Failures)
	if err != nil {
		return nil, err
	}
	if e.UpTo == 0 {
		batch.Queue(settleSQL, e.Lease.ID, e.Lease.Attempt, document)
	} else {
		batch.Queue(settleUntilSQL, e.Lease.ID, e.Lease.Attempt, e.UpTo, period(e.LeaseFor), document)
	}
	return func() {}, nil
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

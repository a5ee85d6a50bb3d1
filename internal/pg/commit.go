package pg

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Begin begins a transaction for the effects of events of a lease, or of jobs. It waits for a
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
// settles, or which jobs it completes.
type Ending struct {
	Lease    Lease
	First    int64 // the id of the first event that is settled; only for projections
	Part     bool  // the lease keeps the events after UpTo
	UpTo     int64 // the id of the last event that is settled; 0 with failures alone
	Failures []Failure

	Jobs *JobsEnding // instead of events

	LeaseFor time.Duration // the deadline of a part is at least half of it away then
	Another  bool          // begin another transaction after the commit
}

// JobsEnding is the completion of jobs of one worker. It fails with [ErrLeaseLost] unless the
// worker has all of them.
type JobsEnding struct {
	Worker  string
	Done    DoneJobs
	Results []json.RawMessage // of the jobs, in the same order; nil for a job without one
}

// Commit settles events of a lease, or completes jobs, and commits the transaction that is
// open on a connection, in one round trip. After a statement that failed, the server skips the
// rest: effects are committed only with the end of their events or jobs. A failure of the commit
// itself is a [CommitError]. Errors of settling are those of [Settle].
//
// After an [ErrUnconfirmed], the transaction is committed. Commit returns the outcomes of
// the failures.
//
// With Another, the status of the connection tells whether a new transaction has begun. A
// failure to begin one is not an error, since the last one is committed.
func Commit(ctx context.Context, conn *pgx.Conn, e Ending) ([]Fate, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTime(e.LeaseFor))
	defer cancel()
	sql, args, err := e.statement()
	if err != nil {
		return nil, Translate(e.verb(), err)
	}
	batch := &pgx.Batch{}
	batch.Queue(sql, args...)
	batch.Queue("commit")
	if e.Another {
		batch.Queue("begin")
	}
	results := conn.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }()
	fates, err := e.receive(results.Query())
	if err != nil {
		return nil, err
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err == nil {
		if closeErr := results.Close(); isUnconfirmed(closeErr) { // other errors after the commit change nothing
			err = closeErr
		}
	}
	if err != nil {
		return fates, &CommitError{Translate("commit", err)}
	}
	return fates, nil
}

// Settle settles events of a lease outside a transaction, and returns the outcomes of the failures.
func (e Ending) Settle(ctx context.Context, db DB) ([]Fate, error) {
	sql, args, err := e.statement()
	if err != nil {
		return nil, Translate(e.verb(), err)
	}
	return e.receive(db.Query(ctx, sql, args...))
}

// receive reads the answer of the statement: only that about failures has rows that matter. It
// returns them also with an [ErrUnconfirmed].
func (e Ending) receive(rows pgx.Rows, err error) (fates []Fate, _ error) {
	if err != nil {
		return nil, Translate(e.verb(), err)
	}
	if len(e.Failures) > 0 {
		var f Fate
		_, err = pgx.ForEachRow(rows, []any{&f.Failure, &f.Subscription, &f.Attempts, &f.DueAt, &f.Dead}, func() error {
			fates = append(fates, f)
			return nil
		})
	} else {
		rows.Close()
		err = rows.Err()
	}
	return fates, Translate(e.verb(), err)
}

// verb names what the last statement before the commit does, for errors.
func (e Ending) verb() string {
	if e.Jobs != nil {
		return "complete jobs"
	}
	return "settle"
}

// statement returns the statement that settles, or completes jobs.
func (e Ending) statement() (sql string, args []any, err error) {
	switch j := e.Jobs; {
	case j != nil && len(j.Done.IDs) == 1:
		return "select posthorn.complete_job($1::bigint, $2::text, $3::int, null, $4::bigint, $5::json, once => true)",
			[]any{j.Done.IDs[0], j.Worker, j.Done.Attempts[0], j.Done.ExecutionTimesMS[0], Document(j.Results[0])}, nil
	case j != nil:
		return "select posthorn.complete_jobs($1::text, $2::bigint[], $3::int[], $4::bigint[], $5::json[], all_held => true)",
			[]any{j.Worker, j.Done.IDs, j.Done.Attempts, j.Done.ExecutionTimesMS, j.Results}, nil
	case e.First != 0:
		return settleProjectionSQL, []any{e.Lease.ID, e.Lease.Attempt, e.First, e.UpTo, Period(e.LeaseFor)}, nil
	case len(e.Failures) > 0:
		document, err := failuresDocument(e.Failures)
		var upTo *int64
		if e.Part {
			upTo = &e.UpTo
		}
		return settleFailedSQL, []any{e.Lease.ID, e.Lease.Attempt, document, upTo, Period(e.LeaseFor)}, err
	case e.Part:
		return settleUntilSQL, []any{e.Lease.ID, e.Lease.Attempt, e.UpTo, Period(e.LeaseFor), "[]"}, nil
	}
	return settleSQL, []any{e.Lease.ID, e.Lease.Attempt, "[]"}, nil
}

// CommitError is the error of a commit after its events were settled, or its jobs completed.
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

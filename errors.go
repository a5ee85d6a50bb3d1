package posthorn

import (
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/schema"
)

// Errors that callers can distinguish with errors.Is.
var (
	// ErrNotFound: a namespace, group, event or other thing does not exist.
	ErrNotFound = pg.ErrNotFound
	// ErrConflict: the call contradicts the existing state, such as events in progress.
	ErrConflict = pg.ErrConflict
	// ErrLeaseLost: the lease has expired or ended, and its events belong to another worker.
	ErrLeaseLost = pg.ErrLeaseLost
	// ErrInvalid: an argument is not valid. The error names the valid values.
	ErrInvalid = pg.ErrInvalid
	// ErrRefused: the state of the thing, or the rights of the caller, do not allow the call.
	ErrRefused = pg.ErrRefused
	// ErrMoved: the namespace is closed, since it moves to another database: [MovedTo] names it.
	// Groups, workers, relays and schedules wait until it is opened again.
	ErrMoved = pg.ErrMoved
	// ErrUnconfirmed: the transaction is committed and visible, but the server's wait for its
	// synchronous standby was cancelled: a failover may lose it. A transaction of the program
	// on [Client.Pool] returns a *pgconn.PgError with the code PH007 for it.
	ErrUnconfirmed = pg.ErrUnconfirmed
	// ErrNotMigrated: the database lacks the schema that this version needs.
	ErrNotMigrated = schema.ErrNotMigrated
	// ErrTimedOut: the event that a job waited for has not come in time, see [Job.Await].
	ErrTimedOut = errors.New("the event has not come in time")
	// ErrClosed: the client, publisher or reader is closed.
	ErrClosed = errors.New("closed")
	// ErrSealed: the payload of a confidential event cannot be opened: its key was
	// destroyed, the payload was altered, or the process has no keeper. ErrNoKey,
	// ErrAltered and ErrNoKeeper of package seal distinguish these causes.
	ErrSealed = sealing.ErrSealed
)

// Permanent marks an error that another attempt would not change. The event becomes
// a dead letter, and the job fails, without further attempts.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &worker.PermanentError{Err: err}
}

// RetryAfter marks an error after which the next attempt follows when d has passed,
// instead of after the delay of the group or job. The failed attempt counts.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("the handler asked for another attempt")
	}
	return &worker.RetryError{After: max(d, 0), Err: err}
}

// Snooze returns an error that delays the event or job by d: the handler is called again
// after it, and the attempt does not count.
func Snooze(d time.Duration) error {
	d = max(d, 0)
	return &worker.ReleaseError{After: d, Err: fmt.Errorf("snoozed for %v", d)}
}

// EventErrors is the error of a batch in which some events have failed and all
// others have succeeded. It maps the ID of each failed event to its error.
type EventErrors map[int64]error

func (e EventErrors) Error() string { return describeSome("event", e) }

// Failures returns the error of each failed event, by its ID.
func (e EventErrors) Failures() map[int64]error { return e }

// JobErrors is the error of a batch in which some jobs have failed and all others are
// complete. It maps the ID of each failed job to its error, which may be one of
// [Permanent], [RetryAfter] or [Snooze]. It must not name jobs that are not in the batch.
type JobErrors map[int64]error

func (e JobErrors) Error() string { return describeSome("job", e) }

// FailedJobs returns the error of each failed job, by its ID.
func (e JobErrors) FailedJobs() map[int64]error { return e }

// describeSome returns the text of an error of a batch: how many things failed, and one of
// their errors.
func describeSome(thing string, failed map[int64]error) string {
	for id, err := range failed {
		if len(failed) == 1 {
			return fmt.Sprintf("%s %d of the batch failed: %v", thing, id, err)
		}
		return fmt.Sprintf("%d %ss of the batch failed, %s %d among them: %v", len(failed), thing, thing, id, err)
	}
	return fmt.Sprintf("no %s of the batch failed", thing)
}

// Hint returns advice on how to correct an error, or "" if the error has none.
func Hint(err error) string { return pg.Hint(err) }

// MovedTo returns the database to which the namespace of an [ErrMoved] has moved, as the operator
// who closed it named it, or "".
func MovedTo(err error) string { return pg.MovedTo(err) }

// invalid returns an [ErrInvalid] with a hint.
func invalid(message, hint string) error { return &argumentError{message, hint} }

type argumentError struct{ message, hint string }

func (e *argumentError) Error() string { return e.message }
func (e *argumentError) Hint() string  { return e.hint }
func (e *argumentError) Unwrap() error { return ErrInvalid }

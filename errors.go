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

// What callers may want to tell apart, with errors.Is.
var (
	// ErrNotFound: a namespace, group, event or the like does not exist.
	ErrNotFound = pg.ErrNotFound
	// ErrConflict: what exists or is in flight stands in the way.
	ErrConflict = pg.ErrConflict
	// ErrLeaseLost: the deadline has passed, and somebody else has the events now.
	ErrLeaseLost = pg.ErrLeaseLost
	// ErrInvalid: an argument cannot be what it is. The error says what can.
	ErrInvalid = pg.ErrInvalid
	// ErrRefused: not in this state, or not with these rights.
	ErrRefused = pg.ErrRefused
	// ErrNotMigrated: the database lacks the schema that this version needs.
	ErrNotMigrated = schema.ErrNotMigrated
	// ErrClosed: the client, or what was opened from it, is closed.
	ErrClosed = errors.New("closed")
	// ErrSealed: the payload of a confidential stream's event does not open: its key
	// was destroyed, it was altered, or no keeper is at hand. Package seal's ErrNoKey,
	// ErrAltered and ErrNoKeeper tell which.
	ErrSealed = sealing.ErrSealed
)

// Permanent marks an error that no further attempt will mend: the event becomes
// a dead letter at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &worker.PermanentError{Err: err}
}

// RetryAfter marks an error after which the event is to be tried again when that
// much time has passed, whatever the group's delays say. Its attempts still
// count.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("tried too early")
	}
	return &worker.RetryError{After: max(d, 0), Err: err}
}

// Snooze puts work off without a failure: the handler is called again when d has
// passed, and no attempt is used up.
func Snooze(d time.Duration) error {
	d = max(d, 0)
	return &worker.ReleaseError{After: d, Err: fmt.Errorf("snoozed for %v", d)}
}

// EventErrors is what a handler of batches returns when some events of the batch
// have failed and the others are done: the error of each event, by its ID.
type EventErrors map[int64]error

func (e EventErrors) Error() string {
	for id, err := range e {
		return fmt.Sprintf("%d events of the batch failed, event %d among them: %v", len(e), id, err)
	}
	return "no event of the batch failed"
}

// Failures yields the errors by event.
func (e EventErrors) Failures() map[int64]error { return e }

// Hint returns what to do about an error, in words, or "" if nothing is known.
func Hint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

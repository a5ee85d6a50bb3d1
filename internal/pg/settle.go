package pg

import (
	"context"
	"encoding/json"
	"time"
)

// Failure is the report of an event of a lease that is not done.
type Failure struct {
	Event        int64
	Subscription string // "": all handlers of the event
	Error        string
	Stack        string
	Reason       string         // a short one, for the dead letter
	Permanent    bool           // it is not retried
	RetryIn      *time.Duration // nil: after the delay of the group's policy, or at once if released
	Released     bool           // it was not attempted: it is handed out again, and no attempt is counted
}

// MarshalJSON writes a failure in the form that the function settle reads. It replaces zero
// characters, since Postgres would refuse the whole document. Package encoding/json replaces
// invalid UTF-8.
func (f Failure) MarshalJSON() ([]byte, error) {
	retryIn := ""
	if f.RetryIn != nil {
		retryIn = Period(*f.RetryIn)
	}
	return json.Marshal(struct {
		Event        int64  `json:"event"`
		Subscription string `json:"subscription,omitempty"`
		Error        string `json:"error,omitempty"`
		Stack        string `json:"stack,omitempty"`
		Reason       string `json:"reason,omitempty"`
		Permanent    bool   `json:"permanent,omitempty"`
		RetryIn      string `json:"retry_in,omitempty"`
		Released     bool   `json:"released,omitempty"`
	}{
		f.Event, Storable(f.Subscription), Storable(f.Error), Storable(f.Stack), Storable(f.Reason),
		f.Permanent, retryIn, f.Released,
	})
}

// Fate is the outcome of a failure: it is due again, or a dead letter, or, if neither, its
// subscription was removed.
type Fate struct {
	Failure      int // its place in the list of failures, from 1
	Subscription string
	Attempts     *int
	DueAt        *time.Time
	Dead         bool
}

// Settle ends a lease: its events are done, except for the failures. It fails with
// [ErrLeaseLost], and changes nothing, when the lease is not held any more.
func Settle(ctx context.Context, db DB, lease Lease, failures ...Failure) error {
	document, err := failuresDocument(failures)
	if err != nil {
		return Translate("settle", err)
	}
	return Exec(ctx, db, "settle", settleSQL, lease.ID, lease.Attempt, document)
}

const settleSQL = "select posthorn.settle($1::bigint, $2::int, $3::jsonb)"

const settleUntilSQL = "select posthorn.settle_until($1::bigint, $2::int, $3::bigint, $4::text::interval, $5::jsonb)"

const settleFailedSQL = "select failure, subscription, attempts, due_at, dead " +
	"from posthorn.settle_failed($1::bigint, $2::int, $3::jsonb, $4::bigint, $5::text::interval)"

func failuresDocument(failures []Failure) (string, error) {
	if len(failures) == 0 {
		return "[]", nil
	}
	document, err := json.Marshal(failures)
	return string(document), err
}

// Extend moves the deadline of a lease to leaseFor from now, and returns it. It fails with
// [ErrLeaseLost] when the lease is not held any more.
func Extend(ctx context.Context, db DB, lease Lease, leaseFor time.Duration) (time.Time, error) {
	return Value[time.Time](ctx, db, "extend", "select posthorn.extend($1::bigint, $2::int, $3::text::interval)",
		lease.ID, lease.Attempt, Period(leaseFor))
}

// Release gives a lease back. The attempt at its events does not count.
func Release(ctx context.Context, db DB, lease Lease) error {
	return Exec(ctx, db, "release", "select posthorn.release($1::bigint, $2::int)", lease.ID, lease.Attempt)
}

// ReleaseNode gives back every lease of a node, and returns their number. It also gives
// back leases of calls whose results never arrived.
func ReleaseNode(ctx context.Context, db DB, namespace, node string) (int64, error) {
	return Value[int64](ctx, db, "release node", "select posthorn.release_node($1::text, $2::text)", namespace, node)
}

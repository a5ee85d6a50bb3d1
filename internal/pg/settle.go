package pg

import (
	"context"
	"encoding/json"
	"time"
)

// Failure says that an event of a lease was not done.
type Failure struct {
	Event        int64
	Subscription string // none: the event as a whole
	Error        string
	Stack        string
	Reason       string         // in a few words, for the dead letter
	Permanent    bool           // no further attempt makes sense
	RetryIn      *time.Duration // nil: as the group's policy says, or at once if it is released
	Released     bool           // it was not tried: it comes back, and nothing is counted
}

// MarshalJSON writes a failure as the function settle reads it. Zero characters,
// which Postgres cannot hold, would make it refuse the whole settlement, so
// they are replaced; encoding/json does the same with what is no UTF-8.
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

// Settle ends a lease: what is not listed as failed is done. It fails with
// [ErrLeaseLost], and changes nothing, when the lease is not held any more.
func Settle(ctx context.Context, db DB, lease Lease, failures ...Failure) error {
	document, err := failuresDocument(failures)
	if err != nil {
		return Translate("settle", err)
	}
	return Exec(ctx, db, "settle", settleSQL, lease.ID, lease.Attempt, document)
}

const settleSQL = "select posthorn.settle($1::bigint, $2::int, $3::jsonb)"

// SettleUntil settles the events of a lease up to one, whose id is given, keeps
// the rest, and sees to it that the deadline is at least half of leaseFor away.
// It fails with [ErrLeaseLost] like [Settle].
func SettleUntil(ctx context.Context, db DB, lease Lease, event int64, leaseFor time.Duration, failures ...Failure) error {
	document, err := failuresDocument(failures)
	if err != nil {
		return Translate("settle", err)
	}
	return Exec(ctx, db, "settle", settleUntilSQL, lease.ID, lease.Attempt, event, Period(leaseFor), document)
}

const settleUntilSQL = "select posthorn.settle_until($1::bigint, $2::int, $3::bigint, $4::text::interval, $5::jsonb)"

func failuresDocument(failures []Failure) (string, error) {
	if len(failures) == 0 {
		return "[]", nil
	}
	document, err := json.Marshal(failures)
	return string(document), err
}

// Extend moves the deadline of a lease to that long from now, and returns it. It
// fails with [ErrLeaseLost] when the lease is not held any more.
func Extend(ctx context.Context, db DB, lease Lease, leaseFor time.Duration) (time.Time, error) {
	return Value[time.Time](ctx, db, "extend", "select posthorn.extend($1::bigint, $2::int, $3::text::interval)",
		lease.ID, lease.Attempt, Period(leaseFor))
}

// Release gives a lease back untouched. It counts as no delivery.
func Release(ctx context.Context, db DB, lease Lease) error {
	return Exec(ctx, db, "release", "select posthorn.release($1::bigint, $2::int)", lease.ID, lease.Attempt)
}

// ReleaseNode gives back every lease of a node, and returns how many. It also
// finds those that were taken in calls whose answer never arrived.
func ReleaseNode(ctx context.Context, db DB, namespace, node string) (int64, error) {
	return Value[int64](ctx, db, "release node", "select posthorn.release_node($1::text, $2::text)", namespace, node)
}

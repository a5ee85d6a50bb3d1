package pg

import (
	"context"
	"encoding/json"
	"time"
)

// DefineProjection makes a projection, or changes its backoff, and returns its group. It
// fails with [ErrConflict] when a group of that name exists that is not a projection.
func DefineProjection(ctx context.Context, db DB, namespace, name string, backoff Backoff) (Group, error) {
	document, err := json.Marshal(map[string]Backoff{"backoff": backoff})
	if err != nil {
		return Group{}, Translate("define projection", err)
	}
	id, err := Value[int64](ctx, db, "define projection",
		"select posthorn.define_projection($1::text, $2::text, $3::jsonb)", namespace, name, string(document))
	return Group{id, namespace, name}, err
}

// SettleProjection settles the first events of a projection's lease in the transaction of
// their effects. It fails with [ErrLeaseLost] when the lease is not held any more, or does
// not begin with the event first.
func SettleProjection(ctx context.Context, db DB, lease Lease, first, last int64, leaseFor time.Duration) error {
	return Exec(ctx, db, "settle projection", settleProjectionSQL, lease.ID, lease.Attempt, first, last, Period(leaseFor))
}

const settleProjectionSQL = "select posthorn.settle_projection($1::bigint, $2::int, $3::bigint, $4::bigint, $5::text::interval)"

// FailProjection gives back a projection's lease whose first event cannot be applied, and
// returns the time of the next attempt.
func FailProjection(ctx context.Context, db DB, lease Lease, event int64, message string) (time.Time, error) {
	return Value[time.Time](ctx, db, "fail projection",
		"select posthorn.fail_projection($1::bigint, $2::int, $3::bigint, $4::text)",
		lease.ID, lease.Attempt, event, Storable(message))
}

package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The functions in this file are [Settle], [Extend] and [Release] for callers that may
// access one namespace only. A lease of another namespace is lost to them. They return the
// name of the lease's group.
const inNamespace = `
	from posthorn.leases l
	join posthorn.groups g on g.id = l.group_id
	join posthorn.namespaces n on n.id = g.namespace_id
	where l.id = $1::bigint and n.namespace = $2::text`

// SettleIn is [Settle] for a lease of a namespace.
func SettleIn(ctx context.Context, db DB, namespace string, lease Lease, failures ...Failure) (group string, err error) {
	document, err := failuresDocument(failures)
	if err != nil {
		return "", Translate("settle", err)
	}
	return leaseIn(ctx, db, "settle", "posthorn.settle(l.id, $3::int, $4::jsonb)::text", lease, namespace, nil, document)
}

// ReleaseIn is [Release] for a lease of a namespace.
func ReleaseIn(ctx context.Context, db DB, namespace string, lease Lease) (group string, err error) {
	return leaseIn(ctx, db, "release", "posthorn.release(l.id, $3::int)::text", lease, namespace, nil)
}

// ExtendIn is [Extend] for a lease of a namespace. A leaseFor of 0 is the length of the
// claim.
func ExtendIn(ctx context.Context, db DB, namespace string, lease Lease, leaseFor time.Duration) (until time.Time, err error) {
	_, err = leaseIn(ctx, db, "extend", "posthorn.extend(l.id, $3::int, $4::text::interval)", lease, namespace, &until, OptionalPeriod(Optional(leaseFor)))
	return until, err
}

func leaseIn(ctx context.Context, db DB, verb, call string, lease Lease, namespace string, result *time.Time, args ...any) (group string, err error) {
	var ignored *string
	into := any(&ignored)
	if result != nil {
		into = result
	}
	err = db.QueryRow(ctx, "select g.name, "+call+inNamespace, append([]any{lease.ID, namespace, lease.Attempt}, args...)...).Scan(&group, into)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", LeaseLost(verb, lease.ID)
	}
	return group, Translate(verb, err)
}

// LeaseLost returns an [ErrLeaseLost] for a lease that does not exist.
func LeaseLost(verb string, lease int64) error {
	return fmt.Errorf("%s: %w", verb, &Error{
		Message: fmt.Sprintf("lease %d is not held any more", lease), sentinel: ErrLeaseLost,
		hint: "It was settled, or has expired and went to another worker. Drop the results of its events.",
	})
}

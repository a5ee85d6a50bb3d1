package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Claim takes a lease with its events in one statement, so that it fits into any
// transaction. The lease is not held when there are no events. [Pool.Take] is faster.
func Claim(ctx context.Context, db DB, namespace, group, node string, maxEvents int, leaseFor time.Duration) (Lease, error) {
	rows, err := db.Query(ctx, claimSQL, namespace, group, node, maxEvents, Period(leaseFor))
	if err != nil {
		return Lease{}, Translate("claim", err)
	}
	lease, err := collectLease(rows)
	return lease, Translate("claim", claimError(err))
}

const claimSQL = `
	select lease, attempt, event_id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at, delivery, subscriptions
	from posthorn.claim($1::text, $2::text, $3::text, $4::int, $5::text::interval)`

func collectLease(rows pgx.Rows) (Lease, error) {
	var l Lease
	events, err := collectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var e Event
		return e, row.Scan(&l.ID, &l.Attempt, &e.ID, &e.Stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata),
			&e.PublishedAt, &e.Delivery, &e.Subscriptions)
	})
	if claimError(err) != nil {
		return Lease{}, err
	}
	l.Events = events
	return l, nil
}

func receiveClaim(results pgx.BatchResults, n int) (lease Lease, err error) {
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for range n - 1 {
		if _, err := results.Exec(); err != nil {
			return Lease{}, err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return Lease{}, err
	}
	return collectLease(rows)
}

package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A claim of a group with subscriptions evaluates their conditions. Only a timeout of the
// whole statement ends a slow expression, so such claims have a statement_timeout. A claim
// that was canceled does not tell which condition was slow, and the next claim would be
// canceled too: the database then tries each condition by itself, and stops a slow one.

// claimLimit returns the timeout of a claim: half of its lease, which leaves time to handle
// the events, and a quarter of what its context has left, so that there is time to stop a
// condition and to claim again.
func claimLimit(ctx context.Context, leaseFor time.Duration) time.Duration {
	limit := min(max(leaseFor/2, 5*time.Second), 5*time.Minute)
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(deadline)/4), 100*time.Millisecond)
	}
	return limit.Round(100 * time.Millisecond)
}

const queryCanceled = "57014"

func wasCanceled(err error) bool { return sqlState(err) == queryCanceled }

const timeoutSQL = "select set_config('statement_timeout', $1::text, true)"

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// batcher sends several statements at once, as one transaction.
type batcher interface {
	DB
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// ClaimInTime is [Claim] in a transaction of its own, with a timeout that depends on
// leaseFor. When a condition is too slow for that, it stops the condition and claims again.
func ClaimInTime(ctx context.Context, db batcher, namespace, group, node string, maxEvents int, leaseFor time.Duration) (Lease, error) {
	return claimInTime(ctx, db, Take{
		Group: Group{Namespace: namespace, Name: group}, Node: node, MaxEvents: maxEvents, LeaseFor: leaseFor,
	})
}

func claimInTime(ctx context.Context, db batcher, take Take) (Lease, error) {
	limit := claimLimit(ctx, take.LeaseFor)
	for retry := true; ; retry = false {
		batch := &pgx.Batch{}
		batch.Queue(timeoutSQL, milliseconds(limit))
		if take.Settle.Held() {
			batch.Queue(settleSQL, take.Settle.ID, take.Settle.Attempt, "[]")
		}
		batch.Queue(claimSQL, take.Group.Namespace, take.Group.Name, take.Node, take.MaxEvents, Period(take.LeaseFor))
		lease, err := receiveClaim(db.SendBatch(Within(ctx, limit+LeaseTime(take.LeaseFor)), batch), batch.Len())
		if !retry || !wasCanceled(err) || ctx.Err() != nil {
			return lease, Translate("claim", claimError(err))
		}
		if take.Settle.Held() { // it would expire meanwhile
			if err := Settle(ctx, db, take.Settle); err != nil {
				return Lease{}, err
			}
			take.Settle = Lease{}
		}
		if !stopSlowConditions(ctx, db, take.Group, take.MaxEvents, limit) {
			return Lease{}, Translate("claim", err)
		}
	}
}

// lastCondition is the time of the condition that stop_slow_conditions begins last.
const lastCondition = 6 * time.Second

// stopSlowConditions stops the conditions of a group that are too slow for limit, the timeout
// of a claim. It reports whether it stopped one. It goes on after ctx has ended, since the
// next claim may have no more time. At the end it waits for the claims that are under way.
func stopSlowConditions(ctx context.Context, db batcher, group Group, maxEvents int, limit time.Duration) (stopped bool) {
	ctx, cancel := context.WithTimeout(Within(context.WithoutCancel(ctx), 0), 2*limit+lastCondition+10*time.Second)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(timeoutSQL, milliseconds(limit+lastCondition))
	batch.Queue("select posthorn.stop_slow_conditions($1::text, $2::text, $3::int, $4::text::interval)",
		group.Namespace, group.Name, maxEvents, Period(limit)).QueryRow(func(row pgx.Row) error { return row.Scan(&stopped) })
	return db.SendBatch(ctx, batch).Close() == nil && stopped
}

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
// canceled too: each condition is then tried by itself, and stopped if it is slow.

// claimLimit returns the timeout of a claim: half of its lease, which leaves time to handle
// the events, and less than the deadline of its context.
func claimLimit(ctx context.Context, leaseFor time.Duration) time.Duration {
	limit := min(max(leaseFor/2, 5*time.Second), 5*time.Minute)
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(deadline)/2), 100*time.Millisecond)
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
		group, findErr := FindGroup(ctx, db, take.Group.Namespace, take.Group.Name)
		if findErr != nil || !stopSlowConditions(ctx, db, group.ID, take.MaxEvents, limit) {
			return Lease{}, Translate("claim", err)
		}
	}
}

// stopSlowConditions tries each condition of a group by itself, with the timeout of a
// claim, and stops those that are slow. If only all of them together are slow, it stops the
// slowest. It reports whether it stopped one. It goes on after ctx has ended, since the
// next claim may have no more time.
func stopSlowConditions(ctx context.Context, db batcher, group int64, maxEvents int, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(Within(context.WithoutCancel(ctx), 0), 2*limit+10*time.Second)
	defer cancel()
	type condition struct {
		ID   int
		Most float64
	}
	conditions, err := Collect(ctx, db, "list conditions", pgx.RowToStructByPos[condition],
		"select condition_id, extract(epoch from most)::float8 from posthorn.conditions_to_try($1::bigint)", group)
	if err != nil {
		return false
	}
	var stopped bool
	var total, longest time.Duration
	var slowest int
	for _, c := range conditions {
		began := time.Now()
		most := time.Duration(c.Most*float64(time.Second)) + time.Second
		slow, err := tryCondition(ctx, db, group, c.ID, maxEvents, most)
		took := time.Since(began)
		if wasCanceled(err) {
			err = stopCondition(ctx, db, group, c.ID, fmt.Sprintf("took longer than %v, and was canceled", most))
			slow = err == nil
		}
		if err != nil {
			return stopped
		}
		stopped = stopped || slow
		if total += took; took > longest {
			longest, slowest = took, c.ID
		}
		if stopped && total > limit {
			return true
		}
	}
	if !stopped && total > limit/2 {
		err = stopCondition(ctx, db, group, slowest,
			fmt.Sprintf("took %v, the longest of %d conditions that took %v together", longest.Round(time.Millisecond), len(conditions), total.Round(time.Millisecond)))
		stopped = err == nil
	}
	return stopped
}

func tryCondition(ctx context.Context, db batcher, group int64, condition, maxEvents int, most time.Duration) (slow bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue(timeoutSQL, milliseconds(most))
	batch.Queue("select posthorn.try_condition($1::bigint, $2::int, $3::int)", group, condition, maxEvents)
	results := db.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return false, err
	}
	err = results.QueryRow().Scan(&slow)
	return slow, err
}

func stopCondition(ctx context.Context, db DB, group int64, condition int, reason string) error {
	return Exec(ctx, db, "stop condition", "select posthorn.stop_condition($1::bigint, $2::int, $3::text)", group, condition, reason)
}

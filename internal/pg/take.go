package pg

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Take describes the lease to take.
type Take struct {
	Group     Group
	Node      string
	MaxEvents int // up to mostEvents
	LeaseFor  time.Duration
	Settle    Lease // settled first, if it is held: all its events are done
	Doubtful  bool  // there is most likely nothing: the events, if there are some, have a round trip of their own
}

// Take takes a lease with its events, mostly in one round trip. The lease is not held when
// there are no events. A lease that is held and has no events is from a group whose
// subscriptions match few events: Take found none in about a second, and there may be more.
//
// It fails with [ErrLeaseLost], and takes nothing, when the lease to settle is not held any
// more. When the connection breaks, or ctx ends, the lease may have been taken although its
// events did not arrive: it expires, or [ReleaseNode] gives it back at once.
func (p *Pool) Take(ctx context.Context, take Take) (Lease, error) {
	ctx = Within(ctx, LeaseTime(take.LeaseFor))
	if !p.direct {
		// Without prepared statements, each call would plan lease_events, which costs more
		// than the copy of the events that claim makes: the server keeps the plan of claim.
		lease, err := claimInTime(ctx, p, take)
		if err == nil && len(lease.Events) > take.MaxEvents {
			return cutLease(ctx, p, lease, take.MaxEvents)
		}
		return lease, err
	}
	conn, err := p.Acquire(ctx)
	if err != nil {
		return Lease{}, fmt.Errorf("take: %w", err)
	}
	defer conn.Release()
	asked := take.MaxEvents
	var limit time.Duration
	if _, filtered := p.filtered.Load(take.Group.ID); filtered {
		limit = claimLimit(context.WithoutCancel(ctx), take.LeaseFor) // rounded, since each timeout is a prepared statement
	}
	tried := false
	for began := time.Now(); ; {
		lease, err := p.takeOn(ctx, conn.Conn(), take, limit)
		switch {
		case limit > 0 && !tried && wasCanceled(err) && ctx.Err() == nil:
			if lease.Held() { // its events did not arrive
				if err := Release(ctx, conn, lease); !errors.Is(err, ErrLeaseLost) { // lost: the take was rolled back
					take.Settle = Lease{}
				}
			}
			if !stopSlowConditions(ctx, conn, take.Group, take.MaxEvents, limit) {
				return Lease{}, Translate("take", err)
			}
			tried = true
			continue
		case err != nil:
			return Lease{}, Translate("take", err)
		case len(lease.Events) > asked:
			return cutLease(ctx, conn, lease, asked)
		case !lease.Held() || len(lease.Events) > 0 || time.Since(began) > time.Second:
			return lease, nil
		}
		// Its window was empty: continue, in larger steps.
		take.Settle, take.Doubtful = lease, false
		take.MaxEvents = min(4*take.MaxEvents, mostEvents)
	}
}

const mostEvents = 10_000

// cutLease keeps the first events of a lease and gives back the rest.
func cutLease(ctx context.Context, db DB, lease Lease, keep int) (Lease, error) {
	lease.Events = lease.Events[:keep]
	err := Exec(ctx, db, "take", "select posthorn.cut_lease($1::bigint, $2::int, $3::bigint)",
		lease.ID, lease.Attempt, lease.Events[keep-1].ID)
	if claimError(err) != nil {
		return Lease{}, err
	}
	return lease, nil
}

var takeStatement = statement{
	"posthorn_take",
	"select lease, attempt from posthorn.take($1::bigint, $2::text, $3::int, $4::interval, $5::uuid, $6::bigint, $7::int)",
}

// takeOn takes a lease in a first transaction, whose commit releases the lock of the group,
// and reads its events in a second one. With a limit, both have a statement_timeout. An error
// then comes with the lease, if that was taken.
func (p *Pool) takeOn(ctx context.Context, conn *pgx.Conn, take Take, limit time.Duration) (lease Lease, err error) {
	s, token := sessionOf(conn), newToken()
	claim := step{statement: takeStatement, args: take.args(token), decode: func(values [][]byte) bool {
		var attempt int64
		ok := integers(values, &lease.ID, &attempt)
		lease.Attempt = int(attempt)
		return ok
	}}
	events := s.leaseEvents(token, take.MaxEvents, &lease.Events)
	taking, reading := []step{beginStep, claim, commitStep}, []step{events}
	if limit > 0 {
		ctx = Within(ctx, 2*limit+LeaseTime(take.LeaseFor))
		timeout := timeoutStep(limit)
		taking, reading = []step{beginStep, timeout, claim, commitStep}, []step{beginStep, timeout, events, commitStep}
	}
	exchanges := [][]step{append(taking, reading...)}
	if take.Doubtful {
		exchanges = [][]step{taking, reading}
		if limit == 0 {
			exchanges[0] = []step{claim}
		}
	}
	for i, steps := range exchanges {
		if err := claimError(cmp.Or(s.exchange(ctx, steps)...)); err != nil {
			return lease, err
		}
		if i < len(exchanges)-1 && !lease.Held() {
			return lease, nil
		}
	}
	return lease, p.streams.name(ctx, conn, lease.Events, s.streamIDs)
}

// timeoutStep limits the time of each statement of a transaction. It has no parameters and
// returns no row, so each limit is a statement of its own.
func timeoutStep(limit time.Duration) step {
	return step{statement: statement{
		fmt.Sprintf("posthorn_timeout_%d", limit.Milliseconds()),
		fmt.Sprintf("set local statement_timeout = %d", limit.Milliseconds()),
	}}
}

// newToken returns a random token, by which the transaction that reads events finds their
// lease.
func newToken() pgtype.UUID {
	token := pgtype.UUID{Valid: true}
	rand.Read(token.Bytes[:])
	return token
}

func (t Take) args(token pgtype.UUID) []any {
	args := []any{t.Group.ID, t.Node, t.MaxEvents, t.LeaseFor, token, nil, nil}
	if t.Settle.Held() {
		args[5], args[6] = t.Settle.ID, t.Settle.Attempt
	}
	return args
}

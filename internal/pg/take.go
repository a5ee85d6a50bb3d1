package pg

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Take describes the lease to take.
type Take struct {
	Group     Group
	Node      string
	MaxEvents int // up to mostEvents
	LeaseFor  time.Duration
	Settle    Lease // settled first, if it is held: all its events are done
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
				_ = Release(ctx, conn, lease)
				take.Settle = Lease{}
			}
			if !stopSlowConditions(ctx, conn, take.Group.ID, take.MaxEvents, limit) {
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
		take.Settle = lease
		take.MaxEvents = min(4*take.MaxEvents, mostEvents)
	}
}

const mostEvents = 10_000

// cutLease keeps the first events of a lease and gives back the rest.
func cutLease(ctx context.Context, db DB, lease Lease, keep int) (Lease, error) {
	lease.Events = lease.Events[:keep]
	err := Exec(ctx, db, "take", "select posthorn.cut_lease($1::bigint, $2::int, $3::bigint)",
		lease.ID, lease.Attempt, lease.Events[keep-1].ID)
	if err != nil {
		return Lease{}, err
	}
	return lease, nil
}

// takeOn sends all statements at once: the first transaction commits, which releases the
// group's lock, before the second one reads the events. The first one has statements that
// begin and commit it, because the server would answer a Sync at once and wake this process
// before the events arrive.
//
// With a limit, both have a statement_timeout. An error then comes with the lease, if that
// was taken.
func (p *Pool) takeOn(ctx context.Context, conn *pgx.Conn, take Take, limit time.Duration) (Lease, error) {
	if limit > 0 {
		ctx = Within(ctx, 2*limit+LeaseTime(take.LeaseFor))
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	session, err := sessionOf(ctx, conn)
	if err != nil {
		return Lease{}, err
	}
	var timeout statement
	if limit > 0 {
		if timeout, err = session.timeoutStatement(ctx, conn, limit); err != nil {
			return Lease{}, err
		}
	}
	token := newToken()
	pipeline := conn.PgConn().StartPipeline(ctx)
	session.send(pipeline, beginStatement)
	if limit > 0 {
		session.send(pipeline, timeout)
	}
	session.send(pipeline, takeStatement, take.parameters(token)...)
	session.send(pipeline, commitStatement)
	if limit > 0 {
		session.send(pipeline, beginStatement)
		session.send(pipeline, timeout)
	}
	session.send(pipeline, leaseEventsStatement, token)
	if limit > 0 {
		session.send(pipeline, commitStatement)
	}
	lease, err := session.receive(pipeline, take.MaxEvents)
	if err != nil {
		rollBack(ctx, conn)
		session.forget(ctx, conn, err)
		return lease, err
	}
	return lease, p.streams.name(ctx, conn, lease.Events, session.streamIDs)
}

// rollBack ends the transaction that an error has left open. If that fails, the pool closes
// the connection.
func rollBack(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback")
	}
}

// receive sends the queued statements, and reads their results.
func (s *session) receive(pipeline *pgconn.Pipeline, maxEvents int) (lease Lease, err error) {
	defer func() {
		if closeErr := pipeline.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := pipeline.Sync(); err != nil {
		return Lease{}, err
	}
	if lease, err = receiveLease(pipeline); err != nil {
		return Lease{}, err
	}
	lease.Events, err = s.receiveEvents(pipeline, maxEvents)
	return lease, err
}

// newToken returns a random token, by which the second transaction finds the lease.
func newToken() []byte {
	token := make([]byte, 16)
	rand.Read(token)
	return token
}

func (t Take) parameters(token []byte) [][]byte {
	b := binary.BigEndian
	parameters := [][]byte{
		b.AppendUint64(nil, uint64(t.Group.ID)),
		[]byte(t.Node),
		b.AppendUint32(nil, uint32(t.MaxEvents)),
		interval(t.LeaseFor),
		token,
		nil,
		nil,
	}
	if t.Settle.Held() {
		parameters[5] = b.AppendUint64(nil, uint64(t.Settle.ID))
		parameters[6] = b.AppendUint32(nil, uint32(t.Settle.Attempt))
	}
	return parameters
}

var errFormat = errors.New("a row does not have the expected format")

// receiveLease reads the result of the first transaction.
func receiveLease(pipeline *pgconn.Pipeline) (Lease, error) {
	rows, err := nextRows(pipeline)
	if err != nil {
		return Lease{}, err
	}
	var l Lease
	err = decodeRows(rows, func(values [][]byte) bool {
		if len(values) != 2 || len(values[0]) != 8 || len(values[1]) != 4 {
			return false
		}
		l.ID = int64(binary.BigEndian.Uint64(values[0]))
		l.Attempt = int(int32(binary.BigEndian.Uint32(values[1])))
		return true
	})
	return l, err
}

// decodeRows calls a function with the values of each row, which the next row overwrites.
// The function reports whether they have the expected format.
func decodeRows(rows *pgconn.ResultReader, decode func(values [][]byte) bool) error {
	for rows.NextRow() {
		if !decode(rows.Values()) {
			return errFormat
		}
	}
	_, err := rows.Close()
	return err
}

// appendID returns a function for decodeRows that appends the bigint of each row.
func appendID(ids *[]int64) func(values [][]byte) bool {
	return func(values [][]byte) bool {
		if len(values) != 1 || len(values[0]) != 8 {
			return false
		}
		*ids = append(*ids, int64(binary.BigEndian.Uint64(values[0])))
		return true
	}
}

// nextRows returns the next result with rows. It skips those of begin, commit and Sync.
func nextRows(pipeline *pgconn.Pipeline) (*pgconn.ResultReader, error) {
	for {
		result, err := pipeline.GetResults()
		if err != nil {
			return nil, err
		}
		switch result := result.(type) {
		case *pgconn.ResultReader:
			if len(result.FieldDescriptions()) > 0 {
				return result, nil
			}
			if _, err := result.Close(); err != nil {
				return nil, err
			}
		case nil:
			return nil, errors.New("a result is missing")
		}
	}
}

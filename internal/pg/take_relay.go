package pg

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

// Window is a lease of a relay with the streams of its events.
type Window struct {
	Lease
	StreamIDs []int64 // of each event
	Retries   bool    // its events are redriven dead letters
}

// RelayTake describes the window to take.
type RelayTake struct {
	Lead      Lead
	MaxEvents int
	LeaseFor  time.Duration
	Retries   bool // redriven dead letters first

	// Settled is a window that is settled first, with its report.
	Settled *Window
	Report  RelayReport
}

var (
	takeRelayStatement = statement{
		"posthorn_take_relay",
		"select lease, attempt, is_retries::int::bigint from posthorn.take_relay($1::bigint, $2::text, $3::bigint, $4::int, $5::text::interval, $6::uuid, $7::bool)",
	}
	takeAsideStatement = statement{
		"posthorn_take_aside",
		"select lease, attempt, stream_id from posthorn.take_aside($1::bigint, $2::text, $3::bigint, $4::bigint[], $5::text::interval, $6::uuid)",
	}
	settleRelayStatement = statement{"posthorn_settle_relay", settleRelaySQL}
)

// TakeRelay takes the next window of a relay with its events, mostly in one round trip. The
// window is not held when there are no events. TakeRelay fails with [ErrLeaseLost] when
// another process leads. After any error a window may be held nevertheless, until the lead
// is taken again.
func (p *Pool) TakeRelay(ctx context.Context, take RelayTake) (Window, error) {
	ctx = Within(ctx, LeaseTime(take.LeaseFor))
	token := newToken()
	call := call{
		statement: takeRelayStatement, token: token, maxEvents: take.MaxEvents,
		args: []any{take.Lead.Group.ID, take.Lead.Owner, take.Lead.Epoch, take.MaxEvents, Period(take.LeaseFor), token, take.Retries},
	}
	if take.Settled != nil {
		var err error
		if p.direct {
			call.settle, err = settleRelayArgs(take.Lead, *take.Settled, take.Report)
		} else {
			err = SettleRelay(ctx, p, take.Lead, *take.Settled, take.Report)
		}
		if !IsCommitted(err) {
			return Window{}, err
		}
	}
	taken, err := p.call(ctx, call)
	if err != nil || len(taken.leases) == 0 {
		return Window{}, Translate("take", err)
	}
	first := taken.leases[0]
	return Window{Lease{ID: first.ID, Attempt: int(first.Attempt), Events: taken.events}, taken.streamIDs, first.Third != 0}, nil
}

// TakeAside takes the oldest events of some streams that were set aside: a window for each
// stream that has such events and no other window.
func (p *Pool) TakeAside(ctx context.Context, lead Lead, streams []int64, leaseFor time.Duration) ([]Window, error) {
	ctx = Within(ctx, LeaseTime(leaseFor))
	token := newToken()
	taken, err := p.call(ctx, call{
		statement: takeAsideStatement, token: token, maxEvents: mostEvents,
		args: []any{lead.Group.ID, lead.Owner, lead.Epoch, streams, Period(leaseFor), token},
	})
	if err != nil {
		return nil, Translate("take", err)
	}
	windows := make([]Window, len(taken.leases))
	at := map[int64]*Window{}
	for i, l := range taken.leases {
		windows[i] = Window{Lease: Lease{ID: l.ID, Attempt: int(l.Attempt)}, StreamIDs: []int64{l.Third}}
		at[l.Third] = &windows[i]
	}
	for i, stream := range taken.streamIDs {
		if w := at[stream]; w != nil {
			w.Events = append(w.Events, taken.events[i])
		}
	}
	return windows, nil
}

// call is a statement that takes leases with a token, by which lease_events finds their
// events.
type call struct {
	statement statement
	args      []any
	token     pgtype.UUID
	maxEvents int
	settle    []any // the arguments of settle_relay, which is called first; nil for none
}

// taken are the leases that a call has taken, and their events.
type taken struct {
	leases    []takenLease
	events    []Event
	streamIDs []int64 // of each event
}

// takenLease is a row of take_relay, where Third is 1 if the events are retries, or of
// take_aside, where it is the stream.
type takenLease struct{ ID, Attempt, Third int64 }

func (p *Pool) call(ctx context.Context, c call) (t taken, err error) {
	if !p.direct {
		return p.callInOne(ctx, c)
	}
	conn, err := p.Acquire(ctx)
	if err != nil {
		return t, err
	}
	defer conn.Release()
	s := sessionOf(conn.Conn())
	var parts [][]step
	if c.settle != nil {
		parts = append(parts, []step{{statement: settleRelayStatement, args: c.settle}})
	}
	parts = append(parts,
		[]step{{statement: c.statement, args: c.args, decode: func(values [][]byte) bool {
			var l takenLease
			ok := integers(values, &l.ID, &l.Attempt, &l.Third)
			t.leases = append(t.leases, l)
			return ok
		}}},
		[]step{s.leaseEvents(c.token, c.maxEvents, &t.events)})
	for _, err := range s.exchange(ctx, parts...) {
		if claimError(err) != nil {
			return t, err
		}
	}
	t.streamIDs = slices.Clone(s.streamIDs)
	return t, p.streams.name(ctx, conn, t.events, t.streamIDs)
}

// callInOne is call through a pooler. Both statements are one transaction, so the pooler
// sends them to one server.
func (p *Pool) callInOne(ctx context.Context, c call) (t taken, err error) {
	batch := &pgx.Batch{}
	batch.Queue(c.statement.sql, c.args...).Query(func(rows pgx.Rows) error {
		t.leases, err = pgx.CollectRows(rows, pgx.RowToStructByPos[takenLease])
		return err
	})
	batch.Queue(leaseEventsStatement.sql, c.token).Query(func(rows pgx.Rows) error {
		t.events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
			var stream int64
			err = row.Scan(&e.ID, &stream, &e.Type, (*zeronull.Text)(&e.Key), &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata),
				&e.PublishedAt, &e.Delivery, &e.Subscriptions)
			t.streamIDs = append(t.streamIDs, stream)
			return e, err
		})
		return err
	})
	if err := claimError(p.SendBatch(ctx, batch).Close()); err != nil {
		return t, err
	}
	return t, p.streams.name(ctx, p, t.events, t.streamIDs)
}

// SetAside counts the events of a stuck stream that are set aside.
type SetAside struct {
	StreamID int64      `json:"-"`
	Stream   string     `json:"stream"`
	Events   int64      `json:"events"`
	Oldest   int64      `json:"oldest"` // the id of the first
	Since    *time.Time `json:"since"`  // when that one was published
}

// ListAside returns the stuck streams of a relay.
func ListAside(ctx context.Context, db DB, group Group) ([]SetAside, error) {
	return Collect(ctx, db, "list stuck streams", pgx.RowToStructByPos[SetAside],
		"select stream_id, stream, events, oldest, since from posthorn.list_aside($1::bigint)", group.ID)
}

// StreamsAhead returns the names of the streams to which the next events of a namespace
// after an id belong.
func StreamsAhead(ctx context.Context, db DB, namespace string, after int64, events int) ([]string, error) {
	return Collect(ctx, db, "list streams ahead", pgx.RowTo[string], `
		select s.name
		from posthorn.streams s
		where s.id = any (array(
			select distinct a.stream_id
			from (
				select e.stream_id from posthorn.events e
				where e.namespace_id = (select n.id from posthorn.namespaces n where n.namespace = $1::text) and e.id > $2::bigint
				order by e.id limit $3::int) a))`, namespace, after, events)
}

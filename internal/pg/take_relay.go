package pg

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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

var takeRelayStatement = statement{
	name: "posthorn_take_relay",
	sql:  "select lease, attempt, is_retries::int::bigint from posthorn.take_relay($1, $2, $3, $4, $5, $6, $7)",
	parameters: []uint32{
		pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int4OID, pgtype.IntervalOID, pgtype.UUIDOID, pgtype.BoolOID,
	},
}

var settleRelayStatement = statement{
	name: "posthorn_settle_relay",
	sql:  "select posthorn.settle_relay($1, $2, $3, $4, $5, $6)",
	parameters: []uint32{
		pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.Int4OID, pgtype.JSONBOID,
	},
}

var takeAsideStatement = statement{
	name:       "posthorn_take_aside",
	sql:        "select lease, attempt, stream_id from posthorn.take_aside($1, $2, $3, $4, $5, $6)",
	parameters: []uint32{pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8ArrayOID, pgtype.IntervalOID, pgtype.UUIDOID},
}

// TakeRelay takes the next window of a relay with its events, mostly in one round trip. The
// window is not held when there are no events. TakeRelay fails with [ErrLeaseLost] when
// another process leads. After any error a window may be held nevertheless, until the lead
// is taken again.
func (p *Pool) TakeRelay(ctx context.Context, take RelayTake) (Window, error) {
	ctx = Within(ctx, LeaseTime(take.LeaseFor))
	b := binary.BigEndian
	call := call{
		statement: takeRelayStatement, token: newToken(), maxEvents: take.MaxEvents,
		args: []any{take.Lead.Group.ID, take.Lead.Owner, take.Lead.Epoch, take.MaxEvents, Period(take.LeaseFor), nil, take.Retries},
	}
	retries := []byte{0}
	if take.Retries {
		retries[0] = 1
	}
	call.parameters = append(take.Lead.parameters(), b.AppendUint32(nil, uint32(take.MaxEvents)), interval(take.LeaseFor), call.token, retries)
	if take.Settled != nil {
		report, err := take.Report.MarshalJSON()
		if err != nil {
			return Window{}, Translate("take", err)
		}
		call.settle = append(take.Lead.parameters(), b.AppendUint64(nil, uint64(take.Settled.ID)),
			b.AppendUint32(nil, uint32(take.Settled.Attempt)), append([]byte{1}, report...)) // the version of jsonb's format
	}
	if !p.direct && take.Settled != nil {
		if err := SettleRelay(ctx, p, take.Lead, *take.Settled, take.Report); err != nil {
			return Window{}, err
		}
	}
	taken, events, ids, err := p.call(ctx, call)
	if err != nil || len(taken) == 0 {
		return Window{}, Translate("take", err)
	}
	first := taken[0]
	return Window{Lease{ID: first.lease, Attempt: int(first.attempt), Events: events}, ids, first.third != 0}, nil
}

// TakeAside takes the oldest events of some streams that were set aside: a window for each
// stream that has such events and no other window.
func (p *Pool) TakeAside(ctx context.Context, lead Lead, streams []int64, leaseFor time.Duration) ([]Window, error) {
	ctx = Within(ctx, LeaseTime(leaseFor))
	list, err := pgtype.NewMap().Encode(pgtype.Int8ArrayOID, pgtype.BinaryFormatCode, streams, nil)
	if err != nil {
		return nil, Translate("take", err)
	}
	token := newToken()
	taken, events, ids, err := p.call(ctx, call{
		statement: takeAsideStatement, token: token, maxEvents: mostEvents,
		parameters: append(lead.parameters(), list, interval(leaseFor), token),
		args:       []any{lead.Group.ID, lead.Owner, lead.Epoch, streams, Period(leaseFor), nil},
	})
	if err != nil {
		return nil, Translate("take", err)
	}
	windows := make([]Window, len(taken))
	at := map[int64]*Window{}
	for i, t := range taken {
		windows[i] = Window{Lease: Lease{ID: t.lease, Attempt: int(t.attempt)}, StreamIDs: []int64{t.third}}
		at[t.third] = &windows[i]
	}
	for i := range events {
		if w := at[ids[i]]; w != nil {
			w.Events = append(w.Events, events[i])
		}
	}
	return windows, nil
}

func (l Lead) parameters() [][]byte {
	b := binary.BigEndian
	return [][]byte{b.AppendUint64(nil, uint64(l.Group.ID)), []byte(l.Owner), b.AppendUint64(nil, uint64(l.Epoch))}
}

// interval encodes a duration in binary format: microseconds, days and months.
func interval(d time.Duration) []byte {
	value := make([]byte, 16)
	binary.BigEndian.PutUint64(value, uint64(d.Microseconds()))
	return value
}

// call is a statement that takes leases with a token, by which lease_events finds their
// events.
type call struct {
	statement  statement
	parameters [][]byte
	args       []any // the parameters through a pooler; the token is nil
	token      []byte
	maxEvents  int
	settle     [][]byte // the parameters of settle_relay, which is called first; nil for none
}

type taken struct {
	lease   int64
	attempt int32
	third   int64
}

func (p *Pool) call(ctx context.Context, c call) ([]taken, []Event, []int64, error) {
	if !p.direct {
		return p.callInOne(ctx, c)
	}
	pooled, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer pooled.Release()
	conn := pooled.Conn()
	ctx, cancel := limited(ctx)
	defer cancel()
	s, err := sessionOf(ctx, conn)
	if err == nil {
		err = s.prepare(ctx, conn, c.statement, settleRelayStatement)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	if c.settle != nil {
		s.send(pipeline, settleRelayStatement, c.settle...)
		pipeline.SendPipelineSync()
	}
	s.send(pipeline, c.statement, c.parameters...)
	pipeline.SendPipelineSync()
	s.send(pipeline, leaseEventsStatement, c.token)
	took, events, err := s.receiveTaken(pipeline, c)
	if err != nil {
		s.forget(ctx, conn, err)
		return nil, nil, nil, err
	}
	return took, events, slices.Clone(s.streamIDs), p.streams.name(ctx, conn, events, s.streamIDs)
}

func (s *session) receiveTaken(pipeline *pgconn.Pipeline, c call) (took []taken, events []Event, err error) {
	defer func() {
		if closeErr := pipeline.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := pipeline.Sync(); err != nil {
		return nil, nil, err
	}
	if c.settle != nil {
		rows, err := nextRows(pipeline)
		if err != nil {
			return nil, nil, err
		}
		if _, err := rows.Close(); err != nil {
			return nil, nil, err
		}
	}
	rows, err := nextRows(pipeline)
	if err != nil {
		return nil, nil, err
	}
	b := binary.BigEndian
	err = decodeRows(rows, func(values [][]byte) bool {
		if len(values) != 3 || len(values[0]) != 8 || len(values[1]) != 4 || len(values[2]) != 8 {
			return false
		}
		took = append(took, taken{int64(b.Uint64(values[0])), int32(b.Uint32(values[1])), int64(b.Uint64(values[2]))})
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	events, err = s.receiveEvents(pipeline, c.maxEvents)
	return took, events, err
}

// callInOne is call through a pooler. Both statements are one transaction, so the pooler
// sends them to one server.
func (p *Pool) callInOne(ctx context.Context, c call) (took []taken, events []Event, ids []int64, err error) {
	args := slices.Clone(c.args)
	token := hex.EncodeToString(c.token)
	args[5] = token
	batch := &pgx.Batch{}
	sql := "select lease, attempt, stream_id from posthorn.take_aside($1::bigint, $2::text, $3::bigint, $4::bigint[], $5::text::interval, $6::text::uuid)"
	if c.statement.name == takeRelayStatement.name {
		sql = "select lease, attempt, is_retries::int::bigint from posthorn.take_relay($1::bigint, $2::text, $3::bigint, $4::int, $5::text::interval, $6::text::uuid, $7::bool)"
	}
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		took, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t taken, err error) {
			return t, row.Scan(&t.lease, &t.attempt, &t.third)
		})
		return err
	})
	batch.Queue(`
		select event_id, stream_id, type, coalesce(key, ''), tags, payload, metadata, published_at, delivery, subscriptions
		from posthorn.lease_events($1::text::uuid)`, token).Query(func(rows pgx.Rows) error {
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
			var stream int64
			err = row.Scan(&e.ID, &stream, &e.Type, &e.Key, &e.Tags, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata),
				&e.PublishedAt, &e.Delivery, &e.Subscriptions)
			ids = append(ids, stream)
			return e, err
		})
		return err
	})
	if err := p.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, nil, err
	}
	return took, events, ids, p.streams.name(ctx, p, events, ids)
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

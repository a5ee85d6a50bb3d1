package pg

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// RelayReport is the report of a window: the events that were written, set aside or failed.
type RelayReport struct {
	Relayed  []Relayed
	Aside    []Aside
	Failures []Failure
}

// Relayed is a range of events of a stream that were written.
type Relayed struct {
	StreamID    int64
	First, Last int64
}

// Aside lists events of a stuck stream, to be set aside.
type Aside struct {
	StreamID int64
	IDs      []int64
}

// MarshalJSON writes a report in the form that the SQL functions read.
func (r RelayReport) MarshalJSON() ([]byte, error) {
	text := append(make([]byte, 0, 64), `{"relayed":[`...)
	for i, w := range r.Relayed {
		text = comma(text, i)
		text = append(strconv.AppendInt(append(text, '['), int64(w.StreamID), 10), ',')
		text = append(strconv.AppendInt(text, w.First, 10), ',')
		text = append(strconv.AppendInt(text, w.Last, 10), ']')
	}
	text = append(text, `],"aside":[`...)
	for i, a := range r.Aside {
		text = comma(text, i)
		text = append(strconv.AppendInt(append(text, '['), int64(a.StreamID), 10), ",["...)
		for j, id := range a.IDs {
			text = strconv.AppendInt(comma(text, j), id, 10)
		}
		text = append(text, "]]"...)
	}
	text = append(text, ']')
	if len(r.Failures) > 0 {
		failures, err := json.Marshal(r.Failures)
		if err != nil {
			return nil, err
		}
		text = append(append(text, `,"failures":`...), failures...)
	}
	return append(text, '}'), nil
}

func comma(text []byte, i int) []byte {
	if i > 0 {
		return append(text, ',')
	}
	return text
}

// SettleRelay settles a window of a relay. It fails with [ErrLeaseLost], and changes
// nothing, when another process leads.
func SettleRelay(ctx context.Context, db DB, lead Lead, window Window, report RelayReport) error {
	args, err := settleRelayArgs(lead, window, report)
	if err != nil {
		return err
	}
	return Exec(ctx, db, "settle", settleRelaySQL, args...)
}

const settleRelaySQL = "select posthorn.settle_relay($1::bigint, $2::text, $3::bigint, $4::bigint, $5::int, $6::jsonb)"

func settleRelayArgs(lead Lead, window Window, report RelayReport) ([]any, error) {
	document, err := report.MarshalJSON()
	return []any{lead.Group.ID, lead.Owner, lead.Epoch, window.ID, window.Attempt, string(document)}, Translate("settle", err)
}

// SettledAside is a lease of events that were set aside, of which those up to an id are
// done.
type SettledAside struct {
	Lease Lease
	UpTo  int64
}

// SettleAside settles leases of events that were set aside, and returns the number of
// events that do not wait any more, by stream. Events that are not done are given back.
func SettleAside(ctx context.Context, db DB, lead Lead, leases []SettledAside, report RelayReport) (map[int64]int, error) {
	var list [][3]int64
	for _, l := range leases {
		list = append(list, [3]int64{l.Lease.ID, int64(l.Lease.Attempt), l.UpTo})
	}
	rest, err := report.MarshalJSON()
	if err != nil {
		return nil, Translate("settle", err)
	}
	head, err := json.Marshal(list)
	if err != nil {
		return nil, Translate("settle", err)
	}
	type row struct {
		Stream int64
		Done   int
	}
	document := `{"leases":` + string(head) + "," + string(rest[1:])
	rows, err := db.Query(ctx, "select stream_id, done from posthorn.settle_aside($1::bigint, $2::text, $3::bigint, $4::jsonb)",
		lead.Group.ID, lead.Owner, lead.Epoch, document)
	if err != nil {
		return nil, Translate("settle", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	done := map[int64]int{}
	for _, r := range found {
		done[r.Stream] += r.Done
	}
	return done, Translate("settle", err)
}

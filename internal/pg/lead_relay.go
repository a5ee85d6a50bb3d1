package pg

import (
	"context"
	"time"
)

// Lead is the lead of a relay.
type Lead struct {
	Group    Group
	Owner    string
	Epoch    int64    // 0: another process has the lead
	Leader   string   // the process that leads
	Streams  []string // patterns of the streams that the relay is for
	Imported bool     // it writes imported events too
}

// LeadRelay takes the lead of a relay, if no other process has it. With an epoch, it renews
// the lead of that epoch and its leases, or fails with [ErrLeaseLost] when that has ended.
func LeadRelay(ctx context.Context, db DB, group Group, owner string, leaseFor time.Duration, epoch int64) (Lead, error) {
	lead := Lead{Group: group, Owner: owner}
	err := db.QueryRow(ctx, `
		select coalesce(term, 0), coalesce(leader, ''), patterns
		from posthorn.lead_relay($1::bigint, $2::text, $3::text::interval, $4::bigint)`,
		group.ID, owner, Period(leaseFor), Optional(epoch)).Scan(&lead.Epoch, &lead.Leader, &lead.Streams)
	if err == nil && lead.Epoch != 0 {
		// A statement of its own: the one above sees the log as it was before it waited for the lead.
		err = db.QueryRow(ctx, "select coalesce(bool_or(r.imported), false) from posthorn.relays r where r.group_id = $1::bigint", group.ID).Scan(&lead.Imported)
	}
	return lead, Translate("lead relay", err)
}

// ResignRelay gives the lead back, so that another process can take it at once.
func ResignRelay(ctx context.Context, db DB, lead Lead) error {
	return Exec(ctx, db, "resign relay", "select posthorn.resign_relay($1::bigint, $2::text, $3::bigint)",
		lead.Group.ID, lead.Owner, lead.Epoch)
}

// NoteRelayError records the error that stops a relay; "": it writes again.
func NoteRelayError(ctx context.Context, db DB, lead Lead, text string) error {
	return Exec(ctx, db, "note relay error", "select posthorn.note_relay_error($1::bigint, $2::text, $3::bigint, $4::text)",
		lead.Group.ID, lead.Owner, lead.Epoch, Optional(Storable(text)))
}

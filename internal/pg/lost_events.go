package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// OwedLooks returns the first id after the first failover, crash or restore after which a relay
// has not compared its broker with the log yet, or 0.
func OwedLooks(ctx context.Context, db DB, lead Lead) (int64, error) {
	return Value[int64](ctx, db, "look for failovers", "select coalesce(posthorn.owed_looks($1::bigint, $2::text, $3::bigint), 0)",
		lead.Group.ID, lead.Owner, lead.Epoch)
}

// NoteLostEvents keeps those of some events that the log has not, and returns their ids.
func NoteLostEvents(ctx context.Context, db DB, lead Lead, events []Event) ([]int64, error) {
	ids, published, messages := make([]int64, len(events)), make([]time.Time, len(events)), make([]Message, len(events))
	for i := range events {
		e := &events[i]
		ids[i], published[i] = e.ID, e.PublishedAt
		messages[i] = Message{Stream: e.Stream, Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata}
	}
	c := columnsOf(messages)
	return Collect(ctx, db, "keep lost events", pgx.RowTo[int64], `
		select unnest(posthorn.note_lost_events($1::bigint, $2::text, $3::bigint, $4::text[], $5::bigint[], $6::text[], $7::json[],
			$8::timestamptz[], $9::text[], $10::text[], $11::json[]))`,
		lead.Group.ID, lead.Owner, lead.Epoch, streamsOf(messages), ids, c.types, c.payloads, published, c.keys, c.tags, c.metadata)
}

// NoteLook notes that a relay has compared its broker with the log after all failovers so
// far; text is the error if it could not for some streams.
func NoteLook(ctx context.Context, db DB, lead Lead, entries int64, text string) error {
	return Exec(ctx, db, "note look", "select posthorn.note_look($1::bigint, $2::text, $3::bigint, $4::bigint, $5::text)",
		lead.Group.ID, lead.Owner, lead.Epoch, entries, Optional(Storable(text)))
}

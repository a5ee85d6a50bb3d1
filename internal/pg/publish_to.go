package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// PublishTo publishes messages for one subscription only, in order, and returns their ids.
// It ignores DedupKey.
func PublishTo(ctx context.Context, db DB, namespace, group, subscription string, messages []Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	c := columnsOf(messages)
	return Collect(ctx, db, "publish", pgx.RowTo[int64], `
		select posthorn.publish_to($1::text, $2::text, $3::text, m.type, m.payload, coalesce(m.stream, 'default'), m.key,
			m.tags::text[], m.metadata, m.deliver_at)
		from unnest($4::text[], $5::json[], $6::text[], $7::text[], $8::text[], $9::json[], $10::timestamptz[])
			with ordinality as m (type, payload, stream, key, tags, metadata, deliver_at, ord)
		order by m.ord`,
		namespace, group, subscription, c.types, c.payloads, c.streams, c.keys, c.tags, c.metadata, deliveriesAt(messages))
}

// deliveriesAt returns the times at which messages are due, or nil if none is delayed.
func deliveriesAt(messages []Message) []*time.Time {
	var at []*time.Time
	for i := range messages {
		if messages[i].DeliverAt != nil {
			set(&at, len(messages), i, messages[i].DeliverAt)
		}
	}
	return at
}

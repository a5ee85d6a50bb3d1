package pg

import (
	"cmp"
	"context"
	"encoding/json"
)

var empty = json.RawMessage("{}")

// Publish publishes one event in the transaction of db and returns its id. A delayed
// message gets another id when it enters the log. If another event has the dedup key, the
// id is that of the first such event.
func Publish(ctx context.Context, db DB, namespace string, m Message) (int64, error) {
	payload := m.Payload
	if len(payload) == 0 {
		payload = empty
	}
	return Value[int64](ctx, db, "publish", `
		select posthorn.publish($1::text, $2::text, $3::json, $4::text, $5::text, $6::text[], $7::json, $8::timestamptz, $9::text)`,
		namespace, m.Type, payload, cmp.Or(m.Stream, "default"), Optional(m.Key), m.Tags, Document(m.Metadata),
		m.DeliverAt, Optional(m.DedupKey))
}

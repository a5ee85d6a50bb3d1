package pg

import (
	"context"
	"encoding/json"
)

// RelayConfig is the part of a relay's configuration that is in the database, in the form
// that define_relay reads.
type RelayConfig struct {
	Streams  []string `json:"streams,omitempty"` // patterns; none: all streams
	Imported bool     `json:"imported"`          // it writes imported events too
	Start    Moment   `json:"start,omitzero"`    // where a new relay starts; default: the beginning
	Backoff  *Backoff `json:"backoff,omitempty"` // before further attempts at redriven events
}

// DefineRelay makes a relay, or changes its streams, and returns its group. It fails with
// [ErrConflict] when a group of that name exists that is not a relay.
func DefineRelay(ctx context.Context, db DB, namespace, name string, config RelayConfig) (Group, error) {
	document, err := json.Marshal(config)
	if err != nil {
		return Group{}, Translate("define relay", err)
	}
	id, err := Value[int64](ctx, db, "define relay",
		"select posthorn.define_relay($1::text, $2::text, $3::jsonb)", namespace, name, string(document))
	return Group{id, namespace, name}, err
}

// Origin returns the identifier of this log, which no other log has.
func Origin(ctx context.Context, db DB) (string, error) {
	return Value[string](ctx, db, "look up the log's origin", "select posthorn.origin()::text")
}

// LastID returns the highest id that the log has given out.
func LastID(ctx context.Context, db DB) (int64, error) {
	return Value[int64](ctx, db, "look up the last id of the log", "select posthorn.last_id()")
}

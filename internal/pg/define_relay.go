package pg

import (
	"context"
	"encoding/json"
)

// RelayConfig is what the database keeps of how a relay works.
type RelayConfig struct {
	Streams  []string // patterns; none: all streams
	Imported bool     // imported events too
	Start    *Moment  // where a new relay starts; default: the beginning
	Backoff  *Backoff // before further attempts at what came back from the dead letters
}

// DefineRelay makes a relay, or changes which streams it is for, and returns its
// group. It fails with [ErrConflict] when there is a group of that name which is
// none.
func DefineRelay(ctx context.Context, db DB, namespace, name string, config RelayConfig) (Group, error) {
	start, err := startText(config.Start)
	if err != nil {
		return Group{}, Translate("define relay", err)
	}
	document, err := json.Marshal(struct {
		Streams  []string `json:"streams,omitempty"`
		Imported bool     `json:"imported"`
		Start    string   `json:"start,omitempty"`
		Backoff  *Backoff `json:"backoff,omitempty"`
	}{config.Streams, config.Imported, start, config.Backoff})
	if err != nil {
		return Group{}, Translate("define relay", err)
	}
	id, err := Value[int64](ctx, db, "define relay",
		"select posthorn.define_relay($1::text, $2::text, $3::jsonb)", namespace, name, string(document))
	return Group{id, namespace, name}, err
}

// Origin tells this log from all others.
func Origin(ctx context.Context, db DB) (string, error) {
	return Value[string](ctx, db, "look up the log's origin", "select posthorn.origin()::text")
}

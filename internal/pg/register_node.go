package pg

import (
	"context"
	"encoding/json"
)

// NodeInfo is what a node says of itself.
type NodeInfo struct {
	DisplayName string
	Description string
	Metadata    json.RawMessage // a JSON object; none if empty
}

// RegisterNode registers a node, or a new run of one, and returns the id that it
// has: characters outside [A-Za-z0-9_.:-] have become _. Claims must go by that
// id, so it is best to pass one that needs no change. It forgets the handlers of
// an earlier run: call [SetNodeHandlers] in the same transaction.
func RegisterNode(ctx context.Context, db DB, namespace, node string, info NodeInfo) (string, error) {
	return Value[string](ctx, db, "register node", "select posthorn.register_node($1::text, $2::text, $3::text, $4::text, $5::jsonb)",
		namespace, node, Optional(info.DisplayName), Optional(info.Description), Document(info.Metadata))
}

// TouchHeartbeat notes that a node is alive, and reports whether it is
// registered: one that was removed or swept should register again.
func TouchHeartbeat(ctx context.Context, db DB, node string) (bool, error) {
	return Value[bool](ctx, db, "touch heartbeat", "select posthorn.touch_node_heartbeat($1::text)", node)
}

// RemoveNode removes a node and gives back all its leases, and returns how many.
// It does so whether or not the node is registered.
func RemoveNode(ctx context.Context, db DB, namespace, node string) (int64, error) {
	return Value[int64](ctx, db, "remove node", "select posthorn.remove_node($1::text, $2::text)", namespace, node)
}

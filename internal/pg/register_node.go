package pg

import (
	"context"
	"encoding/json"
)

// NodeInfo describes a node.
type NodeInfo struct {
	DisplayName string
	Description string
	Metadata    json.RawMessage // a JSON object; none if empty
}

// RegisterNode registers a node, and returns its id: it replaces characters outside
// [A-Za-z0-9_.:-] by _. Claims must name that id, so it is best to pass one that needs no
// change. RegisterNode deletes the handlers of an earlier run of the node: call
// [SetNodeHandlers] in the same transaction.
func RegisterNode(ctx context.Context, db DB, namespace, node string, info NodeInfo) (string, error) {
	return Value[string](ctx, db, "register node", "select posthorn.register_node($1::text, $2::text, $3::text, $4::text, $5::jsonb)",
		namespace, node, Optional(info.DisplayName), Optional(info.Description), Document(info.Metadata))
}

// TouchHeartbeat records that a node is alive, and reports whether it is registered. A node
// that is not should register again.
func TouchHeartbeat(ctx context.Context, db DB, node string) (bool, error) {
	return Value[bool](ctx, db, "touch heartbeat", "select posthorn.touch_node_heartbeat($1::text)", node)
}

// RemoveNode removes a node, gives back its leases, and returns their number. The node need
// not be registered.
func RemoveNode(ctx context.Context, db DB, namespace, node string) (int64, error) {
	return Value[int64](ctx, db, "remove node", "select posthorn.remove_node($1::text, $2::text)", namespace, node)
}

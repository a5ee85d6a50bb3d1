package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// NodeStatus is a node, and what it does.
type NodeStatus struct {
	ID            string           `json:"node_id"`
	Namespace     string           `json:"namespace"`
	DisplayName   string           `json:"display_name,omitempty"`
	Description   string           `json:"description,omitempty"`
	Metadata      json.RawMessage  `json:"metadata"`
	RegisteredAt  time.Time        `json:"registered_at"`
	LastHeartbeat time.Time        `json:"last_heartbeat"`
	State         string           `json:"state"` // alive, or stale after 90 seconds of silence
	Leases        int64            `json:"leases"`
	Handlers      []HandlerOfGroup `json:"handlers"`
}

// HandlerOfGroup is a handler, and the group that it works for.
type HandlerOfGroup struct {
	Group    string   `json:"group"`
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
}

// ListNodes returns the nodes of a namespace, by their ids.
func ListNodes(ctx context.Context, db DB, namespace string) ([]NodeStatus, error) {
	return list(ctx, db, "list nodes", pgx.RowToStructByPos[NodeStatus], `
		select node_id, namespace, coalesce(display_name, ''), coalesce(description, ''), metadata,
			registered_at, last_heartbeat, state, leases, handlers
		from posthorn.node_status
		where namespace = $1::text
		order by node_id`, namespace)
}

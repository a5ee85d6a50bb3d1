package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// NodeStatus is a node: a process that has registered.
type NodeStatus struct {
	ID            string          `json:"node_id"`
	Namespace     string          `json:"namespace"`
	DisplayName   string          `json:"display_name,omitempty"`
	Description   string          `json:"description,omitempty"`
	Metadata      json.RawMessage `json:"metadata"`
	RegisteredAt  time.Time       `json:"registered_at"`
	LastHeartbeat time.Time       `json:"last_heartbeat"`
	State         string          `json:"state"`  // alive, silent after 45 seconds without a heartbeat, or stale after 90
	Leases        int64           `json:"leases"` // batches that it has
	Handlers      []NodeHandler   `json:"handlers"`
}

// NodeHandler is a handler of a node, with its group.
type NodeHandler struct {
	Group    string   `json:"group"`
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
}

// Nodes returns the nodes of the namespace, by their ids.
func (a *Admin) Nodes(ctx context.Context) ([]NodeStatus, error) {
	return rows[NodeStatus](ctx, a.db, "list nodes",
		`select node_id, namespace, display_name, description, metadata, registered_at, last_heartbeat, state, leases,
			case when $2::text[] = '{}' then handlers else (
				select coalesce(jsonb_agg(x), '[]') from jsonb_array_elements(handlers) x
				where not exists (
					select from posthorn.hidden_things($1::text, $2::text[]) h
					where h.wholly and (h.kind = 'group' and h.name = x->>'group'
						or h.kind = 'subscription' and h.of_group = x->>'group' and h.name = x->>'name'))) end as handlers
		from posthorn.node_status where namespace = $1::text order by node_id`, a.namespace, list(a.hidden))
}

// RemoveNode removes a node that is known to be dead, gives back its leases, and returns
// their number. The node need not be registered.
func (a *Admin) RemoveNode(ctx context.Context, node string) (int64, error) {
	return a.recorded(ctx, noStream, entry{"remove-node", node, nil}, func(db DB) (int64, error) {
		return pg.RemoveNode(ctx, db, a.namespace, node)
	})
}

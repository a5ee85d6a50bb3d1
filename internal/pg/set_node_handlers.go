package pg

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Handler is what a node can handle: events whose type matches a pattern, or
// without patterns those of the subscription of that name.
type Handler struct {
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
}

// SetNodeHandlers replaces what a node can handle for a group.
func SetNodeHandlers(ctx context.Context, db DB, namespace, node, group string, handlers []Handler) error {
	document, err := json.Marshal(append([]Handler{}, handlers...))
	if err != nil {
		return Translate("set node handlers", err)
	}
	return Exec(ctx, db, "set node handlers", "select posthorn.set_node_handlers($1::text, $2::text, $3::text, $4::jsonb)",
		namespace, node, group, string(document))
}

// NodeHandler is a handler of a live node.
type NodeHandler struct {
	Node string
	Handler
}

// GroupHandlers returns what the live nodes of a group can handle.
func GroupHandlers(ctx context.Context, db DB, namespace, group string) ([]NodeHandler, error) {
	return Collect(ctx, db, "list handlers", pgx.RowToStructByPos[NodeHandler],
		"select node, handler, patterns from posthorn.group_handlers($1::text, $2::text)", namespace, group)
}

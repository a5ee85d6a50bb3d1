package pg

import (
	"context"
	"encoding/json"
)

// Handler is a handler of a node. It handles events whose types match a pattern, or, without
// patterns, events of the subscription that has its name.
type Handler struct {
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
	Formerly []string `json:"formerly,omitempty"` // names that it had before
}

// SetNodeHandlers replaces the handlers of a node for a group.
func SetNodeHandlers(ctx context.Context, db DB, namespace, node, group string, handlers []Handler) error {
	document, err := json.Marshal(append([]Handler{}, handlers...))
	if err != nil {
		return Translate("set node handlers", err)
	}
	return Exec(ctx, db, "set node handlers", "select posthorn.set_node_handlers($1::text, $2::text, $3::text, $4::jsonb)",
		namespace, node, group, string(document))
}

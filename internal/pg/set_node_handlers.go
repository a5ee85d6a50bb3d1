package pg

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
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

// NodeHandler is a handler of a live node.
type NodeHandler struct {
	Node     string
	Name     string
	Patterns []string
	Names    []string // all its names, the present one first
}

// KeepGroup is [KeepSubscriptions] and [GroupHandlers] in one statement.
func KeepGroup(ctx context.Context, db DB, namespace string, group Group) (filtered bool, handlers []NodeHandler, err error) {
	type row struct {
		Filtered bool
		Node     *string
		Handler  *string
		Patterns []string
		Names    []string
	}
	rows, err := Collect(ctx, db, "keep group", pgx.RowToStructByPos[row], `
		select k.filtered, h.node, h.handler, h.patterns, h.names
		from (select posthorn.keep_subscriptions($3::bigint) as filtered offset 0) k
		left join posthorn.group_handlers($1::text, $2::text) h on true`, namespace, group.Name, group.ID)
	for _, r := range rows {
		filtered = r.Filtered
		if r.Node != nil {
			handlers = append(handlers, NodeHandler{Node: *r.Node, Name: *r.Handler, Patterns: r.Patterns, Names: r.Names})
		}
	}
	if err == nil {
		noteFiltered(db, group, filtered)
	}
	return filtered, handlers, err
}

// GroupHandlers returns the handlers of the live nodes of a group.
func GroupHandlers(ctx context.Context, db DB, namespace, group string) ([]NodeHandler, error) {
	return Collect(ctx, db, "list handlers", pgx.RowToStructByPos[NodeHandler],
		"select node, handler, patterns, names from posthorn.group_handlers($1::text, $2::text)", namespace, group)
}

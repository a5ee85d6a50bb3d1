package pg

import (
	"context"
	"encoding/json"
)

// Kept is what a node learns about a group on which it works.
type Kept struct {
	Filtered    bool              // the group has subscriptions
	HasOrder    bool              // it has the order that was asked for
	Unreachable []string          // handlers of the node that get no events
	Others      []Handler         // handlers of other live nodes
	Names       map[string]string // the present names of handlers, by former ones
}

// KeepGroup keeps the subscriptions of a group from expiring, since the node works on it. If
// order is not nil, the group gets its order when that is possible.
func KeepGroup(ctx context.Context, db DB, group Group, node string, order *GroupConfig) (Kept, error) {
	var kept Kept
	var document *string
	if order != nil {
		text, err := json.Marshal(order)
		if err != nil {
			return kept, Translate("keep group", err)
		}
		document = Optional(string(text))
	}
	err := db.QueryRow(ctx, "select filtered, has_order, unreachable, others, names from posthorn.keep_group($1::bigint, $2::text, $3::jsonb)",
		group.ID, node, document).Scan(&kept.Filtered, &kept.HasOrder, &kept.Unreachable, &kept.Others, &kept.Names)
	if p, ok := db.(*Pool); ok && err == nil && kept.Filtered {
		p.filtered.Store(group.ID, true)
	}
	return kept, Translate("keep group", err)
}

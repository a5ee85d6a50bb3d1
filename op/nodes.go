package op

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

var nodes = Topic{"nodes", "node", "api-1-4711-9f3c2a1b"}

var ListNodes = listAll(About{
	Topic: nodes, SQL: "node_status",
	Does: "List nodes with their leases and handlers",
	More: "A node is a process that has registered. It is alive, silent while a heartbeat is overdue, or stale: a " +
		"process that was killed is silent after 45 seconds.",
	Example: "posthorn nodes list\nposthorn nodes list --namespace shop --json",
}, (*admin.Admin).Nodes)

// ByNode is the input of operations on a node.
type ByNode struct {
	Namespace
	ID string `path:"id" doc:"The id under which the node is registered"`
}

// Released is the number of leases that were given back.
type Released struct {
	Count  int64 `json:"count" doc:"How many leases were given back"`
	Leases int64 `json:"released_leases" doc:"The same"`
}

var RemoveNode = Op[ByNode, Released]{
	About: About{
		Topic: nodes, Verb: "remove", Method: "DELETE", Command: "nodes remove NODE", Wakes: true,
		Does: "Remove a dead node, so that others take over its work at once",
		More: "Its leases are given back, without waiting for their deadlines; the result has their number. " +
			"The node need not be registered. Nothing breaks if it is alive after all: it registers again, the " +
			"events of its leases are handled a second time, and its late answers are refused.",
		Example: "posthorn nodes remove api-1-4711-9f3c2a1b",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByNode) (Released, error) {
		n, err := a.RemoveNode(ctx, in.ID)
		return Released{n, n}, err
	},
	Done: func(in *ByNode, out Released) string {
		return fmt.Sprintf("removed node %s, gave back %s", in.ID, Counted(out.Count, "lease"))
	},
}

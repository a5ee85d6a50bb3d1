package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newNodes(a *app) *cobra.Command {
	return holding(about{
		use:   "nodes",
		short: "See the running processes, and remove dead ones",
		long: `A node is a running process that has registered and sends heartbeats. One that
is silent for 90 seconds is stale, and forgotten after 10 minutes.`,
	}, nodesList.of(a), nodesRemove.of(a))
}

var nodesList = listing[admin.NodeStatus]{
	about: about{
		use:   "list",
		short: "List nodes, what they work on and what they can handle",
		long: `List the nodes of the namespace.

LEASES is how many batches of events a node works on, and HANDLERS what it can
handle, as group/handler. With --json the patterns of each are printed, and what
else the node has said of itself.`,
		example: `  posthorn nodes list
  posthorn nodes list --namespace shop --json`,
	},
	list: (*admin.Admin).Nodes,
	columns: columns[admin.NodeStatus]{"node|name|state|last heartbeat|leases|handlers", func(n admin.NodeStatus) []any {
		return []any{n.ID, n.DisplayName, n.State, n.LastHeartbeat, n.Leases, handlerNames(n.Handlers)}
	}},
}

func handlerNames(handlers []admin.NodeHandler) string {
	names := make([]string, len(handlers))
	for i, h := range handlers {
		names[i] = h.Group + "/" + h.Name
	}
	return strings.Join(names, ", ")
}

var nodesRemove = doing{
	about: about{
		use:   "remove NODE",
		short: "Remove a dead node, so that others take over its work at once",
		long: `Remove a node that is known to be dead: its leases are given back, and others
take over without waiting for their deadlines. It need not have registered.

Nothing breaks when the node lives after all. It registers again, what it was
working on is handled a second time, and its late answers are refused.`,
		example: "  posthorn nodes remove api-1-4711-9f3c2a1b",
	},
	json: true,
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		released, err := adm.RemoveNode(ctx, args[0])
		return outcome{fmt.Sprintf("removed node %s, gave back %d leases", args[0], released), map[string]int64{"released_leases": released}}, err
	},
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newNodes(a *app) *cobra.Command {
	return parent(about{
		use:   "nodes",
		short: "Show nodes, the running processes, and remove dead ones",
		long: `A node is a running process that has registered and sends a heartbeat every 30
seconds. Without one it is silent after 45 seconds, stale after 90 seconds, and
removed after 10 minutes.`,
	}, nodesList.build(a), nodesRemove.build(a))
}

var nodesList = listCommand[admin.NodeStatus]{
	about: about{
		use:   "list",
		short: "List nodes with their leases and handlers",
		long: `List the nodes of the namespace.

LEASES is the number of batches of events that a node works on, and HANDLERS are
its handlers, as group/handler. STATE is alive, silent while a heartbeat is
overdue, or stale: a process that was killed is silent after 45 seconds. --json
also has the patterns of each handler, and the description and metadata of the
node.`,
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

var nodesRemove = changeCommand{
	about: about{
		use:   "remove NODE",
		short: "Remove a dead node, so that others take over its work at once",
		long: `Remove a node that is known to be dead: its leases are given back, and other nodes
take over its work without waiting for the deadlines. It need not have registered.

Nothing breaks if the node is alive after all. It registers again, the events of
its leases are handled a second time, and its late answers are refused.`,
		example: "  posthorn nodes remove api-1-4711-9f3c2a1b",
	},
	json: true,
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		released, err := adm.RemoveNode(ctx, args[0])
		return result{fmt.Sprintf("removed node %s, gave back %d leases", args[0], released), map[string]int64{"released_leases": released}}, err
	},
}

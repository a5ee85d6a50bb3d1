package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newNodes(a *app) *cobra.Command {
	return parent(about{
		use:   "nodes",
		short: "Show nodes, the running processes, and who runs what",
		long: `A node is a running process that has registered and sends a heartbeat every 30
seconds. Without one it is silent after 45 seconds, stale after 90 seconds, and
removed after 10 minutes.`,
	},
		list(a, op.ListNodes, nodesHelp, nodeColumns),
		change(a, op.RemoveNode),
		newNodesBusy(a),
	)
}

func newNodesBusy(a *app) *cobra.Command {
	in := &op.ListBusyWorkersInput{}
	cmd := listCommand[admin.BusyWorker]{
		about: aboutOf(op.ListBusyWorkers, busyHelp), columns: busyColumns,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.BusyWorker, error) {
			return op.ListBusyWorkers.Call(ctx, adm, in)
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

const nodesHelp = `LEASES is the number of batches of events that a node works on, and HANDLERS are
its handlers, as group/handler. --json also has the patterns of each handler, and
the description and metadata of the node.`

var nodeColumns = columns[admin.NodeStatus]{"node|name|state|last heartbeat|leases|handlers", func(n admin.NodeStatus) []any {
	return []any{n.ID, n.DisplayName, n.State, n.LastHeartbeat, n.Leases, handlerNames(n.Handlers)}
}}

func handlerNames(handlers []admin.NodeHandler) string {
	names := make([]string, len(handlers))
	for i, h := range handlers {
		names[i] = h.Group + "/" + h.Name
	}
	return strings.Join(names, ", ")
}

const busyHelp = `NAME is the title of a job, or the group of a lease. FOR is the time since the
worker took it, and UNTIL is when others may take it. WHY compares a job with what
is usual, or says since when its worker is silent.`

var busyColumns = columns[admin.BusyWorker]{"worker|for|kind|id|name|trouble|why|tags|attempt|until", func(b admin.BusyWorker) []any {
	trouble := ""
	switch {
	case b.Stalled:
		trouble = "stalled"
	case b.Slow:
		trouble = "slow"
	}
	return []any{b.Worker, roughSeconds(b.Seconds), b.Kind, b.ID, b.Name, trouble, b.Why, strings.Join(b.Tags, ","), b.Attempt, b.Until}
}}

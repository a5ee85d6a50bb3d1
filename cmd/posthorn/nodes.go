package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newNodes(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "See the running processes, and remove dead ones",
		Long: `A node is a running process that has registered and sends heartbeats. One that
is silent for 90 seconds is stale, and forgotten after 10 minutes.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(newNodesList(a), newNodesRemove(a))
	return cmd
}

func newNodesList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List nodes, what they work on and what they can handle",
		Long: `List the nodes of the namespace.

LEASES is how many batches of events a node works on, and HANDLERS what it can
handle, as group/handler. With --json the patterns of each are printed, and what
else the node has said of itself.`,
		Example: `  posthorn nodes list
  posthorn nodes list --namespace shop --json`,
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			nodes, err := adm.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.NodeStatus{}, nodes...))
			}
			t := newTable(cmd.OutOrStdout(), "node", "name", "state", "last heartbeat", "leases", "handlers")
			for _, n := range nodes {
				t.row(n.ID, n.DisplayName, n.State, n.LastHeartbeat, n.Leases, handlerNames(n.Handlers))
			}
			return t.flush()
		})
	}
	return cmd
}

func handlerNames(handlers []admin.NodeHandler) string {
	names := make([]string, len(handlers))
	for i, h := range handlers {
		names[i] = h.Group + "/" + h.Name
	}
	return strings.Join(names, ", ")
}

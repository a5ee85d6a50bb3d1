package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newNodesRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a dead node, so that others take over its work at once",
		Long: `Remove a node that is known to be dead: its leases are given back, and others
take over without waiting for their deadlines. It need not have registered.

Nothing breaks when the node lives after all. It registers again, what it was
working on is handled a second time, and its late answers are refused.`,
		Example: "  posthorn nodes remove api-1-4711-9f3c2a1b",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			released, err := adm.RemoveNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"released_leases": released})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed node %s, gave back %d leases\n", args[0], released)
			return err
		})
	}
	return cmd
}

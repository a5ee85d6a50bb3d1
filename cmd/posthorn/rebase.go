package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const rebaseLong = `Make a log usable that was restored into another cluster.

The positions of groups are snapshots of the cluster in which they were made, and
mean nothing in another one: claims are refused there until rebase has run once.
Each group keeps the events that it had not been handed. Nobody can publish or
claim while rebase runs; with a large backlog that may take minutes.`

func newRebase(a *app) *cobra.Command {
	cmd := about{
		"rebase", "Make a log usable that was restored into another cluster", rebaseLong,
		"  pg_restore --dbname \"$DATABASE_URL\" shop.dump && posthorn rebase --yes",
	}.command()
	yes := yesFlag(cmd)
	force := cmd.Flags().Bool("force", false, "also in the cluster that the log belongs to")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := confirm(cmd, *yes, "rebase the log of this database"); err != nil {
				return err
			}
			groups, err := adm.Rebase(cmd.Context(), *force)
			if err != nil {
				return err
			}
			return rebasedColumns.printOrJSON(cmd.OutOrStdout(), groups, *asJSON)
		})
	}
	return cmd
}

var rebasedColumns = columns[admin.RebasedGroup]{"namespace|group|events owed", func(g admin.RebasedGroup) []any {
	return []any{g.Namespace, g.Group, g.Events}
}}

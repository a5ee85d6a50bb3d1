package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const rebaseLong = `Make a log usable that was restored into another cluster.

Positions of groups are snapshots of the cluster they were made in, and mean
nothing in another one; so claims refuse to work there until this was run, once.
Each group keeps what it had not been handed. While it runs nobody publishes or
claims; with a large backlog that may take minutes.`

func newRebase(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rebase",
		Short:   "Make a log usable that was restored into another cluster",
		Long:    rebaseLong,
		Example: "  pg_restore --dbname \"$DATABASE_URL\" shop.dump && posthorn rebase --yes",
		Args:    cobra.NoArgs,
	}
	yes := yesFlag(cmd)
	force := cmd.Flags().Bool("force", false, "also in the cluster that the log belongs to")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		return a.withAdmin(ctx, func(adm *admin.Admin) error {
			if err := confirm(cmd, *yes, "rebase the log of this database"); err != nil {
				return err
			}
			groups, err := adm.Rebase(ctx, *force)
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

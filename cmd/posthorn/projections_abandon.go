package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newProjectionsAbandon(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abandon NAME",
		Short: "Give up the replacement of a projection",
		Long: `Give up what a program has begun to build in the place of a projection. The
projection stays as it is. The tables that were built stay behind; until this,
the log is kept for them.`,
		Example: "  posthorn projections abandon totals --yes",
		Args:    cobra.ExactArgs(1),
	}
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return a.withAdmin(ctx, func(adm *admin.Admin) error {
			if err := confirm(cmd, *yes, "give up the replacement of projection "+args[0]); err != nil {
				return err
			}
			if err := adm.AbandonReplacement(ctx, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "the replacement of projection %s is given up\n", args[0])
			return err
		})
	}
	return cmd
}

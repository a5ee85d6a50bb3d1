package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newDeadLettersPurge(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete dead letters for good",
		Example: `  posthorn dead-letters purge --id 7
  posthorn dead-letters purge --group billing --yes`,
		Args: cobra.NoArgs,
	}
	var f deadLetterFlags
	f.add(cmd)
	all := cmd.Flags().Bool("all", false, "all dead letters of the namespace")
	yes := yesFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.chosen(*all); err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := f.confirm(cmd, adm, *yes, "delete %d dead letters for good"); err != nil {
				return err
			}
			n, err := adm.Purge(cmd.Context(), f.filter)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"purged": n})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "purged %d dead letters\n", n)
			return err
		})
	}
	return cmd
}

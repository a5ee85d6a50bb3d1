package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newDeadLettersRedrive(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Let groups try dead letters again",
		Long: `Bring dead letters back: their groups are handed them again at once, and they
have all their attempts again.`,
		Example: `  posthorn dead-letters redrive --id 7 --id 9
  posthorn dead-letters redrive --group billing --type order.placed
  posthorn dead-letters redrive --all --yes`,
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
			if err := f.confirm(cmd, adm, *yes || !*all, "redrive %d dead letters"); err != nil {
				return err
			}
			n, err := adm.Redrive(cmd.Context(), f.filter)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"redriven": n})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "redrove %d dead letters\n", n)
			return err
		})
	}
	return cmd
}

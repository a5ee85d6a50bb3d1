package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroupsDelete(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a group with its position, retries and dead letters",
		Long: `Delete a group with all it holds: its position in the log, leases, retries and
dead letters. Events stay in the log, for other groups.`,
		Example: "  posthorn groups delete billing --yes",
		Args:    cobra.ExactArgs(1),
	}
	yes := yesFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return a.withAdmin(ctx, func(adm *admin.Admin) error {
			s, err := adm.Group(ctx, args[0])
			if err != nil {
				return err
			}
			question := fmt.Sprintf("delete group %s with %d retries and %d dead letters", s.Group, s.Retries, s.DeadLetters)
			if err := confirm(cmd, *yes, question); err != nil {
				return err
			}
			d, err := adm.DeleteGroup(ctx, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), d)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted group %s with %d leases, %d retries and %d dead letters\n",
				args[0], d.Leases, d.Retries, d.DeadLetters)
			return err
		})
	}
	return cmd
}

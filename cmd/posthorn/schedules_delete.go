package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedulesDelete(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a schedule",
		Long:    "Delete a schedule. The events that it has published stay in the log.",
		Example: "  posthorn schedules delete invoices --yes",
		Args:    cobra.ExactArgs(1),
	}
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return a.withAdmin(ctx, func(adm *admin.Admin) error {
			s, err := adm.Schedule(ctx, args[0])
			if err != nil {
				return err
			}
			if err := confirm(cmd, *yes, fmt.Sprintf("delete schedule %s (%s, %s)", s.Name, s.Cron, s.Type)); err != nil {
				return err
			}
			if _, err := adm.Unschedule(ctx, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted schedule %s\n", args[0])
			return err
		})
	}
	return cmd
}

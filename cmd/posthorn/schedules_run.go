package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedulesRun(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Publish the event of a schedule now, and print its id",
		Long: `Publish the event of a schedule now, also while it is paused, and print the id of
the event. The times of the schedule stay as they are.`,
		Example: "  posthorn schedules run invoices",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			id, err := adm.RunScheduleNow(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"id": id})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		})
	}
	return cmd
}

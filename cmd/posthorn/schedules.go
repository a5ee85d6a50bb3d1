package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedules(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "Publish events at their times",
		Long: `A schedule publishes an event at the times of a cron expression. posthorn up
fires what is due, or pg_cron does: see posthorn migrate --with-pg-cron.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(
		newSchedulesList(a),
		newSchedulesShow(a),
		newSchedulesAdd(a),
		newSchedulesPause(a),
		newSchedulesResume(a),
		newSchedulesRun(a),
		newSchedulesDelete(a),
	)
	return cmd
}

func newSchedulesList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List schedules and their next times",
		Example: "  posthorn schedules list --namespace shop --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			schedules, err := adm.Schedules(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.ScheduleStatus{}, schedules...))
			}
			t := newTable(cmd.OutOrStdout(), "schedule", "state", "cron", "time zone", "type", "next", "last")
			for _, s := range schedules {
				t.row(s.Name, s.State, s.Cron, s.TimeZone, s.Type, s.NextRunAt, s.LastRunAt)
			}
			return t.flush()
		})
	}
	return cmd
}

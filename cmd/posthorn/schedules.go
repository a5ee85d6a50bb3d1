package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedules(a *app) *cobra.Command {
	return holding(about{
		use:   "schedules",
		short: "Publish events at given times",
		long: `A schedule publishes an event at the times of a cron expression. posthorn up
fires schedules that are due, and so does pg_cron: see posthorn migrate
--with-pg-cron.`,
	},
		schedulesList.of(a),
		schedulesShow.of(a),
		newSchedulesAdd(a),
		schedulesPause.of(a),
		schedulesResume.of(a),
		schedulesRun.of(a),
		schedulesDelete.of(a),
	)
}

var schedulesList = listing[admin.ScheduleStatus]{
	about: about{
		use:     "list",
		short:   "List schedules and their next times",
		example: "  posthorn schedules list --namespace shop --json",
	},
	list: (*admin.Admin).Schedules,
	columns: columns[admin.ScheduleStatus]{"schedule|state|cron|time zone|type|next|last", func(s admin.ScheduleStatus) []any {
		return []any{s.Name, s.State, s.Cron, s.TimeZone, s.Type, s.NextRunAt, s.LastRunAt}
	}},
}

var schedulesPause = doing{
	about: about{
		use:     "pause NAME",
		short:   "Stop a schedule until it is resumed",
		example: "  posthorn schedules pause invoices",
	},
	do: done("schedule %s is paused", (*admin.Admin).PauseSchedule),
}

var schedulesResume = doing{
	about: about{
		use:   "resume NAME",
		short: "Resume a paused schedule with its next time",
		long: `Resume a paused schedule with its next time. The times that it missed meanwhile
are skipped.`,
		example: "  posthorn schedules resume invoices",
	},
	do: done("schedule %s is resumed", (*admin.Admin).ResumeSchedule),
}

var schedulesRun = doing{
	about: about{
		use:   "run NAME",
		short: "Publish the event of a schedule now, and print its id",
		long: `Publish the event of a schedule now, also while it is paused, and print the id of
the event. The times of the schedule stay as they are.`,
		example: "  posthorn schedules run invoices",
	},
	json: true,
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		id, err := adm.RunScheduleNow(ctx, args[0])
		return idOutcome(id), err
	},
}

var schedulesDelete = doing{
	about: about{
		use:     "delete NAME",
		short:   "Delete a schedule",
		long:    "Delete a schedule. The events that it has published stay in the log.",
		example: "  posthorn schedules delete invoices --yes",
	},
	ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
		s, err := adm.Schedule(ctx, args[0])
		return fmt.Sprintf("delete schedule %s (%s, %s)", s.Name, s.Cron, s.Type), err
	},
	do: done("deleted schedule %s", func(adm *admin.Admin, ctx context.Context, name string) error {
		_, err := adm.Unschedule(ctx, name)
		return err
	}),
}

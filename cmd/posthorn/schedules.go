package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedules(a *app) *cobra.Command {
	return parent(about{
		use:   "schedules",
		short: "Publish events at given times",
		long: `A schedule publishes an event at the times of a cron expression. posthorn up
fires schedules that are due, and so does pg_cron: see posthorn migrate
--with-pg-cron.`,
	},
		schedulesList.build(a),
		schedulesShow.build(a),
		newSchedulesAdd(a),
		schedulesPause.build(a),
		schedulesResume.build(a),
		schedulesRun.build(a),
		schedulesDelete.build(a),
	)
}

var schedulesList = listCommand[admin.ScheduleStatus]{
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

var schedulesPause = changeCommand{
	about: about{
		use:     "pause NAME",
		short:   "Stop a schedule until it is resumed",
		example: "  posthorn schedules pause invoices",
	},
	do: withSentence("schedule %s is paused", (*admin.Admin).PauseSchedule),
}

var schedulesResume = changeCommand{
	about: about{
		use:   "resume NAME",
		short: "Resume a paused schedule with its next time",
		long: `Resume a paused schedule with its next time. The times that it missed meanwhile
are skipped.`,
		example: "  posthorn schedules resume invoices",
	},
	do: withSentence("schedule %s is resumed", (*admin.Admin).ResumeSchedule),
}

var schedulesRun = changeCommand{
	about: about{
		use:   "run NAME",
		short: "Publish the event of a schedule now, and print its id",
		long: `Publish the event of a schedule now, also while it is paused, and print the id of
the event. The times of the schedule stay as they are.`,
		example: "  posthorn schedules run invoices",
	},
	json: true,
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		id, err := adm.RunScheduleNow(ctx, args[0])
		return idResult(id), err
	},
}

var schedulesDelete = changeCommand{
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
	do: withSentence("deleted schedule %s", func(adm *admin.Admin, ctx context.Context, name string) error {
		_, err := adm.Unschedule(ctx, name)
		return err
	}),
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newSchedules(a *app) *cobra.Command {
	return parent(about{
		use:   "schedules",
		short: "Publish events at given times",
		long: `A schedule publishes an event at the times of a cron expression. posthorn up
fires schedules that are due, and so does pg_cron: see posthorn migrate
--with-pg-cron.`,
	},
		list(a, op.ListSchedules, "", scheduleColumns),
		show(a, op.GetSchedule, scheduleFields, nil),
		newSchedulesAdd(a),
		change(a, op.PauseSchedule),
		change(a, op.ResumeSchedule),
		change(a, op.RunSchedule),
		change(a, op.DeleteSchedule),
	)
}

var scheduleColumns = columns[admin.ScheduleStatus]{"schedule|state|cron|time zone|type|next|last", func(s admin.ScheduleStatus) []any {
	return []any{s.Name, s.State, s.Cron, s.TimeZone, s.Type, s.NextRunAt, s.LastRunAt}
}}

func scheduleFields(field fields, d op.ScheduleDetails) {
	field("schedule", d.Name)
	field("namespace", d.Namespace)
	field("task", d.TaskID)
	field("state", d.State)
	field("cron", d.Cron)
	field("time zone", d.TimeZone)
	field("catch up", d.CatchUp)
	field("fired by", d.FiredBy)
	field("last run", d.LastRunAt)
	for _, t := range d.NextRuns {
		field("next run", t)
	}
	field("last error", d.LastError)
	field("stream", d.Stream)
	field("type", d.Type)
	field("key", d.Key)
	field("payload", string(d.Payload))
	field("metadata", string(d.Metadata))
	field("created", d.CreatedAt)
	field("updated", d.UpdatedAt)
}

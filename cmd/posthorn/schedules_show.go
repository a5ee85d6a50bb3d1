package main

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// scheduleDetails is a schedule as posthorn schedules show prints it.
type scheduleDetails struct {
	admin.ScheduleStatus
	NextRuns []time.Time `json:"next_runs"`
}

var schedulesShow = showCommand[scheduleDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one schedule, its event and its next times",
		example: "  posthorn schedules show invoices",
	},
	load:   describeSchedule,
	fields: scheduleFields,
}

func describeSchedule(ctx context.Context, adm *admin.Admin, name string) (scheduleDetails, error) {
	status, err := adm.Schedule(ctx, name)
	d := scheduleDetails{ScheduleStatus: status, NextRuns: []time.Time{}}
	if err != nil || status.NextRunAt.IsZero() {
		return d, err
	}
	const shown = 5
	further, err := adm.NextRuns(ctx, status.Cron, status.TimeZone, status.NextRunAt, shown-1)
	d.NextRuns = append([]time.Time{status.NextRunAt}, further...)
	return d, err
}

func scheduleFields(field fields, d scheduleDetails) {
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

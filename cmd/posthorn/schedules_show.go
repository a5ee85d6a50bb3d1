package main

import (
	"context"
	"io"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// scheduleDetails is what is printed about one schedule.
type scheduleDetails struct {
	admin.ScheduleStatus
	NextRuns []time.Time `json:"next_runs"`
}

var schedulesShow = showing[scheduleDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one schedule, its event and its next times",
		example: "  posthorn schedules show invoices",
	},
	load:  describeSchedule,
	print: printSchedule,
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

func printSchedule(w io.Writer, d scheduleDetails) error {
	f := newFields(w)
	f.field("schedule", d.Name)
	f.field("namespace", d.Namespace)
	f.field("task", d.TaskID)
	f.field("state", d.State)
	f.field("cron", d.Cron)
	f.field("time zone", d.TimeZone)
	f.field("catch up", d.CatchUp)
	f.field("fired by", d.FiredBy)
	f.field("last run", d.LastRunAt)
	for _, t := range d.NextRuns {
		f.field("next run", t)
	}
	f.field("last error", d.LastError)
	f.field("stream", d.Stream)
	f.field("type", d.Type)
	f.field("key", d.Key)
	f.field("payload", string(d.Payload))
	f.field("metadata", string(d.Metadata))
	f.field("created", d.CreatedAt)
	f.field("updated", d.UpdatedAt)
	return f.flush()
}

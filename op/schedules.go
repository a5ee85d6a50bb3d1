package op

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
)

var schedules = Topic{"schedules", "schedule", "invoices"}

var ListSchedules = listAll(About{
	Topic:   schedules,
	Does:    "List schedules and their next times",
	More:    "Each has its cron expression, its event, and its next time.",
	Example: "posthorn schedules list --namespace shop --json",
}, (*admin.Admin).Schedules)

// ScheduleDetails is a schedule with its next times.
type ScheduleDetails struct {
	admin.ScheduleStatus
	NextRuns []time.Time `json:"next_runs"`
}

var GetSchedule = getNamed(About{
	Topic: schedules,
	Does:  "Show one schedule, its event and its next times",
	More:  "The result has its cron expression, its event, its last time and its next five times.",
}, getSchedule)

func getSchedule(a *admin.Admin, ctx context.Context, name string) (ScheduleDetails, error) {
	status, err := a.Schedule(ctx, name)
	d := ScheduleDetails{ScheduleStatus: status, NextRuns: []time.Time{}}
	if err != nil || status.NextRunAt.IsZero() {
		return d, err
	}
	const shown = 5
	further, err := a.NextRuns(ctx, status.Cron, status.TimeZone, status.NextRunAt, shown-1)
	d.NextRuns = append([]time.Time{status.NextRunAt}, further...)
	return d, err
}

// PutScheduleInput is a whole schedule.
type PutScheduleInput struct {
	ByName
	Body struct {
		Cron     string                     `json:"cron_expression" doc:"Five fields, or @daily, @every 90s, @at 2026-12-01T08:00:00Z" example:"0 7 * * *"`
		Type     string                     `json:"event_type,omitempty" doc:"The type of the event; required without job" example:"report.due"`
		Payload  json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
		TimeZone string                     `json:"timezone,omitempty" doc:"Default: UTC" example:"Europe/Berlin"`
		CatchUp  string                     `json:"catch_up,omitempty" enum:"skip,once,all" doc:"How often the event is published for times that were missed. Default: once"`
		Stream   string                     `json:"stream,omitempty" doc:"Default: default"`
		Key      string                     `json:"key,omitempty" doc:"The key of the event"`
		Metadata map[string]json.RawMessage `json:"metadata,omitempty" doc:"A JSON object that is stored beside the payload"`
		Job      json.RawMessage            `json:"job,omitempty" doc:"Enqueued instead of an event: an object with title, payload, tags, priority, max_retries, retry_delays, unique_key, unique_for, fair_key, weight, description and metadata"`
		Active   *bool                      `json:"active,omitempty" page:"-" doc:"false pauses the schedule. Default: unchanged; a new schedule is active"`
	}
}

var PutSchedule = Op[PutScheduleInput, admin.ScheduleStatus]{
	About: About{
		Topic: schedules, Verb: "put", Go: "DefineSchedule", SQL: "schedule", Command: "schedules add NAME CRON TYPE [PAYLOAD]",
		Does:    "Make a schedule, or change it",
		More:    "The input is the whole schedule: a field that it leaves out has its default, but a paused schedule stays paused.",
		Example: "posthorn schedules add nightly '0 2 * * *' report.due",
		ByHand:  map[Face]string{Page: "its form says when the schedule is due, and has the fields of a job", Command: "PAYLOAD may come from the standard input, and flags make a job"},
	},
	Call: putSchedule,
	Load: loadSchedule,
	Done: func(in *PutScheduleInput, out admin.ScheduleStatus) string {
		return fmt.Sprintf("schedule %s is %s", in.Name, out.State)
	},
}

func loadSchedule(ctx context.Context, a *admin.Admin, in *PutScheduleInput) error {
	s, err := a.Schedule(ctx, in.Name)
	if err != nil {
		return err
	}
	b := &in.Body
	b.Cron, b.TimeZone, b.CatchUp, b.Job = s.Cron, s.TimeZone, s.CatchUp, s.Job
	if len(s.Job) > 0 { // it publishes no event of its own
		return nil
	}
	b.Type, b.Payload, b.Stream, b.Key = s.Type, s.Payload, s.Stream, s.Key
	if len(s.Metadata) > 0 {
		err = json.Unmarshal(s.Metadata, &b.Metadata)
	}
	return err
}

func putSchedule(ctx context.Context, a *admin.Admin, in *PutScheduleInput) (status admin.ScheduleStatus, err error) {
	b := in.Body
	schedule := admin.Schedule{
		Name: in.Name, Cron: b.Cron, Type: b.Type, Payload: b.Payload, TimeZone: b.TimeZone, CatchUp: b.CatchUp,
		Stream: b.Stream, Key: b.Key, Active: b.Active, Job: b.Job,
	}
	if b.Metadata != nil {
		if schedule.Metadata, err = json.Marshal(b.Metadata); err != nil {
			return status, err
		}
	}
	if _, err := a.DefineSchedule(ctx, schedule); err != nil {
		return status, err
	}
	return a.Schedule(ctx, in.Name)
}

var DeleteSchedule = asking(onNamed(About{
	Topic: schedules, Verb: "delete", Go: "Unschedule", SQL: "unschedule",
	Does:    "Delete a schedule",
	More:    "The events that it has published stay in the log.",
	Example: "posthorn schedules delete invoices --yes",
}, deleteSchedule, "deleted schedule %s"), func(ctx context.Context, a *admin.Admin, in *ByName) (string, error) {
	s, err := a.Schedule(ctx, in.Name)
	return fmt.Sprintf("delete schedule %s (%s, %s)", s.Name, s.Cron, s.Type), err
})

func deleteSchedule(a *admin.Admin, ctx context.Context, name string) error {
	existed, err := a.Unschedule(ctx, name)
	if err == nil && !existed {
		_, err = a.Schedule(ctx, name) // with the error for one that does not exist
	}
	return err
}

var PauseSchedule = onNamed(About{
	Topic: schedules, Verb: "pause",
	Does: "Stop a schedule until it is resumed",
	More: "A second call changes nothing.",
}, (*admin.Admin).PauseSchedule, "schedule %s is paused")

var ResumeSchedule = onNamed(About{
	Topic: schedules, Verb: "resume",
	Does: "Resume a paused schedule with its next time",
	More: "The times that it missed meanwhile are skipped. A second call changes nothing.",
}, (*admin.Admin).ResumeSchedule, "schedule %s is resumed")

var RunSchedule = Op[ByName, EventID]{
	About: About{
		Topic: schedules, Verb: "run", Go: "RunScheduleNow", SQL: "run_schedule_now",
		Does: "Publish the event of a schedule now, and return its id",
		More: "Also while it is paused. The times of the schedule stay as they are.",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (EventID, error) {
		id, err := a.RunScheduleNow(ctx, in.Name)
		return EventID{id}, err
	},
	Done: func(in *ByName, _ EventID) string { return "schedule " + in.Name + " has published its event" },
}

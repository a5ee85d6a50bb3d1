package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Schedule publishes an event at certain times. Name, Cron and Type are required. Programs
// define their schedules with posthorn.Client.Schedule.
type Schedule struct {
	Name     string
	Cron     string          // five fields, or @daily, "@every 90s", "@at 2026-12-01T08:00:00Z" and the like
	Type     string          // of the event
	Payload  json.RawMessage // Default: {}
	TimeZone string          // Default: UTC
	CatchUp  string          // skip, once or all: how often it publishes for times that were missed. Default: once
	Stream   string          // Default: default
	Key      string
	Metadata json.RawMessage // Default: {}
	Active   *bool           // Default: as it is; a new schedule is active

	// Job is enqueued instead of an event; its fields are those of the SQL function
	// enqueue_many. Type, Payload, Stream, Key and Metadata are not used then.
	Job json.RawMessage
}

// DefineSchedule makes a schedule, or changes the one of that name, and returns its
// id. Defining the same schedule again does not change its next time.
func (a *Admin) DefineSchedule(ctx context.Context, s Schedule) (id string, err error) {
	made := aSchedule(s.Name).made()
	if len(s.Job) > 0 {
		return changed[string](ctx, a, made, entry{"put-schedule", s.Name, map[string]string{"cron": s.Cron}},
			"select posthorn.schedule_job($1::text, $2::text, $3::text, $4::jsonb, $5::text, $6::text, $7::boolean)::text",
			a.namespace, s.Name, s.Cron, string(s.Job), cmp.Or(s.TimeZone, "UTC"), cmp.Or(s.CatchUp, "once"), s.Active)
	}
	if err := a.CheckPublish(cmp.Or(s.Stream, "default")); err != nil {
		return "", err
	}
	if len(s.Payload) == 0 {
		s.Payload = json.RawMessage("{}")
	}
	return changed[string](ctx, a, made, entry{"put-schedule", s.Name, map[string]string{"cron": s.Cron, "type": s.Type}}, `
		select posthorn.schedule($1::text, $2::text, $3::text, $4::text, $5::json, $6::text, $7::text, $8::text, $9::text,
			$10::json, $11::boolean)::text`,
		a.namespace, s.Name, s.Cron, s.Type, s.Payload, cmp.Or(s.TimeZone, "UTC"), cmp.Or(s.CatchUp, "once"),
		cmp.Or(s.Stream, "default"), pg.Optional(s.Key), pg.Document(s.Metadata), s.Active)
}

// Unschedule deletes a schedule, and reports whether it existed. The events that it has
// published stay.
func (a *Admin) Unschedule(ctx context.Context, name string) (bool, error) {
	return changed[bool](ctx, a, aSchedule(name), entry{"delete-schedule", name, nil}, "select posthorn.unschedule($1::text, $2::text)", a.namespace, name)
}

// PauseSchedule stops a schedule from publishing until [Admin.ResumeSchedule].
func (a *Admin) PauseSchedule(ctx context.Context, name string) error {
	return a.change(ctx, aSchedule(name), entry{"pause-schedule", name, nil}, "select posthorn.pause_schedule($1::text, $2::text)", a.namespace, name)
}

// ResumeSchedule lets a paused schedule go on with its next time. It does not publish for
// the times that it missed.
func (a *Admin) ResumeSchedule(ctx context.Context, name string) error {
	return a.change(ctx, aSchedule(name), entry{"resume-schedule", name, nil}, "select posthorn.resume_schedule($1::text, $2::text)", a.namespace, name)
}

// RunScheduleNow publishes the event of a schedule, even of a paused one, and returns the
// event's id. The times of the schedule stay as they are.
func (a *Admin) RunScheduleNow(ctx context.Context, name string) (int64, error) {
	var event int64
	_, err := a.recorded(ctx, aSchedule(name), entry{"run-schedule", name, nil}, func(db DB) (n int64, err error) {
		event, err = pg.Value[int64](ctx, db, "run schedule", "select posthorn.run_schedule_now($1::text, $2::text)", a.namespace, name)
		return 1, err
	})
	return event, err
}

// NextRuns returns when a cron expression is due, in order, after a time, or from now
// on if that is zero.
func (a *Admin) NextRuns(ctx context.Context, cron, timeZone string, after time.Time, howMany int) ([]time.Time, error) {
	return pg.Value[[]time.Time](ctx, a.db, "next runs",
		"select array(select posthorn.next_runs($1::text, $2::text, $3::timestamptz, $4::int))", cron, timeZone, pg.Optional(after), howMany)
}

// ScheduleStatus is a schedule and its state.
type ScheduleStatus struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	State     string          `json:"state"`           // active, failing, paused, or completed when its one time has passed
	Cron      string          `json:"cron_expression"` // @every and @at for steps and single times
	TimeZone  string          `json:"timezone"`
	Type      string          `json:"event_type"`           // or the title of the job
	NextRunAt time.Time       `json:"next_run_at,omitzero"` // zero: never
	LastRunAt time.Time       `json:"last_run_at,omitzero"` // zero: not yet
	CatchUp   string          `json:"catch_up"`
	Stream    string          `json:"stream"`
	Key       string          `json:"key,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	Metadata  json.RawMessage `json:"metadata"`
	Job       json.RawMessage `json:"job,omitempty"` // none: it publishes an event
	Failures  int             `json:"failures"`      // in a row
	LastError string          `json:"last_error,omitempty"`
	FiredBy   string          `json:"fired_by"` // tend or pg_cron
	TaskID    string          `json:"task_id"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

var schedules = kind[ScheduleStatus]{"schedule", `
	select namespace, name, state, cron_expression, timezone, event_type, next_run_at, last_run_at, catch_up, stream, key,
		payload, metadata, failures, last_error, fired_by, task_id::text, created_at, updated_at, job
	from posthorn.schedules
	where namespace = $1::text and name = coalesce($2::text, name) and ` + seen("schedule", "schedules.name", "$3") + `
	order by name`, "See: posthorn schedules list"}

// Schedules returns the schedules of the namespace, by name.
func (a *Admin) Schedules(ctx context.Context) ([]ScheduleStatus, error) {
	return schedules.all(ctx, a)
}

// Schedule returns one schedule.
func (a *Admin) Schedule(ctx context.Context, name string) (ScheduleStatus, error) {
	return schedules.named(ctx, a, name)
}

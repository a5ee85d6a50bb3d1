package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Schedule is what publishes an event at its times. Name, Cron and Type are
// required.
type Schedule struct {
	Name     string
	Cron     string          // five fields, or @daily, "@every 90s", "@at 2026-12-01T08:00:00Z" and the like
	Type     string          // of the event
	Payload  json.RawMessage // default {}
	TimeZone string          // default UTC
	CatchUp  string          // what happens to times that were missed: skip, once (default) or all
	Stream   string          // default "default"
	Key      string          // none if empty
	Metadata json.RawMessage // default {}
	Active   *bool           // default: as it is; a new one is active
}

// DefineSchedule makes a schedule, or changes the one of that name, and returns
// its id. Said again it changes nothing, and the next time stays.
func DefineSchedule(ctx context.Context, db DB, namespace string, s Schedule) (string, error) {
	payload := s.Payload
	if len(payload) == 0 {
		payload = empty
	}
	return one[string](ctx, db, "schedule", `
		select posthorn.schedule($1::text, $2::text, $3::text, $4::text, $5::json, $6::text, $7::text, $8::text, $9::text,
			$10::json, $11::boolean)::text`,
		namespace, s.Name, s.Cron, s.Type, payload, cmp.Or(s.TimeZone, "UTC"), cmp.Or(s.CatchUp, "once"),
		cmp.Or(s.Stream, "default"), optional(s.Key), object(s.Metadata), s.Active)
}

// Unschedule deletes a schedule, and reports whether there was one.
func Unschedule(ctx context.Context, db DB, namespace, name string) (bool, error) {
	return one[bool](ctx, db, "unschedule", "select posthorn.unschedule($1::text, $2::text)", namespace, name)
}

// PauseSchedule lets a schedule publish nothing, until ResumeSchedule.
func PauseSchedule(ctx context.Context, db DB, namespace, name string) error {
	return run(ctx, db, "pause schedule", "select posthorn.pause_schedule($1::text, $2::text)", namespace, name)
}

// ResumeSchedule lets a paused schedule go on with its next time. What it missed
// is not made up for.
func ResumeSchedule(ctx context.Context, db DB, namespace, name string) error {
	return run(ctx, db, "resume schedule", "select posthorn.resume_schedule($1::text, $2::text)", namespace, name)
}

// RunScheduleNow publishes the event of a schedule now, and returns its id. The
// times of the schedule stay as they are.
func RunScheduleNow(ctx context.Context, db DB, namespace, name string) (int64, error) {
	return one[int64](ctx, db, "run schedule", "select posthorn.run_schedule_now($1::text, $2::text)", namespace, name)
}

// RunScheduledTask does what pg_cron does, by the id of an active schedule, and
// returns the event's id: 0 when there is no such schedule, or it is paused.
func RunScheduledTask(ctx context.Context, db DB, task string) (int64, error) {
	id, err := one[*int64](ctx, db, "run scheduled task", "select posthorn.run_scheduled_task($1::text::uuid)", task)
	if id == nil {
		return 0, err
	}
	return *id, err
}

// FireSchedules publishes the events of schedules that are due, some of them if
// there are many, and returns how many that were. Tend does it too.
func FireSchedules(ctx context.Context, db DB) (int64, error) {
	return one[int64](ctx, db, "fire schedules", "select posthorn.fire_schedules()")
}

// NextRuns tells when a cron expression is due, in order, after a time or, if
// that is nil, from now on.
func NextRuns(ctx context.Context, db DB, cron, timeZone string, after *time.Time, howMany int) ([]time.Time, error) {
	return list(ctx, db, "next runs", pgx.RowTo[time.Time],
		"select posthorn.next_runs($1::text, $2::text, $3::timestamptz, $4::int)", cron, timeZone, after, howMany)
}

// ScheduleStatus is a schedule as it stands.
type ScheduleStatus struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	State     string          `json:"state"` // active, failing, paused or completed
	Cron      string          `json:"cron_expression"`
	TimeZone  string          `json:"timezone"`
	Type      string          `json:"event_type"`
	NextRunAt *time.Time      `json:"next_run_at"`
	LastRunAt *time.Time      `json:"last_run_at"`
	CatchUp   string          `json:"catch_up"`
	Stream    string          `json:"stream"`
	Key       string          `json:"key,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	Metadata  json.RawMessage `json:"metadata"`
	Failures  int             `json:"failures"` // in a row
	LastError string          `json:"last_error,omitempty"`
	FiredBy   string          `json:"fired_by"` // tend or pg_cron
	TaskID    string          `json:"task_id"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

const selectSchedules = `
	select namespace, name, state, cron_expression, timezone, event_type, next_run_at, last_run_at, catch_up,
		stream, coalesce(key, ''), payload, metadata, failures, coalesce(last_error, ''), fired_by,
		task_id::text, created_at, updated_at
	from posthorn.schedules
	where namespace = $1::text and name = coalesce($2::text, name)
	order by name`

// ListSchedules returns the schedules of a namespace, by name.
func ListSchedules(ctx context.Context, db DB, namespace string) ([]ScheduleStatus, error) {
	return list(ctx, db, "list schedules", pgx.RowToStructByPos[ScheduleStatus], selectSchedules, namespace, nil)
}

// StatusOfSchedule returns one schedule.
func StatusOfSchedule(ctx context.Context, db DB, namespace, name string) (ScheduleStatus, error) {
	found, err := list(ctx, db, "show schedule", pgx.RowToStructByPos[ScheduleStatus], selectSchedules, namespace, name)
	if err != nil {
		return ScheduleStatus{}, err
	}
	if len(found) == 0 {
		return ScheduleStatus{}, fmt.Errorf("show schedule: %w", NoSchedule(namespace, name))
	}
	return found[0], nil
}

// NoSchedule is what the functions raise when a schedule does not exist.
func NoSchedule(namespace, name string) error {
	return &Error{
		Message:  fmt.Sprintf("schedule '%s' does not exist in namespace %s", name, namespace),
		sentinel: ErrNotFound,
		hint:     "See: posthorn schedules list",
	}
}

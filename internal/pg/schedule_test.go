package pg_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn/internal/pg"
)

func TestSchedules(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		full := pg.Schedule{
			Name: "full", Cron: "30 8 * * mon-fri", Type: "report.due", Payload: json.RawMessage(`{"a": 1}`), TimeZone: "Europe/Berlin",
			CatchUp: "all", Stream: "reports", Key: "k", Metadata: json.RawMessage(`{"b": 2}`), Active: new(bool),
		}
		id := must(pg.DefineSchedule(t.Context(), pool, ns, full))(t)
		must(pg.DefineSchedule(t.Context(), pool, ns, pg.Schedule{Name: "bare", Cron: "@daily", Type: "e"}))(t)
		got := must(pg.ListSchedules(t.Context(), pool, ns))(t)
		want := []pg.ScheduleStatus{
			{
				Namespace: ns, Name: "bare", State: "active", Cron: "@daily", TimeZone: "UTC", Type: "e", CatchUp: "once", Stream: "default",
				Payload: json.RawMessage("{}"), Metadata: json.RawMessage("{}"), FiredBy: "tend",
			},
			{
				Namespace: ns, Name: "full", State: "paused", Cron: "30 8 * * mon-fri", TimeZone: "Europe/Berlin", Type: "report.due", CatchUp: "all",
				Stream: "reports", Key: "k", Payload: json.RawMessage(`{"a": 1}`), Metadata: json.RawMessage(`{"b": 2}`), FiredBy: "tend",
			},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(pg.ScheduleStatus{}, "TaskID", "NextRunAt", "CreatedAt", "UpdatedAt")); diff != "" {
			t.Errorf("schedules (-want +got):\n%s", diff)
		}
		if got[0].NextRunAt == nil || got[1].NextRunAt != nil || got[1].TaskID != id {
			t.Errorf("schedules %+v", got)
		}
		if one := must(pg.StatusOfSchedule(t.Context(), pool, ns, "full"))(t); one.TaskID != id {
			t.Errorf("schedule %+v", one)
		}
		if _, err := pg.StatusOfSchedule(t.Context(), pool, ns, "none"); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := pg.DefineSchedule(t.Context(), pool, ns, pg.Schedule{Name: "bad", Cron: "61 * * * *", Type: "e"}); !errors.Is(err, pg.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

func TestScheduleRuns(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		task := must(pg.DefineSchedule(t.Context(), pool, ns, pg.Schedule{Name: "s", Cron: "@every 1h", Type: "e"}))(t)
		if id := must(pg.RunScheduleNow(t.Context(), pool, ns, "s"))(t); id == 0 {
			t.Error("run now: nothing published")
		}
		if id := must(pg.RunScheduledTask(t.Context(), pool, task))(t); id == 0 {
			t.Error("run task: nothing published")
		}
		if n := must(pg.FireSchedules(t.Context(), pool))(t); n != 0 {
			t.Errorf("fired %d, want none to be due", n)
		}
		must(pool.Exec(t.Context(), "update posthorn.scheduled_tasks set next_run_at = posthorn.now()"))(t)
		if tended := must(pg.Tend(t.Context(), pool))(t); tended.Done["fire_schedules"] != 1 {
			t.Errorf("tended %+v", tended)
		}
		check(t, pg.PauseSchedule(t.Context(), pool, ns, "s"))
		if id := must(pg.RunScheduledTask(t.Context(), pool, task))(t); id != 0 {
			t.Error("a paused task has run")
		}
		check(t, pg.ResumeSchedule(t.Context(), pool, ns, "s"))
		if !must(pg.Unschedule(t.Context(), pool, ns, "s"))(t) || must(pg.Unschedule(t.Context(), pool, ns, "s"))(t) {
			t.Error("unscheduled not exactly once")
		}
	})
}

func TestNextRuns(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		after := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
		got := must(pg.NextRuns(t.Context(), pool, "30 2 * * *", "Europe/Berlin", &after, 2))(t)
		want := []time.Time{time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 26, 1, 30, 0, 0, time.UTC)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("next runs (-want +got):\n%s", diff)
		}
		if from := must(pg.NextRuns(t.Context(), pool, "@yearly", "UTC", nil, 1))(t); len(from) != 1 || time.Until(from[0]) > 366*24*time.Hour {
			t.Errorf("from now on: %v", from)
		}
	})
}

// The shared server has no pg_cron to use; with one, see package guarantee.
func TestUsePgCronWhereThereIsNone(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		if _, err := pg.UsePgCron(t.Context(), pool); !errors.Is(err, pg.ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

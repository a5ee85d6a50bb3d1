package pg_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

func TestSchedules(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		full := admin.Schedule{
			Name: "full", Cron: "30 8 * * mon-fri", Type: "report.due", Payload: json.RawMessage(`{"a": 1}`), TimeZone: "Europe/Berlin",
			CatchUp: "all", Stream: "reports", Key: "k", Metadata: json.RawMessage(`{"b": 2}`), Active: new(bool),
		}
		id := must(admin.New(pool, ns).DefineSchedule(t.Context(), full))(t)
		must(admin.New(pool, ns).DefineSchedule(t.Context(), admin.Schedule{Name: "bare", Cron: "@daily", Type: "e"}))(t)
		got := must(admin.New(pool, ns).Schedules(t.Context()))(t)
		want := []admin.ScheduleStatus{
			{
				Namespace: ns, Name: "bare", State: "active", Cron: "@daily", TimeZone: "UTC", Type: "e", CatchUp: "once", Stream: "default",
				Payload: json.RawMessage("{}"), Metadata: json.RawMessage("{}"), FiredBy: "tend",
			},
			{
				Namespace: ns, Name: "full", State: "paused", Cron: "30 8 * * mon-fri", TimeZone: "Europe/Berlin", Type: "report.due", CatchUp: "all",
				Stream: "reports", Key: "k", Payload: json.RawMessage(`{"a": 1}`), Metadata: json.RawMessage(`{"b": 2}`), FiredBy: "tend",
			},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.ScheduleStatus{}, "TaskID", "NextRunAt", "CreatedAt", "UpdatedAt")); diff != "" {
			t.Errorf("schedules (-want +got):\n%s", diff)
		}
		if got[0].NextRunAt.IsZero() || !got[1].NextRunAt.IsZero() || got[1].TaskID != id {
			t.Errorf("schedules %+v", got)
		}
		if one := must(admin.New(pool, ns).Schedule(t.Context(), "full"))(t); one.TaskID != id {
			t.Errorf("schedule %+v", one)
		}
		if _, err := admin.New(pool, ns).Schedule(t.Context(), "none"); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := admin.New(pool, ns).DefineSchedule(t.Context(), admin.Schedule{Name: "bad", Cron: "61 * * * *", Type: "e"}); !errors.Is(err, pg.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

func TestScheduleRuns(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		task := must(admin.New(pool, ns).DefineSchedule(t.Context(), admin.Schedule{Name: "s", Cron: "@every 1h", Type: "e"}))(t)
		if id := must(admin.New(pool, ns).RunScheduleNow(t.Context(), "s"))(t); id == 0 {
			t.Error("run now: nothing published")
		}
		if id := must(pg.Value[*int64](t.Context(), pool, "run", "select posthorn.run_scheduled_task($1::text::uuid)", task))(t); id == nil {
			t.Error("run task: nothing published")
		}
		if n := must(pg.Value[int64](t.Context(), pool, "fire", "select posthorn.fire_schedules()"))(t); n != 0 {
			t.Errorf("fired %d, want none to be due", n)
		}
		must(pool.Exec(t.Context(), "update posthorn.scheduled_tasks set next_run_at = posthorn.now()"))(t)
		if n := must(pg.Value[int](t.Context(), pool, "tend", "select (posthorn.tend()->>'fire_schedules')::int"))(t); n != 1 {
			t.Errorf("upkeep fired %d, want 1", n)
		}
		check(t, admin.New(pool, ns).PauseSchedule(t.Context(), "s"))
		if id := must(pg.Value[*int64](t.Context(), pool, "run", "select posthorn.run_scheduled_task($1::text::uuid)", task))(t); id != nil {
			t.Error("a paused task has run")
		}
		check(t, admin.New(pool, ns).ResumeSchedule(t.Context(), "s"))
		if !must(admin.New(pool, ns).Unschedule(t.Context(), "s"))(t) || must(admin.New(pool, ns).Unschedule(t.Context(), "s"))(t) {
			t.Error("unscheduled not exactly once")
		}
	})
}

func TestNextRuns(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		after := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
		got := must(admin.New(pool, "").NextRuns(t.Context(), "30 2 * * *", "Europe/Berlin", after, 2))(t)
		want := []time.Time{time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 26, 1, 30, 0, 0, time.UTC)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("next runs (-want +got):\n%s", diff)
		}
		if from := must(admin.New(pool, "").NextRuns(t.Context(), "@yearly", "UTC", time.Time{}, 1))(t); len(from) != 1 || time.Until(from[0]) > 366*24*time.Hour {
			t.Errorf("from now on: %v", from)
		}
	})
}

// The shared server has no pg_cron to use; with one, see package guarantee.
func TestUsePgCronWhereThereIsNone(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		if _, err := admin.New(pool, ns).UsePgCron(t.Context(), nil); !errors.Is(err, pg.ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

package posthorn_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func openForSchedules(t *testing.T) *posthorn.Client {
	t.Helper()
	client, err := posthorn.Open(t.Context(), posthorn.Config{
		DatabaseURL: posthorntest.Database(t),
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// A schedule that is due while nodes run is handled once.
//
// seed 000.16, seed 000.58–64
func TestScheduleIsHandled(t *testing.T) {
	t.Parallel()
	client := openForSchedules(t)
	ctx := t.Context()
	id, err := client.Schedule(ctx, client.Pool(), posthorn.Schedule{
		Name: "soon", Cron: "@yearly", Type: "soon.due", Payload: map[string]int{"n": 1}, Metadata: map[string]any{"a": "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan posthorn.Event, 10)
	client.Group("g", posthorn.GroupConfig{Start: posthorn.Beginning}).Handle("h", "soon.due", func(_ context.Context, e posthorn.Event) error {
		handled <- e
		return nil
	})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- client.Run(running) }()
	if _, err := client.Pool().Exec(ctx, "update posthorn.scheduled_tasks set next_run_at = '2026-01-01Z'"); err != nil {
		t.Fatal(err)
	}
	e := await.Value(t, "the event of the schedule", handled)
	var metadata map[string]string
	if err := json.Unmarshal(e.Metadata, &metadata); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "b", "producer": "scheduler", "scheduledTaskId": id, "scheduledFor": "2026-01-01T00:00:00Z"}
	if diff := cmp.Diff(want, metadata); diff != "" || string(e.Payload) != `{"n": 1}` {
		t.Errorf("payload %s, metadata (-want +got):\n%s", e.Payload, diff)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(handled) != 0 {
		t.Error("handled twice")
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	client := openForSchedules(t)
	ctx, db := t.Context(), client.Pool()
	at := time.Date(2999, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, s := range []posthorn.Schedule{
		{Name: "at", At: at, Type: "e", CatchUp: posthorn.CatchUpAll, Stream: "s", Key: "k"},
		{Name: "cron", Cron: "0 8 * * *", TimeZone: "Europe/Berlin", Type: "e", Metadata: map[string]any{"a": 1}},
		{Name: "every", Every: 90 * time.Minute, Type: "e", Payload: []int{1}},
	} {
		if _, err := client.Schedule(ctx, db, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Admin().PauseSchedule(ctx, "cron"); err != nil {
		t.Fatal(err)
	}
	got, err := client.Admin().Schedules(ctx)
	if err != nil {
		t.Fatal(err)
	}
	none := json.RawMessage("{}")
	want := []admin.ScheduleStatus{
		{
			Name: "at", State: "active", Cron: "@at 2999-01-02T03:04:05Z", TimeZone: "UTC", CatchUp: "all",
			Type: "e", Payload: none, Stream: "s", Key: "k", Metadata: none,
		},
		{
			Name: "cron", State: "paused", Cron: "0 8 * * *", TimeZone: "Europe/Berlin", CatchUp: "once",
			Type: "e", Payload: none, Stream: "default", Metadata: json.RawMessage(`{"a":1}`),
		},
		{
			Name: "every", State: "active", Cron: "@every 1h30m0s", TimeZone: "UTC", CatchUp: "once",
			Type: "e", Payload: json.RawMessage("[1]"), Stream: "default", Metadata: none,
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.ScheduleStatus{}, "TaskID", "Namespace", "FiredBy", "NextRunAt", "CreatedAt", "UpdatedAt")); diff != "" {
		t.Errorf("schedules (-want +got):\n%s", diff)
	}
	if !got[0].NextRunAt.Equal(at) || !got[1].NextRunAt.IsZero() {
		t.Errorf("next runs %v and %v", got[0].NextRunAt, got[1].NextRunAt)
	}
	if err := client.Admin().ResumeSchedule(ctx, "cron"); err != nil {
		t.Error(err)
	}
	if id, err := client.Admin().In(db).RunScheduleNow(ctx, "cron"); err != nil || id == 0 {
		t.Errorf("run now: %d, %v", id, err)
	}
	for _, want := range []bool{true, false} {
		if was, err := client.Unschedule(ctx, db, "cron"); err != nil || was != want {
			t.Errorf("unschedule: %v, %v, want %v", was, err, want)
		}
	}
	if err := client.Admin().PauseSchedule(ctx, "cron"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("pause what is gone: %v", err)
	}
}

func TestScheduleRefusesNonsense(t *testing.T) {
	t.Parallel()
	client := openForSchedules(t)
	for what, s := range map[string]posthorn.Schedule{
		"no time":    {Name: "s", Type: "e"},
		"two times":  {Name: "s", Type: "e", Cron: "@daily", Every: time.Hour},
		"fraction":   {Name: "s", Type: "e", Every: time.Millisecond},
		"negative":   {Name: "s", Type: "e", Every: -time.Hour},
		"past":       {Name: "s", Type: "e", At: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
		"expression": {Name: "s", Type: "e", Cron: "61 * * * *"},
		"zone":       {Name: "s", Type: "e", Cron: "@daily", TimeZone: "Local"},
		"catch up":   {Name: "s", Type: "e", Cron: "@daily", CatchUp: "never"},
		"payload":    {Name: "s", Type: "e", Cron: "@daily", Payload: func() {}},
		"no name":    {Type: "e", Cron: "@daily"},
	} {
		if _, err := client.Schedule(t.Context(), client.Pool(), s); !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q)", what, err, posthorn.Hint(err))
		}
	}
}

// A schedule enqueues the job of a program, with all its fields.
func TestScheduledJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := openForSchedules(t)
	before, err := client.Enqueue(ctx, client.Pool(), posthorn.NewJob{Title: "collect"})
	if err != nil {
		t.Fatal(err)
	}
	job := posthorn.NewJob{
		Title: "report", Description: "daily", Tags: []string{"mail"}, Payload: map[string]int{"n": 1}, Priority: 2,
		MaxRetries: posthorn.NoRetries, RetryDelays: []time.Duration{time.Second}, UniqueKey: "k", Metadata: map[string]any{"a": "b"},
		FairKey: "tenant-7", Weight: 2, After: before,
	}
	s := posthorn.Schedule{Name: "report", Every: time.Hour, Job: &job}
	if _, err := client.Schedule(ctx, client.Pool(), s); err != nil {
		t.Fatal(err)
	}
	id, err := client.Admin().RunScheduleNow(ctx, "report")
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Admin().Job(ctx, id)
	if err != nil || got.Title != "report" || got.Description != "daily" || got.Priority != 2 || got.MaxRetries != 0 ||
		got.UniqueKey != "k" || got.FairKey != "tenant-7" || got.Weight != 2 || !slices.Equal(got.WaitsFor, before) || len(got.RetryDelays) != 1 || string(got.Payload) != `{"n": 1}` {
		t.Fatalf("%+v, %v", got, err)
	}
	s.Type = "both"
	if _, err := client.Schedule(ctx, client.Pool(), s); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("a job and an event: %v", err)
	}
	s.Type, job.RunAt = "", time.Now()
	if _, err := client.Schedule(ctx, client.Pool(), s); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("a job with a time: %v", err)
	}
}

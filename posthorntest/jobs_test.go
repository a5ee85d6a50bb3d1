package posthorntest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// Drain waits for jobs, including jobs that other jobs enqueue, and not for jobs of
// other tags or jobs that are due later.
func TestDrainWaitsForJobs(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	ph.Work([]string{"first"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{Title: "second"})
		return err
	})
	ph.Work(nil, posthorn.WorkConfig{}, func(_ context.Context, job posthorn.Job) error {
		if job.Attempt == 1 {
			return errors.New("later")
		}
		return nil
	})
	posthorntest.Run(t, ph)
	_, err := ph.Enqueue(t.Context(), ph.Pool(),
		posthorn.NewJob{Title: "first", Tags: []string{"first"}}, posthorn.NewJob{Title: "others'", Tags: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	count := func(status string) int64 {
		n, err := ph.Admin().CountJobs(t.Context(), admin.JobFilter{Status: status})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	posthorntest.Drain(t, ph)
	if done, pending := count(admin.JobCompleted), count(admin.JobPending); done != 1 || pending != 2 {
		t.Errorf("%d done, %d pending", done, pending)
	}
	posthorntest.Advance(t, ph, 6*time.Minute)
	posthorntest.Drain(t, ph)
	if done := count(admin.JobCompleted); done != 2 {
		t.Errorf("%d done after the retry", done)
	}
}

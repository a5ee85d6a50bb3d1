package work_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

const fanURL = "POSTHORN_TEST_FAN_URL"

// A job comes after ten thousand others. One of the processes that work on them is killed with -9 in the middle. The
// job is handled once, and behind all others.
func TestJobAfterTenThousandOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 10_000
	w.Exec("create table public.handled (job bigint, title text, at bigint generated always as identity)")
	fan := make([]posthorn.NewJob, n)
	for i := range fan {
		fan[i] = posthorn.NewJob{Title: "part", Tags: []string{"fan"}}
	}
	ids := w.enqueue(fan...)
	last := w.enqueue(posthorn.NewJob{Title: "last", Tags: []string{"fan"}, Priority: 7, After: ids})[0]
	child := testchild.Start(t, "TestFanProcess", fanURL+"="+w.URL)
	_ = child.End() // its state is looked at
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the process was not killed: %v", child.ProcessState)
	}
	w.Exec("update posthorn.running_jobs set lease_until = posthorn.now()")
	if done := testworld.Ask[int](w, "select count(*) from posthorn.finished_jobs"); done == 0 || done > n-100 {
		t.Fatalf("the process has completed %d jobs", done)
	}
	w.workOnFan(0)
	w.Start()
	await.True(t, "all jobs have ended", func() bool {
		return testworld.Ask[int](w, "select count(*) from posthorn.finished_jobs") == n+1
	})
	if n := testworld.Ask[int](w, "select count(*) from public.handled where job = $1", last); n != 1 {
		t.Errorf("the last job was handled %d times", n)
	}
	if n := testworld.Ask[int](w, "select count(*) from public.handled where at > (select min(at) from public.handled where job = $1)", last); n != 0 {
		t.Errorf("%d jobs were handled behind the last one", n)
	}
	if n := testworld.Ask[int](w, "select count(distinct job) from public.handled"); n != len(ids)+1 {
		t.Errorf("%d jobs were handled", n)
	}
}

// TestFanProcess is the process that is killed.
func TestFanProcess(t *testing.T) {
	url := os.Getenv(fanURL)
	if url == "" {
		t.Skip("run by others")
	}
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.DiscardHandler)})}
	w.workOnFan(20)
	t.Fatal(w.Run(t.Context()))
}

// workOnFan notes jobs in batches. The process kills itself in the batch with the given number.
func (w *world) workOnFan(last int) {
	batches := 0
	w.WorkBatch([]string{"fan"}, posthorn.WorkConfig{Concurrency: 1, BatchSize: 100, LeaseFor: time.Hour}, func(ctx context.Context, jobs []posthorn.Job) error {
		batches++
		var ids []int64
		var titles []string
		for _, job := range jobs {
			ids, titles = append(ids, job.ID), append(titles, job.Title)
		}
		if _, err := w.Pool().Exec(ctx, "insert into public.handled (job, title) select * from unnest($1::bigint[], $2::text[])", ids, titles); err != nil {
			return err
		}
		if batches == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if strings.Contains(strings.Join(titles, " "), "last") && len(jobs) > 1 {
			w.T.Error("the last job came with others")
		}
		return nil
	})
}

package work_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Four processes with mixed tags work, and are killed with -9 in the middle of
// it, again and again: every job ends exactly once, and its log tells a story that
// can have happened.
func TestJobsSurviveTheirProcesses(t *testing.T) {
	t.Parallel()
	const processes = 4
	stuck := await.Kills(10) // each gets a process killed
	jobs := 30 * stuck
	w := newWorld(t)
	tags := [][]string{{"a"}, {"b"}, {"a", "b"}, {"rare"}, nil}
	news := make([]posthorn.NewJob, jobs)
	for i := range news {
		title := "a"
		if i%(jobs/stuck) == 0 {
			title = "stuck"
		}
		news[i] = posthorn.NewJob{
			Title: title, Tags: tags[min(rand.IntN(30), 34)%len(tags)], Priority: rand.IntN(3),
			MaxRetries: 4, RetryDelays: []time.Duration{0},
		}
	}
	ids := w.enqueue(news...)
	running := make([]*testchild.Child, processes)
	for i := range running {
		running[i] = w.spawnWorker(i)
	}
	killed := 0
	var dead []string
	for worker := w.awaitStuck(dead); worker != ""; worker = w.awaitStuck(dead) {
		i := slices.IndexFunc(running, func(c *testchild.Child) bool { return c.Leads(worker) })
		if i >= 0 { // else it was stuck in two jobs, and is gone
			killed++
			running[i].Kill()
			running[i] = w.spawnWorker(i)
		}
		dead = append(dead, worker)
	}
	for _, c := range running {
		c.Kill()
	}
	expired := 0
	for _, id := range ids {
		log, err := w.Admin().JobLog(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		job := w.status(id, log[len(log)-1].Action)
		if wrong := tellStory(job, log); wrong != "" {
			t.Errorf("job %d (%s): %s: %s", id, job.Status, wrong, w.story(id))
		}
		expired += strings.Count(w.story(id), "EXPIRED")
	}
	if n := testworld.Ask[int](w, "select count(*) from posthorn.finished_jobs"); n != jobs {
		t.Errorf("%d jobs have ended, of %d", n, jobs)
	}
	if killed == 0 || expired < killed {
		t.Errorf("%d leases have expired, and %d processes were killed in the middle of work", expired, killed)
	}
}

// awaitStuck waits until a process is in the middle of a job that it does not end,
// and returns its worker: none when all jobs have ended. Leases are long, so that nothing
// but a death ends them. Those of the dead end here, again and again: the server may
// commit the last claim of a process after its death.
func (w *world) awaitStuck(dead []string) (worker string) {
	w.T.Helper()
	await.True(w.T, "a worker is stuck, or all jobs have ended", func() bool {
		w.Exec("update posthorn.running_jobs set lease_until = posthorn.now() where worker = any ($1) and lease_until > posthorn.now()", dead)
		worker = testworld.Ask[string](w, `select coalesce(min(worker), '') from posthorn.running_jobs where progress::text = '"stuck"'
			and lease_until > posthorn.now()`)
		return worker != "" || testworld.Ask[int](w, "select count(*) from posthorn.jobs where finished_at is null") == 0
	})
	return worker
}

// tellStory says what is impossible about a log, if anything is.
func tellStory(job admin.JobStatus, log []admin.JobEntry) string {
	held, attempt, ends := "", 0, 0
	for _, e := range log {
		switch {
		case ends > 0:
			return "it goes on after the end"
		case e.Action == "PICKED" && (held != "" || e.Attempt != attempt+1):
			return "it was picked out of turn"
		case e.Action == "PICKED":
			held, attempt = e.Worker, e.Attempt
			continue
		case e.Action == "FAILED" && held == "" && strings.HasPrefix(e.ErrorMessage, "its worker went silent"):
			ends++ // after as many times as make it hopeless
			continue
		case held == "" || e.Worker != held || e.Attempt != attempt:
			return e.Action + " by somebody who did not have it"
		case e.Action == "STARTED":
			continue
		case e.Action == "COMPLETED" || e.Action == "FAILED" && e.NextRetryAt.IsZero():
			ends++
		}
		held = ""
	}
	if ends != 1 || log[len(log)-1].Action != job.Status {
		return "it does not end as it says"
	}
	return ""
}

const jobURL, jobWorker = "POSTHORN_TEST_JOB_URL", "POSTHORN_TEST_JOB_WORKER"

// spawnWorker starts a process that works, and returns when it has begun.
func (w *world) spawnWorker(i int) *testchild.Child {
	w.T.Helper()
	c := testchild.Start(w.T, "TestWorkerProcess", jobURL+"="+w.URL, fmt.Sprintf("%s=%d", jobWorker, i))
	c.Prints("working")
	return c
}

// TestWorkerProcess is what the process runs that others kill. Some jobs fail.
func TestWorkerProcess(t *testing.T) {
	url := os.Getenv(jobURL)
	if url == "" {
		t.Skip("run by others")
	}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, job posthorn.Job) error {
		if job.Title == "stuck" && job.Attempt == 1 {
			if err := job.Progress(ctx, "stuck"); err != nil {
				return err
			}
			select {}
		}
		switch rand.IntN(20) {
		case 0:
			return errors.New("no luck")
		case 1:
			if err := job.Progress(ctx, "half"); err != nil {
				return err
			}
			return job.SetResult("done")
		}
		return nil
	}
	config := posthorn.WorkConfig{Concurrency: 1, BatchSize: 20, LeaseFor: time.Hour}
	tags := [][]string{{"a", "b"}, {"a", "rare"}, {"b"}, {"rare", "b"}}[int(os.Getenv(jobWorker)[0]-'0')%4]
	ph.Work(tags, config, handler)
	if strings.ContainsAny(os.Getenv(jobWorker), "02") {
		ph.Work(nil, config, handler)
	}
	fmt.Println("\nworking")
	t.Fatal(ph.Run(t.Context()))
}

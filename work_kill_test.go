package posthorn_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
)

// Eight processes with mixed tags work, and are killed with -9 in the middle of
// it, again and again: every job ends exactly once, and its log tells a story that
// can have happened.
func TestJobsSurviveTheirProcesses(t *testing.T) {
	t.Parallel()
	const jobs, processes, kills = 800, 8, 10
	w := newWorld(t)
	tags := [][]string{{"a"}, {"b"}, {"a", "b"}, {"rare"}, nil}
	news := make([]posthorn.NewJob, jobs)
	for i := range news {
		news[i] = posthorn.NewJob{
			Title: fmt.Sprint(i), Tags: tags[min(rand.IntN(30), 34)%len(tags)], Priority: rand.IntN(3),
			MaxRetries: 4, RetryDelays: []time.Duration{0},
		}
	}
	ids := w.enqueue(news...)
	running := make([]*exec.Cmd, processes)
	for i := range running {
		running[i] = w.spawnWorker(i)
	}
	for n := range kills {
		i := n % processes
		w.awaitInHand(running[i].Process.Pid)
		if err := running[i].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = running[i].Wait() // it was killed
		running[i] = w.spawnWorker(i)
	}
	w.awaitNoOpenJobs()
	for _, cmd := range running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	expired := 0
	for _, id := range ids {
		log, err := w.JobLog(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		job := w.status(id, log[len(log)-1].Action)
		if wrong := tellStory(job, log); wrong != "" {
			t.Errorf("job %d (%s): %s: %s", id, job.Status, wrong, w.story(id))
		}
		expired += strings.Count(w.story(id), "EXPIRED")
	}
	if n := ask[int](w, "select count(*) from posthorn.finished_jobs"); n != jobs {
		t.Errorf("%d jobs have ended, of %d", n, jobs)
	}
	if expired == 0 {
		t.Error("nobody was killed in the middle of work")
	}
}

// awaitInHand waits until a process has a job, or there are none.
func (w *world) awaitInHand(pid int) {
	w.t.Helper()
	deadline := time.Now().Add(2 * patience)
	for !ask[bool](w, `select exists (select from posthorn.running_jobs where worker like '%-' || $1 || '-%')
		or not exists (select from posthorn.open_jobs)`, fmt.Sprint(pid)) {
		if time.Now().After(deadline) {
			w.t.Fatalf("process %d takes nothing", pid)
		}
	}
}

func (w *world) awaitNoOpenJobs() {
	w.t.Helper()
	deadline := time.Now().Add(4 * patience)
	for ask[int](w, "select count(*) from posthorn.open_jobs") > 0 {
		if time.Now().After(deadline) {
			w.t.Fatal(ask[string](w, "select string_agg(id || ' ' || status, ', ') from posthorn.jobs where status in ('PENDING', 'PROCESSING')"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tellStory says what is impossible about a log, if anything is.
func tellStory(job posthorn.JobStatus, log []posthorn.JobEntry) string {
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
		case e.Action == "COMPLETED" || e.Action == "FAILED" && e.NextRetryAt == nil:
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
func (w *world) spawnWorker(i int) *exec.Cmd {
	w.t.Helper()
	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), program, "-test.run=^TestWorkerProcess$", "-test.v")
	cmd.Env = append(os.Environ(), jobURL+"="+w.url, fmt.Sprintf("%s=%d", jobWorker, i))
	output, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	var said []string
	for lines.Scan() {
		if lines.Text() == "working" {
			go func() { // what else it says must not fill the pipe
				for lines.Scan() {
				}
			}()
			return cmd
		}
		said = append(said, lines.Text())
	}
	w.t.Fatalf("the process never came so far:\n%s", strings.Join(said, "\n"))
	return nil
}

// TestWorkerProcess is what the process runs that others kill. Some jobs fail,
// some take long, most are short.
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
		switch rand.IntN(20) {
		case 0:
			return errors.New("no luck")
		case 1:
			if err := job.Progress(ctx, "half"); err != nil {
				return err
			}
			return job.SetResult("done")
		case 2, 3, 4:
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		}
		return nil
	}
	config := posthorn.WorkConfig{Concurrency: 1, BatchSize: 20, LeaseFor: time.Second}
	tags := [][]string{{"a", "b"}, {"a", "rare"}, {"b"}, {"rare", "b"}}[int(os.Getenv(jobWorker)[0]-'0')%4]
	ph.Work(tags, config, handler)
	if strings.ContainsAny(os.Getenv(jobWorker), "02") {
		ph.Work(nil, config, handler)
	}
	fmt.Println("\nworking")
	t.Fatal(ph.Run(t.Context()))
}

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/test/testdir"
)

// jobsPart processes jobs over HTTP. Its workers are killed in the middle of a job,
// and so are the server and Postgres.
type jobsPart struct {
	*run
	api      *api
	server   *process
	workers  []*process
	observer *client
	found    *findings

	mu        sync.Mutex
	recent    []int64 // the jobs that were made last
	made      map[int64]bool
	completed map[int64]string // by job id, the worker that received a confirmation of completing the job
	after     map[int64][]int64
	charged   map[int64]string // by job id, the result of its step, as a worker was told
	settled   map[int64]string // by job id, the event for which it waited, as a worker was told
}

const workerProcesses = 5 // with ten workers each

var allTags = []string{"email", "billing", "reports", "rare"}

func newJobsFindings() *findings {
	return newFindings(lost, doubled, unfenced, stuck, misordered, overdone)
}

func (j *jobsPart) load() load {
	return load{publishers: 4, pace: 200 * time.Millisecond, short: 12, step: 6}
}

func (j *jobsPart) faults() []fault {
	workers, server := killProcess("workers", j.workers), killProcess("server", []*process{j.server})
	return []fault{workers, server, workers, j.database.crash(), workers, j.database.silence()}
}

func (j *jobsPart) start() {
	j.found = newJobsFindings()
	j.made, j.completed, j.after = map[int64]bool{}, map[int64]string{}, map[int64][]int64{}
	j.charged, j.settled = map[int64]string{}, map[int64]string{}
	address := fmt.Sprintf("127.0.0.1:%d", testdir.FreePort(j.t))
	j.api = newAPI("http://" + address)
	j.t.Cleanup(j.api.http.CloseIdleConnections)
	j.server = j.startProcess(setup{Role: "server", Server: address, Database: j.database.clients}, func(line string) { j.t.Log(line) })
	for range workerProcesses {
		j.workers = append(j.workers, j.startProcess(setup{Role: "workers", Server: j.api.base}, j.note))
	}
	j.observer = j.newClient()
	j.t.Cleanup(j.observer.forget)
}

// publisher returns a function that enqueues a job. The idempotency key makes a
// repeated request create one job.
func (j *jobsPart) publisher() func(context.Context) {
	rng := j.random()
	return func(ctx context.Context) {
		n := j.record.uids.Add(1)
		tags := allTags[n%3]
		if n%7 == 0 {
			tags += "," + allTags[3]
		}
		before := j.someMade(n)
		job := map[string]any{
			"title": "job", "tags": tags, "payload": map[string]int64{"n": n}, "max_retries": 4, "priority": rng.IntN(5), "after": before,
		}
		if n%2 == 0 {
			job["fair_key"] = fmt.Sprint("tenant ", rng.IntN(4))
		}
		status, answer := j.api.call(ctx, "POST", "/events", fmt.Sprint("job-", n), job)
		if ctx.Err() != nil {
			return
		}
		var made struct{ ID int64 }
		if status != 200 && status != 201 || json.Unmarshal(answer, &made) != nil {
			j.fail(fmt.Errorf("enqueue: %d %s", status, answer))
			return
		}
		j.mu.Lock()
		j.made[made.ID] = true
		j.after[made.ID] = before
		if j.recent = append(j.recent, made.ID); len(j.recent) > 5 {
			j.recent = j.recent[1:]
		}
		j.mu.Unlock()
		j.record.acked.Add(1)
		pause(ctx, upTo(rng, 300*time.Millisecond))
		j.settle(n, made.ID)
	}
}

// settle publishes the event for which a job may wait, also when no more jobs are enqueued.
func (j *jobsPart) settle(n, id int64) {
	status, answer := j.api.call(j.ctx, "POST", "/v1/events", fmt.Sprint("settled-", n), map[string]any{"type": "settled", "key": fmt.Sprint(id)})
	if j.ctx.Err() == nil && status != 200 && status != 201 {
		j.fail(fmt.Errorf("publish: %d %s", status, answer))
	}
}

// someMade returns jobs for which the nth job is to wait: none mostly.
func (j *jobsPart) someMade(n int64) []int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n%3 != 0 {
		return nil
	}
	return slices.Clone(j.recent[:min(len(j.recent), 1+int(n%4))])
}

// note records a line that a worker process has printed.
func (j *jobsPart) note(line string) {
	var id int64
	var worker string
	if _, err := fmt.Sscanf(line, "step %d %s", &id, &worker); err == nil {
		j.noteOnce(j.charged, "step", id, worker)
		return
	}
	if _, err := fmt.Sscanf(line, "settled %d %s", &id, &worker); err == nil {
		j.noteOnce(j.settled, "wait", id, worker)
		return
	}
	if _, err := fmt.Sscanf(line, "done %d %s", &id, &worker); err != nil {
		j.t.Error(line)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := j.completed[id]; before != "" && before != worker {
		j.found.report(doubled, "job %d was completed by %s and by %s", id, before, worker)
	}
	j.completed[id] = worker
	j.record.done.Add(1)
}

// noteOnce records the result of a step or a wait that a worker was told.
func (j *jobsPart) noteOnce(results map[int64]string, what string, id int64, result string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := results[id]; before != "" && before != result {
		j.found.report(doubled, "the %s of job %d has the results %s and %s", what, id, before, result)
	}
	results[id] = result
}

// checkStep compares the step of a job that is saved with the result that workers were told.
func (j *jobsPart) checkStep(id int64) {
	want := j.charged[id]
	if want == "" {
		return
	}
	var told struct {
		Steps []struct {
			Name   string
			Result json.RawMessage
		}
	}
	status, answer := j.api.call(j.t.Context(), "GET", fmt.Sprintf("/events/%d/steps", id), "", nil)
	if status == 200 && json.Unmarshal(answer, &told) == nil {
		for _, s := range told.Steps {
			if s.Name == step && string(s.Result) == strconv.Quote(want) {
				return
			}
		}
	}
	j.found.report(lost, "the step of job %d had the result %s, and now: %d %s", id, want, status, answer)
}

func (j *jobsPart) left() ([]string, error) {
	if !j.observer.connected(j.ctx) {
		return nil, j.ctx.Err()
	}
	ended := 0
	// A job that has failed for good keeps those behind it waiting.
	_, _ = j.observer.conn.Exec(j.ctx, `select posthorn.reset_job(x.before) from (
		select distinct a.before from posthorn.awaited_jobs a join posthorn.finished_jobs f on f.job = a.before and f.status = 'FAILED') x`) // the next look does it again
	err := j.observer.conn.QueryRow(j.ctx, "select count(*) from posthorn.finished_jobs").Scan(&ended)
	if err != nil || ended >= len(j.made) {
		return nil, err
	}
	return []string{fmt.Sprintf("%d of %d jobs have ended", ended, len(j.made))}, nil
}

func (j *jobsPart) check() (string, *findings) {
	retire(j.workers)
	if n := int(j.record.uids.Load()); n != len(j.made) {
		j.found.report(lost, "%d jobs were enqueued, and %d were made", n, len(j.made))
	}
	entries := map[string]int{}
	ends := map[string]int{}
	logs := map[int64][]entry{}
	for id := range j.made {
		status, answer := j.api.call(j.t.Context(), "GET", fmt.Sprintf("/events/%d?include_logs=true", id), "", nil)
		var told job
		if status != 200 || json.Unmarshal(answer, &told) != nil {
			j.found.report(lost, "job %d: %d %s", id, status, answer)
			continue
		}
		told.check(j.found, j.completed[id])
		j.checkStep(id)
		ends[told.Status]++
		logs[id] = told.Logs
		for _, e := range told.Logs {
			entries[strings.ToLower(e.Action)]++
		}
	}
	waited := j.checkOrder(logs)
	return fmt.Sprintf("%d jobs, %d completed, %d failed; picked %d times, expired %d, reset %d, slept %d, failed attempts %d; %d steps, %d awaited events; %d waited for others",
		len(j.made), ends["COMPLETED"], ends["FAILED"], entries["picked"], entries["expired"], entries["reset"], entries["snoozed"], entries["failed"], len(j.charged), len(j.settled), waited), j.found
}

// checkOrder compares when jobs were picked and when those before them were completed. It returns the number of jobs
// that had jobs before them.
func (j *jobsPart) checkOrder(logs map[int64][]entry) (waited int) {
	for id, before := range j.after {
		if len(before) > 0 {
			waited++
		}
		for _, b := range before {
			done := slices.IndexFunc(logs[b], func(e entry) bool { return e.Action == "COMPLETED" })
			if len(logs[id]) > 0 && (done < 0 || logs[b][done].ID > logs[id][0].ID) {
				j.found.report(misordered, "job %d has begun before job %d was completed: %+v, %+v", id, b, logs[id], logs[b])
			}
		}
	}
	return waited
}

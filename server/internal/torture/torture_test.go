package torture

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

var jobs = flag.Int("torture.jobs", 120, "how many jobs to work off")

const (
	processes    = 5 // of ten workers each
	serverDeaths = 2
	killEvery    = 250 * time.Millisecond
	patience     = 2 * time.Minute // for nothing to happen
)

var allTags = []string{"email", "billing", "reports", "rare"}

// Fifty workers in five processes that are killed all the time, and a server
// that is killed twice: every job ends exactly once, COMPLETED or FAILED, and its
// log tells a story that can have happened.
//
// seed 004.32
func TestTorture(t *testing.T) {
	w := newWorld(t)
	var enqueueing sync.WaitGroup
	for i := range 4 {
		enqueueing.Go(func() {
			for n := i; n < *jobs; n += 4 {
				w.enqueue(n)
			}
		})
	}
	w.disturb()
	enqueueing.Wait()
	for i := range w.workers {
		w.note(w.workers[i].kill())
	}
	w.check()
}

// world is what is tortured.
type world struct {
	t       *testing.T
	db      *pgx.Conn
	url     string
	server  *process
	address string
	workers []*process

	client *http.Client
	mu     sync.Mutex
	ids    map[int64]bool    // of all jobs
	done   map[string]string // by id: who was told that it has completed the job
	killed int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, url: posthorntest.Database(t), client: &http.Client{Transport: &http.Transport{}}, ids: map[int64]bool{}, done: map[string]string{}}
	var err error
	if w.db, err = pgx.Connect(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close(t.Context()) })
	w.address = "127.0.0.1:0"
	w.serve()
	for range processes {
		w.workers = append(w.workers, w.work())
	}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		w.server.kill()
		for _, p := range w.workers {
			p.kill()
		}
	})
	return w
}

// serve starts the server where it was, and returns when it listens.
func (w *world) serve() {
	w.t.Helper()
	w.server = start(w.t, role+"=serve", database+"="+w.url, address+"="+w.address)
	var listens bool
	if w.address, listens = <-w.server.lines; !listens {
		w.t.Fatal("the server did not start")
	}
}

func (w *world) work() *process {
	return start(w.t, role+"=work", address+"=http://"+w.address)
}

// enqueue makes a job, whatever it takes: the key sees to it that it is one.
func (w *world) enqueue(n int) {
	tags := allTags[n%3]
	if n%7 == 0 {
		tags += "," + allTags[3]
	}
	body := fmt.Sprintf(`{"title":"job","tags":"%s","payload":{"n":%d},"max_retries":4,"priority":%d}`, tags, n, n%5)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		request, err := http.NewRequest("POST", "http://"+w.address+"/events", bytes.NewReader([]byte(body)))
		if err != nil {
			w.t.Error(err)
			return
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", fmt.Sprint("job-", n))
		status, answer, err := w.ask(request)
		var made job
		if err != nil || status == 503 {
			continue
		}
		if status != 200 && status != 201 || json.Unmarshal(answer, &made) != nil {
			w.t.Errorf("enqueue: %d %s", status, answer)
			return
		}
		w.mu.Lock()
		w.ids[made.ID] = true
		w.mu.Unlock()
		return
	}
	w.t.Error("a job was not enqueued in time")
}

func (w *world) ask(request *http.Request) (int, []byte, error) {
	response, err := w.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// disturb kills workers until all jobs have ended, and the server on the way.
func (w *world) disturb() {
	deaths, ended := 0, 0
	for deadline := time.Now().Add(patience); ended < *jobs; time.Sleep(killEvery) {
		before := ended
		err := w.db.QueryRow(w.t.Context(), "select count(*) from posthorn.finished_jobs").Scan(&ended)
		if err != nil {
			w.t.Fatal(err)
		}
		if ended > before {
			deadline = time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d of %d jobs have ended, and no more", ended, *jobs)
		}
		if ended*(serverDeaths+1) > (deaths+1)**jobs && deaths < serverDeaths {
			deaths++
			w.server.kill()
			w.serve()
		}
		i := rand.IntN(len(w.workers))
		w.note(w.workers[i].kill())
		w.workers[i] = w.work()
		w.killed++
	}
	if deaths < serverDeaths {
		w.t.Errorf("the server was killed %d times", deaths)
	}
}

// note reads what a process of workers had printed.
func (w *world) note(lines []string) {
	for _, line := range lines {
		var id, by string
		switch {
		case strings.HasPrefix(line, "done "):
			_, _ = fmt.Sscanf(line, "done %s %s", &id, &by)
			if before := w.done[id]; before != "" && before != by {
				w.t.Errorf("job %s was completed by %s and by %s", id, before, by)
			}
			w.done[id] = by
		default:
			w.t.Error(line)
		}
	}
}

// check reads what has become of each job.
func (w *world) check() {
	if len(w.ids) != *jobs {
		w.t.Errorf("%d jobs were to be made, and %d were", *jobs, len(w.ids))
	}
	ends, entries := map[string]int{}, map[string]int{}
	for id := range w.ids {
		request, err := http.NewRequest("GET", fmt.Sprintf("http://%s/events/%d?include_logs=true", w.address, id), nil)
		if err != nil {
			w.t.Fatal(err)
		}
		status, answer, err := w.ask(request)
		var j job
		if err != nil || status != 200 || json.Unmarshal(answer, &j) != nil {
			w.t.Fatalf("job %d: %d %s %v", id, status, answer, err)
		}
		if wrong := j.impossible(); wrong != "" {
			w.t.Errorf("%s: %s", wrong, answer)
		}
		if by := w.done[fmt.Sprint(id)]; by != "" && (j.Status != "COMPLETED" || j.Logs[len(j.Logs)-1].WorkerID != by) {
			w.t.Errorf("%s was told that it had completed this: %s", by, answer)
		}
		ends[j.Status]++
		for _, e := range j.Logs {
			entries[e.Action]++
		}
	}
	w.t.Logf("%d processes killed; %v; %v", w.killed, ends, entries)
}

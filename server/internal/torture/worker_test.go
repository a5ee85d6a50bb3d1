package torture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const workersOfAProcess = 10

// beWorkers works until it is killed. It prints a line for each job that it was
// told is completed, and for each answer that should not be.
func beWorkers(base string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workersOfAProcess}}
	var all sync.WaitGroup
	for i := range workersOfAProcess {
		w := &worker{base, client, fmt.Sprintf("host:%d-%d", os.Getpid(), i)}
		all.Go(func() {
			for {
				w.once()
			}
		})
	}
	all.Wait()
}

// worker is one of them, who handles one job after the other, well or badly.
type worker struct {
	base   string
	client *http.Client
	id     string
}

type taken struct {
	ID      int64 `json:"id"`
	Attempt int   `json:"attempt"`
}

func (w *worker) once() {
	job, ok := w.take()
	if !ok {
		return
	}
	if rand.IntN(2) == 0 {
		w.report(job, "start", nil)
	}
	switch dice := rand.IntN(100); {
	case dice < 6: // it forgets the job
	case dice < 12: // it is late
		time.Sleep(1500 * time.Millisecond)
		w.complete(job)
	case dice < 18: // it takes long, and says so
		for range 3 {
			time.Sleep(400 * time.Millisecond)
			w.report(job, "heartbeat", map[string]any{"lease_seconds": 1, "progress": dice})
		}
		w.complete(job)
	case dice < 38:
		w.report(job, "fail", map[string]any{"error_message": "no", "retry_in": float64(rand.IntN(200)) / 1000, "permanent": dice == 37})
	default:
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		w.complete(job)
	}
}

func (w *worker) take() (taken, bool) {
	tags := rand.Perm(len(allTags))[:1+rand.IntN(3)]
	names := make([]string, len(tags))
	for i, n := range tags {
		names[i] = allTags[n]
	}
	status, body := w.ask("GET", "/events/subscribe?lease_seconds=1&wait=1&worker_id="+url.QueryEscape(w.id)+"&tags="+strings.Join(names, ","), nil)
	var job taken
	if status == 200 && json.Unmarshal(body, &job) == nil {
		return job, true
	}
	if status != 204 && status != 0 && status != 503 {
		fmt.Printf("wrong: subscribe: %d %s\n", status, body)
	}
	return job, false
}

func (w *worker) complete(job taken) {
	if w.report(job, "complete", map[string]any{"status_code": 200, "execution_time_ms": 1}) == 200 {
		fmt.Println("done", job.ID, w.id)
	}
	if rand.IntN(5) == 0 {
		w.report(job, "complete", nil)
	}
}

// report says something of a job until there is an answer: it may be said again
// and again.
func (w *worker) report(job taken, action string, fields map[string]any) (status int) {
	said := map[string]any{"worker_id": w.id}
	if rand.IntN(2) == 0 {
		said["attempt"] = job.Attempt
	}
	for name, value := range fields {
		said[name] = value
	}
	request, _ := json.Marshal(said) // plain values
	for {
		status, body := w.ask("POST", fmt.Sprintf("/events/%d/%s", job.ID, action), request)
		switch {
		case status == 0 || status == 503: // the server is being killed, or starts
			time.Sleep(20 * time.Millisecond)
			continue
		case status == 200 || status == 409:
		case status == 400 && action == "fail" && strings.Contains(string(body), "Max retries exceeded"):
		default:
			fmt.Printf("wrong: %s of job %d: %d %s\n", action, job.ID, status, body)
		}
		return status
	}
}

// ask is 0 when there was no answer.
func (w *worker) ask(method, path string, body []byte) (status int, answer []byte) {
	request, err := http.NewRequest(method, w.base+path, bytes.NewReader(body))
	if err != nil {
		fmt.Println("wrong:", err)
		return 0, nil
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return 0, nil
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

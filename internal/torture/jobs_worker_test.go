package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/server"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// beServer serves HTTP, does the upkeep, and may send to webhooks, until it is killed.
func beServer(ctx context.Context, s setup) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: s.Database, Logger: quiet()})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Server)
	if err != nil {
		return err
	}
	if s.Webhooks {
		sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		defer sender.Close()
		webhook.Deliver(ph.Internal(), sender)
	}
	go func() {
		if err := ph.Run(ctx); err != nil && ctx.Err() == nil {
			fmt.Println("wrong: upkeep:", err)
		}
	}()
	failures := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelError})) // a failed test shows them
	return server.New(ph, server.Options{Logger: failures}).Serve(ctx, listener, nil)
}

const workersOfAProcess = 10

// beWorkers runs workers until it is killed. It prints a line for each confirmed
// completion of a job, for each result of a step or a wait, and for each unexpected answer.
func beWorkers(ctx context.Context, s setup) error {
	api := newAPI(s.Server)
	var all sync.WaitGroup
	for i := range workersOfAProcess {
		w := &jobWorker{api, fmt.Sprintf("host:%d-%d", os.Getpid(), i), random(s.Seed, int64(i))}
		all.Go(func() {
			for {
				w.once(ctx)
			}
		})
	}
	all.Wait()
	return nil
}

// jobWorker takes one job after the other, saves a step of it, and completes, fails, delays
// or abandons it, or lets it sleep.
type jobWorker struct {
	*api
	id  string
	rng *rand.Rand
}

type takenJob struct {
	ID      int64             `json:"id"`
	Attempt int               `json:"attempt"`
	Steps   map[string]string `json:"steps"`
}

func (w *jobWorker) once(ctx context.Context) {
	job, ok := w.take(ctx)
	if !ok {
		return
	}
	if w.rng.IntN(2) == 0 {
		w.report(ctx, job, "start", nil)
	}
	w.charge(ctx, job)
	switch dice := w.rng.IntN(100); {
	case dice < 6: // abandon the job
	case dice < 12: // answer after the deadline
		pause(ctx, 1500*time.Millisecond)
		w.complete(ctx, job)
	case dice < 18: // work long, with heartbeats
		for range 3 {
			pause(ctx, 400*time.Millisecond)
			w.report(ctx, job, "heartbeat", map[string]any{"lease_seconds": 1, "progress": dice})
		}
		w.complete(ctx, job)
	case dice < 24:
		var nap struct{ Over bool }
		if status, answer := w.report(ctx, job, "sleep", map[string]any{"name": "nap", "sleep_for": "50ms"}); status == 200 && json.Unmarshal(answer, &nap) == nil && nap.Over {
			w.complete(ctx, job)
		}
	case dice < 32:
		w.settle(ctx, job)
	case dice < 46:
		w.report(ctx, job, "fail", map[string]any{"error_message": "no", "retry_in": w.rng.Float64() / 5, "permanent": dice == 45})
	default:
		pause(ctx, upTo(w.rng, 20*time.Millisecond))
		w.complete(ctx, job)
	}
}

// settle completes the job once its event has come, and lets it wait for the event until then. One comes
// for each job.
func (w *jobWorker) settle(ctx context.Context, job takenJob) {
	var came struct {
		Event      *struct{ ID int64 }
		WaitsUntil *time.Time `json:"waits_until"`
	}
	status, answer := w.report(ctx, job, "await", map[string]any{"name": "settled", "type": "settled", "key": fmt.Sprint(job.ID), "timeout": "1h"})
	switch {
	case status != 200:
	case json.Unmarshal(answer, &came) == nil && came.Event != nil:
		fmt.Println("settled", job.ID, came.Event.ID)
		w.complete(ctx, job)
	case came.WaitsUntil == nil:
		fmt.Printf("wrong: wait of job %d: %s\n", job.ID, answer)
	}
}

// charge makes a step of the job, unless an earlier attempt has saved it.
func (w *jobWorker) charge(ctx context.Context, job takenJob) {
	saved := struct{ Result string }{job.Steps[step]}
	if saved.Result == "" {
		charge := fmt.Sprintf("%s-%d", w.id, job.Attempt)
		status, answer := w.report(ctx, job, "steps", map[string]any{"name": step, "result": charge})
		if status != 200 {
			return
		} else if err := json.Unmarshal(answer, &saved); err != nil {
			fmt.Printf("wrong: step of job %d: %s\n", job.ID, answer)
		}
	}
	fmt.Println("step", job.ID, saved.Result)
}

// step is the name of the one step that jobs have, beside a sleep and a wait.
const step = "charge"

func (w *jobWorker) take(ctx context.Context) (job takenJob, ok bool) {
	var tags []string
	for _, n := range w.rng.Perm(len(allTags))[:1+w.rng.IntN(3)] {
		tags = append(tags, allTags[n])
	}
	query := "?lease_seconds=1&wait=1&worker_id=" + url.QueryEscape(w.id) + "&tags=" + strings.Join(tags, ",")
	status, body := w.call(ctx, "GET", "/events/subscribe"+query, "", nil)
	if status == 200 && json.Unmarshal(body, &job) == nil {
		return job, true
	}
	if status != 204 {
		fmt.Printf("wrong: subscribe: %d %s\n", status, body)
	}
	return job, false
}

func (w *jobWorker) complete(ctx context.Context, job takenJob) {
	if status, _ := w.report(ctx, job, "complete", map[string]any{"status_code": 200, "execution_time_ms": 1}); status == 200 {
		fmt.Println("done", job.ID, w.id)
	}
	if w.rng.IntN(5) == 0 {
		w.report(ctx, job, "complete", nil)
	}
}

// report sends a report about a job. Any report may be repeated.
func (w *jobWorker) report(ctx context.Context, job takenJob, action string, fields map[string]any) (status int, answer []byte) {
	body := map[string]any{"worker_id": w.id}
	if w.rng.IntN(2) == 0 {
		body["attempt"] = job.Attempt
	}
	for name, value := range fields {
		body[name] = value
	}
	status, answer = w.call(ctx, "POST", fmt.Sprintf("/events/%d/%s", job.ID, action), "", body)
	switch {
	case status == 200 || status == 409:
	case status == 400 && action == "fail" && strings.Contains(string(answer), "Max retries exceeded"):
	default:
		fmt.Printf("wrong: %s of job %d: %d %s\n", action, job.ID, status, answer)
	}
	return status, answer
}

// api is the HTTP interface of a server that may be killed.
type api struct {
	base string
	http *http.Client
}

func newAPI(base string) *api {
	return &api{base, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workersOfAProcess}}}
}

// call repeats a request until the server answers. status is 0 if ctx has ended.
func (a *api) call(ctx context.Context, method, path, key string, body any) (status int, answer []byte) {
	for {
		if status, answer = a.try(ctx, method, path, key, body); status != 0 && status != http.StatusServiceUnavailable {
			return status, answer
		}
		if !pause(ctx, 20*time.Millisecond) { // the server is dead, starting, or without a database
			return 0, nil
		}
	}
}

// try sends a request once. status is 0 if there was no complete answer.
func (a *api) try(ctx context.Context, method, path, key string, body any) (status int, answer []byte) {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body) // cannot fail for these fields
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(text))
	if err != nil {
		panic(err) // cannot fail for this URL
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	return a.once(request)
}

// once sends a request. status is 0 if there was no complete answer.
func (a *api) once(request *http.Request) (status int, answer []byte) {
	response, err := a.http.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

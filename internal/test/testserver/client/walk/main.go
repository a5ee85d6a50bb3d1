// Command walk does with a generated client what the seed does with curl, and
// the rest of what a program without a library needs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"client/api"
)

var ctx = context.Background()

func main() {
	client, err := api.NewClientWithResponses(os.Args[1])
	if err != nil {
		fatal("client", err)
	}
	w := walker{client}
	w.jobs()
	w.failures()
	w.events()
}

type walker struct{ *api.ClientWithResponses }

func fatal(what string, got ...any) {
	fmt.Println(append([]any{what + ":"}, got...)...)
	os.Exit(1)
}

// ok ends the program unless the answer is the one that is wanted.
func ok(what string, err error, status, want int, body []byte) {
	if err != nil || status != want {
		fatal(what, status, string(body), err)
	}
}

func is[T comparable](what string, got, want T) {
	if got != want {
		fatal(what, got, "want", want)
	}
}

// jobs is "Process A publishes, Process B consumes".
func (w walker) jobs() {
	made, err := w.EnqueueJobWithResponse(ctx, nil, api.NewJob{
		Title: "Batch Report Generation", Tags: "reporting,batch",
		Payload: map[string]any{"report_type": "sales", "month": "2025-12"},
	})
	ok("enqueue", err, made.StatusCode(), 201, made.Body)
	id := made.JSON201.Id

	taken := w.claim("reporting", "worker-03:9100", 200)
	is("taken", taken.Id, id)
	is("status", taken.Status, "PROCESSING")
	w.claim("payment", "worker-04:9101", 204)

	started, err := w.StartJobWithResponse(ctx, id, nil, api.StartBody{WorkerId: "worker-03:9100"})
	ok("start", err, started.StatusCode(), 200, started.Body)
	beat, err := w.HeartbeatJobWithResponse(ctx, id, nil, api.HeartbeatBody{WorkerId: "worker-03:9100"})
	ok("heartbeat", err, beat.StatusCode(), 200, beat.Body)
	took, status := int64(15000), int32(200)
	for range 2 { // said again, it is the same
		done, err := w.CompleteJobWithResponse(ctx, id, nil, api.CompleteBody{
			WorkerId: "worker-03:9100", ExecutionTimeMs: &took, StatusCode: &status,
		})
		ok("complete", err, done.StatusCode(), 200, done.Body)
		is("action", string(done.JSON200.Action), "COMPLETED")
	}
	w.wantLog(id, "COMPLETED", "PICKED STARTED COMPLETED")
}

// failures is a job whose attempts all fail, and that gets others.
func (w walker) failures() {
	var now api.NewJob_RetryDelays_Item
	if err := now.FromNewJobRetryDelays0("0s"); err != nil {
		fatal("delay", err)
	}
	most := int32(2)
	made, err := w.EnqueueJobWithResponse(ctx, nil, api.NewJob{
		Title: "Send Email Notification", Tags: "email,priority-high,notification", MaxRetries: &most,
		RetryDelays: &[]api.NewJob_RetryDelays_Item{now},
	})
	ok("enqueue", err, made.StatusCode(), 201, made.Body)
	id := made.JSON201.Id
	const why = "Connection timeout: mail server unreachable. Will retry."
	for attempt := range most {
		worker := fmt.Sprintf("worker-02:%d", attempt+1)
		is("taken", w.claim("email,notification", worker, 200).Id, id)
		message := why
		failed, err := w.FailJobWithResponse(ctx, id, nil, api.FailBody{WorkerId: worker, ErrorMessage: &message})
		if attempt < most-1 {
			ok("fail", err, failed.StatusCode(), 200, failed.Body)
			is("retry scheduled", failed.JSON200.RetryScheduled, true)
			continue
		}
		ok("fail for the last time", err, failed.StatusCode(), 400, failed.Body)
		is("error", failed.JSON400.Error, "Max retries exceeded")
	}
	w.wantLog(id, "FAILED", "PICKED FAILED PICKED FAILED")

	status := api.ListJobsParamsStatus("FAILED")
	listed, err := w.ListJobsWithResponse(ctx, &api.ListJobsParams{Status: &status})
	ok("list", err, listed.StatusCode(), 200, listed.Body)
	is("total", listed.JSON200.Total, 1)
	reset, err := w.ResetJobWithResponse(ctx, id, nil)
	ok("reset", err, reset.StatusCode(), 200, reset.Body)
	cancelled, err := w.CancelJobWithResponse(ctx, id, nil)
	ok("cancel", err, cancelled.StatusCode(), 200, cancelled.Body)
	unknown, err := w.GetJobWithResponse(ctx, 4711, nil)
	ok("unknown", err, unknown.StatusCode(), 404, unknown.Body)
}

func (w walker) claim(tags, worker string, want int) *api.ClaimedJob {
	taken, err := w.ClaimJobWithResponse(ctx, &api.ClaimJobParams{Tags: tags, WorkerId: worker})
	ok("subscribe to "+tags, err, taken.StatusCode(), want, taken.Body)
	return taken.JSON200
}

func (w walker) wantLog(id int64, status, actions string) {
	logs := true
	found, err := w.GetJobWithResponse(ctx, id, &api.GetJobParams{IncludeLogs: &logs})
	ok("get", err, found.StatusCode(), 200, found.Body)
	is("status", string(found.JSON200.Status), status)
	var done []string
	for _, entry := range *found.JSON200.Logs {
		done = append(done, string(entry.Action))
	}
	is("log", strings.Join(done, " "), actions)
}

// events are published, looked for, taken by a group, and streamed.
func (w walker) events() {
	defined, err := w.DefineGroupWithResponse(ctx, "billing", nil, api.GroupSettings{})
	ok("define group", err, defined.StatusCode(), 200, defined.Body)
	var body api.Publication
	key := "7"
	if err := body.FromMessage(api.Message{Type: "order.placed", Key: &key, Payload: map[string]any{"cents": 995}}); err != nil {
		fatal("message", err)
	}
	published, err := w.PublishEventsWithResponse(ctx, nil, body)
	ok("publish", err, published.StatusCode(), 201, published.Body)
	id := (*published.JSON201.Ids)[0]

	found, err := w.SearchEventsWithResponse(ctx, &api.SearchEventsParams{Type: &[]string{"order.*"}})
	ok("search", err, found.StatusCode(), 200, found.Body)
	is("found", (*found.JSON200.Items)[0].Id, id)

	wait := 60.0
	taken, err := w.ClaimEventsWithResponse(ctx, "billing", nil, api.ClaimInputBody{Wait: &wait})
	ok("claim", err, taken.StatusCode(), 200, taken.Body)
	is("taken", (*taken.JSON200.Events)[0].Id, id)
	settled, err := w.SettleLeaseWithResponse(ctx, *taken.JSON200.Lease, nil, api.SettleInputBody{Attempt: *taken.JSON200.Attempt})
	ok("settle", err, settled.StatusCode(), 204, settled.Body)

	from := "beginning"
	streamed, err := w.StreamEvents(ctx, &api.StreamEventsParams{From: &from})
	if err != nil {
		fatal("stream", err)
	}
	defer streamed.Body.Close()
	for lines := bufio.NewScanner(streamed.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), fmt.Sprintf(`data: {"id":%d,`, id)) {
			return
		}
	}
	fatal("the stream has ended")
}

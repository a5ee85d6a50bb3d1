package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/posthorntest"
)

// seed 004.11
func TestTagsAreMatchedWhole(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":" email , Billing,email "}`)
	equal(t, "tags", s.job(t, 1).Tags, "email,Billing")
	for _, other := range []string{"mail", "emails", "Email", "billing", "email%20Billing"} {
		s.call(t, "GET", "/events/subscribe?worker_id=w:1&tags="+other, nil).want(t, 204)
	}
	equal(t, "id", s.take(t, "other,%20Billing%20", "w:1").ID, int64(1))
}

// Jobs of higher priority are claimed first, then jobs that were due earlier.
func TestOrderOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	due := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	s.enqueue(t, `{"title":"now","tags":"x"}`)
	s.enqueue(t, `{"title":"earlier","tags":"y","run_at":"`+due+`"}`)
	s.enqueue(t, `{"title":"urgent","tags":"x,y","priority":7}`)
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s.enqueue(t, `{"title":"later","tags":"x","priority":9,"run_at":"`+later+`"}`)
	for _, title := range []string{"urgent", "earlier", "now"} {
		equal(t, "title", s.take(t, "x,y", "w:1").Title, title)
	}
	s.call(t, "GET", "/events/subscribe?tags=x,y&worker_id=w:1", nil).want(t, 204)
	if at := s.job(t, 4).RunAt; at == nil || at.Format(time.RFC3339) != later {
		t.Errorf("run_at is %v, not %s", at, later)
	}
}

// A job has one worker, even if many claim at the same time.
//
// seed 004.32
func TestAJobHasOneWorker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const jobs, workers = 40, 16
	for range jobs {
		s.enqueue(t, `{"title":"a","tags":"x,y"}`)
	}
	var mu sync.Mutex
	takers := map[int64]int{}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for {
				answer := s.call(t, "GET", fmt.Sprintf("/events/subscribe?tags=%s&worker_id=w:%d", []string{"x", "y", "y,x"}[w%3], w), nil)
				if answer.status == 204 {
					return
				}
				var job claimedJobView
				answer.want(t, 200, &job)
				mu.Lock()
				takers[job.ID]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	equal(t, "jobs that were taken", len(takers), jobs)
	for id, n := range takers {
		equal(t, fmt.Sprintf("workers of job %d", id), n, 1)
	}
}

// A repeated report returns the recorded one and records nothing, with the attempt and
// without it.
//
// seed 004.40
func TestReportsMayBeRepeated(t *testing.T) {
	t.Parallel()
	for _, attempt := range []string{"", `,"attempt":1`} {
		s := serve(t)
		s.enqueue(t, `{"title":"a","tags":"x","retry_delays":[0]}`)
		s.take(t, "x", "w:1")
		report := `{"worker_id":"w:1","status_code":503,"execution_time_ms":3` + attempt + `}`
		first := s.call(t, "POST", "/events/1/fail", report).want(t, 200)
		equal(t, "repeated failure", s.call(t, "POST", "/events/1/fail", report).want(t, 200).body, first.body)
		s.call(t, "POST", "/events/1/complete", report).wantProblem(t, 409, "not held")
		s.take(t, "x", "w:1")
		report = strings.Replace(report, `"attempt":1`, `"attempt":2`, 1)
		first = s.call(t, "POST", "/events/1/complete", report).want(t, 200)
		equal(t, "repeated completion", s.call(t, "POST", "/events/1/complete", report).want(t, 200).body, first.body)
		s.call(t, "POST", "/events/1/fail", report).wantProblem(t, 409, "COMPLETED")
		equal(t, "log", actions(s.job(t, 1)), "PICKED FAILED PICKED COMPLETED")
	}
}

// Repeating the report of the last failure returns the recorded one, not the error.
func TestTheLastFailureMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","max_retries":1}`)
	s.take(t, "x", "w:1")
	s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1","error_message":"no"}`).want(t, 400)
	var recorded map[string]any
	s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1"}`).want(t, 200, &recorded)
	equal[any](t, "retry_scheduled", recorded["retry_scheduled"], false)
	equal[any](t, "error_message", recorded["error_message"], "no")
	equal(t, "log", actions(s.job(t, 1)), "PICKED FAILED")
}

// A worker that has lost a job cannot complete it, start it, or extend its lease.
func TestLateWorkersAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&lease_seconds=1", nil).want(t, 200)
	posthorntest.Advance(t, s.ph, 2*time.Second)
	again := s.take(t, "x", "w:2")
	equal(t, "attempt", again.Attempt, 2)
	equal(t, "retry_count", again.RetryCount, 0)
	for _, action := range []string{"start", "heartbeat", "complete", "fail"} {
		p := s.call(t, "POST", "/events/1/"+action, `{"worker_id":"w:1"}`).wantProblem(t, 409, "w:1")
		equal(t, "type", p.Type, "/problems/lease-lost")
		s.call(t, "POST", "/events/1/"+action, `{"worker_id":"w:2","attempt":1}`).wantProblem(t, 409, "attempt 2")
	}
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:2","attempt":2}`).want(t, 200)
	equal(t, "log", actions(s.job(t, 1)), "PICKED EXPIRED PICKED COMPLETED")
}

func TestHeartbeatsKeepAJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&lease_seconds=1", nil).want(t, 200)
	var kept struct {
		EventID    int64     `json:"event_id"`
		LeaseUntil time.Time `json:"lease_until"`
	}
	s.call(t, "POST", "/events/1/heartbeat", `{"worker_id":"w:1","attempt":1,"lease_seconds":3600,"progress":{"pages":3}}`).want(t, 200, &kept)
	equal(t, "event_id", kept.EventID, int64(1))
	posthorntest.Advance(t, s.ph, time.Minute)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2", nil).want(t, 204)
	job := s.job(t, 1)
	equal(t, "lease_until", *job.LeaseUntil, kept.LeaseUntil)
	equal(t, "progress", string(job.Progress), `{"pages":3}`)
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1","result":{"url":"/r"}}`).want(t, 200)
	equal(t, "result", string(s.job(t, 1).Result), `{"url":"/r"}`)
}

// A repeated start is recorded once.
func TestStart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	first := s.call(t, "POST", "/events/1/start", `{"worker_id":"w:1"}`).want(t, 200)
	equal(t, "repeated start", s.call(t, "POST", "/events/1/start", `{"worker_id":"w:1","attempt":1}`).want(t, 200).body, first.body)
	equal(t, "log", actions(s.job(t, 1)), "PICKED STARTED")
}

// Workers need no registration. When a worker has been silent for 30 seconds, its jobs are
// stalled, until the worker reports again.
//
// seed 004.35, 004.41
func TestStalledJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.enqueue(t, `{"title":"b","tags":"x"}`)
	s.take(t, "x", "w:1")
	stalled := func(query string) (ids []int64) {
		var list struct {
			Events []listedJobView
			Total  int
		}
		s.call(t, "GET", "/events?"+query, nil).want(t, 200, &list)
		for _, e := range list.Events {
			ids = append(ids, e.ID)
		}
		equal(t, "total", list.Total, len(ids))
		return ids
	}
	equal(t, "stalled", len(stalled("stalled=true")), 0)
	posthorntest.Advance(t, s.ph, 31*time.Second)
	equal(t, "stalled", stalled("stalled=true"), []int64{1})
	equal(t, "others", stalled("stalled=false"), []int64{2})
	equal(t, "stalled", s.job(t, 1).Stalled, true)
	s.call(t, "POST", "/events/1/heartbeat", `{"worker_id":"w:1"}`).want(t, 200)
	equal(t, "stalled", s.job(t, 1).Stalled, false)
}

// After a reset, reports of the worker are refused. The retry count stays, and the reset is
// logged.
//
// seed 004.41
func TestResetOfAnOrphan(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","retry_delays":[0]}`)
	s.take(t, "x", "w:1")
	s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1"}`).want(t, 200)
	s.take(t, "x", "w:1")
	var reset jobView
	s.call(t, "POST", "/events/1/reset?reason=worker_timeout", nil).want(t, 200, &reset)
	equal(t, "status", reset.Status, "PENDING")
	equal(t, "retry_count", reset.RetryCount, 1)
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1"}`).wantProblem(t, 409, "w:1")
	s.call(t, "POST", "/events/1/reset", nil).wantProblem(t, 409, "PENDING")
	job := s.job(t, 1)
	equal(t, "log", actions(job), "PICKED FAILED PICKED RESET")
	equal(t, "reason", job.Logs[3].Reason, "worker_timeout")
	s.take(t, "x", "w:2")
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:2"}`).want(t, 200)
	s.call(t, "POST", "/events/1/reset", nil).wantProblem(t, 409, "COMPLETED")
}

func TestResetOfAFailedJobBeginsAnew(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","max_retries":1}`)
	s.take(t, "x", "w:1")
	s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1","error_message":"no"}`).want(t, 400)
	equal(t, "error_message", s.job(t, 1).ErrorMessage, "no")
	var reset jobView
	s.call(t, "POST", "/events/1/reset", nil).want(t, 200, &reset)
	equal(t, "status", reset.Status, "PENDING")
	equal(t, "retry_count", reset.RetryCount, 0)
	equal(t, "attempt", s.take(t, "x", "w:1").Attempt, 2)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	for range 2 {
		var cancelled jobView
		s.call(t, "POST", "/events/1/cancel?reason=not+needed", nil).want(t, 200, &cancelled)
		equal(t, "status", cancelled.Status, "CANCELLED")
	}
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1"}`).wantProblem(t, 409, "CANCELLED")
	s.call(t, "POST", "/events/1/reset", nil).wantProblem(t, 409, "CANCELLED")
	job := s.job(t, 1)
	equal(t, "log", actions(job), "PICKED CANCELLED")
	equal(t, "reason", job.Logs[1].Reason, "not needed")
}

func TestFailuresWithARetryTime(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	for _, c := range []struct {
		in   string
		want time.Duration
	}{{`"90s"`, 90 * time.Second}, {`"2 hours"`, 2 * time.Hour}, {"0.5", 500 * time.Millisecond}} {
		s.take(t, "x", "w:1")
		var recorded failureView
		s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1","retry_in":`+c.in+`}`).want(t, 200, &recorded)
		equal(t, c.in, recorded.NextRetryAt.Sub(recorded.CreatedAt), c.want)
		posthorntest.Advance(t, s.ph, c.want+time.Second)
		if c.in == `"2 hours"` {
			break // the next failure would be the last
		}
	}
	s.take(t, "x", "w:1")
	var last failureView
	s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1","permanent":true}`).want(t, 200, &last)
	equal(t, "retry_scheduled", last.RetryScheduled, false)
	equal(t, "status", s.job(t, 1).Status, "FAILED")
}

func TestRetryDelaysOfAJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","max_retries":5,"retry_delays":["10 seconds","5m"]}`)
	for _, want := range []time.Duration{10 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		s.take(t, "x", "w:1")
		var recorded failureView
		s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1"}`).want(t, 200, &recorded)
		equal(t, "delay", recorded.NextRetryAt.Sub(recorded.CreatedAt), want)
		posthorntest.Advance(t, s.ph, want+time.Second)
	}
}

func TestFairKeysOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var first, made, read jobView
	s.call(t, "POST", "/events", `{"title":"a","tags":"x","fair_key":"a"}`).want(t, 201, &first)
	equal(t, "the weight that is not given", first.Weight, 1)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x","fair_key":"a"}`).want(t, 201)
	s.call(t, "POST", "/events", `{"title":"b","tags":"x","fair_key":"b","weight":0.5}`).want(t, 201, &made)
	s.call(t, "GET", fmt.Sprint("/events/", made.ID), nil).want(t, 200, &read)
	equal(t, "as it was made", made.FairKey+fmt.Sprint(made.Weight), "b0.5")
	equal(t, "as it is read", read.FairKey+fmt.Sprint(read.Weight), "b0.5")
	for _, title := range []string{"a", "a", "b"} { // its turns are twice as far apart
		equal(t, "taken", s.take(t, "x", "w:1").Title, title)
	}
}

func TestUniqueKeysOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	body := `{"title":"a","tags":"x","unique_key":"invoice-7"}`
	s.call(t, "POST", "/events", body).want(t, 201)
	var known jobView
	s.call(t, "POST", "/events", `{"title":"other","tags":"y","unique_key":"invoice-7"}`).want(t, 200, &known)
	equal(t, "title", known.Title, "a")
	first := s.take(t, "x", "w:1")
	s.call(t, "POST", "/events", body).want(t, 201) // the first job is not pending any more
	equal(t, "id", known.ID, first.ID)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x","unique_key":"k","unique_for":"1h"}`).want(t, 201, &known)
	s.call(t, "POST", "/events/"+fmt.Sprint(known.ID)+"/cancel", nil).want(t, 200)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x","unique_key":"k","unique_for":"1h"}`).want(t, 200)
}

// A repeated request enqueues nothing, in every status of the job.
func TestIdempotencyKeyOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	body, key := `{"title":"a","tags":"x","payload":{"n": 1}}`, "Idempotency-Key: 7e0c"
	var made, again jobView
	s.call(t, "POST", "/events", body, key).want(t, 201, &made)
	replay := s.call(t, "POST", "/events", body, key).want(t, 200, &again)
	equal(t, "Idempotency-Replayed", replay.header.Get("Idempotency-Replayed"), "true")
	equal(t, "replay", again, made)
	s.take(t, "x", "w:1")
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1"}`).want(t, 200)
	s.call(t, "POST", "/events", body, key).want(t, 200, &again)
	equal(t, "status", again.Status, "COMPLETED")
	s.call(t, "POST", "/events", `{"title":"b","tags":"x"}`, key).wantProblem(t, 409, "another job")
	s.call(t, "POST", "/events", body, "Idempotency-Key: other").want(t, 201)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x","unique_key":"7e0c"}`, key).wantProblem(t, 400, "both")
	posthorntest.Advance(t, s.ph, 25*time.Hour)
	s.call(t, "POST", "/events", body, key).want(t, 201)
}

func TestTraceContextGoesToTheWorker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.call(t, "POST", "/events", `{"title":"a","tags":"x"}`, "traceparent: "+parent, "tracestate: v=1").want(t, 201)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x"}`, "traceparent: nonsense").want(t, 201)
	for _, want := range []string{parent, ""} {
		taken := s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil).want(t, 200)
		equal(t, "traceparent", taken.header.Get("traceparent"), want)
	}
}

// seed 004.25, 27–29
func TestLists(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 25 {
		s.enqueue(t, fmt.Sprintf(`{"title":"job %d","tags":"%s"}`, i+1, []string{"x", "y", "x,z"}[i%3]))
	}
	s.take(t, "z", "w:1")
	for query, want := range map[string]string{
		"":                               "20 of 25, limit 20, offset 0, from 1",
		"limit=3&offset=24":              "1 of 25, limit 3, offset 24, from 25",
		"limit=1000":                     "25 of 25, limit 1000, offset 0, from 1",
		"offset=1000000000":              "0 of 25, limit 20, offset 1000000000, from 0",
		"status=PROCESSING":              "1 of 1, limit 20, offset 0, from 3",
		"status=PENDING&limit=10":        "10 of 24, limit 10, offset 0, from 1",
		"status=FAILED":                  "0 of 0, limit 20, offset 0, from 0",
		"tags=z":                         "8 of 8, limit 20, offset 0, from 3",
		"tags=y,%20z":                    "16 of 16, limit 20, offset 0, from 2",
		"tags=Z":                         "0 of 0, limit 20, offset 0, from 0",
		"tags=y&status=PENDING&offset=1": "7 of 8, limit 20, offset 1, from 5",
	} {
		var list struct {
			Events               []listedJobView
			Total, Limit, Offset int64
		}
		s.call(t, "GET", "/events?"+query, nil).want(t, 200, &list)
		first := int64(0)
		if len(list.Events) > 0 {
			first = list.Events[0].ID
		}
		got := fmt.Sprintf("%d of %d, limit %d, offset %d, from %d", len(list.Events), list.Total, list.Limit, list.Offset, first)
		equal(t, query, got, want)
	}
	if empty := s.call(t, "GET", "/events?tags=nobody", nil); !strings.Contains(empty.body, `"events":[]`) {
		t.Errorf("an empty page: %s", empty.body)
	}
	if plain := s.call(t, "GET", "/events/1", nil); strings.Contains(plain.body, "logs") {
		t.Errorf("logs that nobody asked for: %s", plain.body)
	}
	if fresh := s.call(t, "GET", "/events/1?include_logs=true", nil); !strings.Contains(fresh.body, `"logs":[]`) {
		t.Errorf("no logs of a job that nobody had: %s", fresh.body)
	}
}

// Jobs of another namespace do not exist for a caller: neither by id nor to be claimed.
func TestJobsOfNamespacesAreApart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/namespaces/shop", nil).want(t, 204)
	var made jobView
	s.call(t, "POST", "/events?namespace=shop", `{"title":"a","tags":"x"}`).want(t, 201, &made)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil).want(t, 204)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&namespace=shop", nil).want(t, 200)
	s.call(t, "GET", "/events/1", nil).wantProblem(t, 404, "job 1")
	for _, action := range []string{"start", "heartbeat", "complete", "fail", "reset", "cancel"} {
		s.call(t, "POST", "/events/1/"+action, `{"worker_id":"w:1"}`).wantProblem(t, 404, "job 1")
	}
	s.call(t, "POST", "/events/1/complete?namespace=shop", `{"worker_id":"w:1"}`).want(t, 200)
}

// A page of another origin cannot claim jobs by an image with that address.
func TestPagesOfOtherOriginsClaimNoJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	for _, path := range []string{"/events/subscribe?tags=x&worker_id=w:1", "/events/1"} {
		answer := s.call(t, "GET", path, nil, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image")
		answer.wantProblem(t, 403, "other origins")
	}
	equal(t, "log", actions(s.job(t, 1)), "")
}

// Under /v1/jobs a job's id is called id in every answer. The compatible spelling under /events has the same operations.
func TestBothSpellingsOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, spelling := range []struct{ path, claim, id, list string }{
		{"/v1/jobs", "POST /v1/jobs/claim", "id", "jobs"},
		{"/events", "GET /events/subscribe", "event_id", "events"},
	} {
		var made struct{ ID int64 }
		response := s.call(t, "POST", spelling.path, `{"title":"report","tags":"a"}`).want(t, 201, &made)
		job := fmt.Sprint(spelling.path, "/", made.ID)
		if got := response.header.Get("Location"); got != job {
			t.Errorf("the location is %s, not %s", got, job)
		}
		var taken struct{ ID int64 }
		method, claim, _ := strings.Cut(spelling.claim, " ")
		s.call(t, method, claim+"?tags=a&worker_id=w", nil).want(t, 200, &taken)
		if taken != made {
			t.Errorf("claimed %v, not %v", taken, made)
		}
		for _, report := range []string{"start", "heartbeat", `steps {"name":"s"}`, `fail {"retry_in":0}`} {
			verb, fields, _ := strings.Cut(report, " {")
			body := `{"worker_id":"w",` + fields
			if fields == "" {
				body = `{"worker_id":"w"}`
			}
			var answer map[string]any
			s.call(t, "POST", job+"/"+verb, body).want(t, 200, &answer)
			if answer[spelling.id] != float64(made.ID) || (answer["id"] == nil) == (spelling.id == "id") {
				t.Errorf("%s: %v", job+"/"+verb, answer)
			}
		}
		var listed map[string]any
		s.call(t, "GET", spelling.path+"?tags=a", nil).want(t, 200, &listed)
		if all, ok := listed[spelling.list].([]any); !ok || len(all) != 1 {
			t.Errorf("%s: %v", spelling.path, listed)
		}
		s.call(t, "DELETE", job, nil).want(t, 204)
	}
	routes := operations(s.server)
	for route, o := range routes {
		if id, is := strings.CutPrefix(o.OperationID, "compatible-"); is && !slices.ContainsFunc(slices.Collect(maps.Values(routes)), func(other *huma.Operation) bool {
			return other.OperationID == id && strings.HasPrefix(other.Path, "/v1/jobs")
		}) {
			t.Errorf("%s has no counterpart under /v1/jobs", route)
		}
	}
}

package server

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/posthorntest"
)

// seedBody is a body, copied from the specification.
func seedBody(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../internal/test/testserver/jobs/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// likeSeed fails the test unless a body is that of the specification. Ids and times may
// differ, and there may be more fields.
func likeSeed(t *testing.T, name, got string, beyond ...string) {
	t.Helper()
	var request, seeds, ours any
	must := func(text string, into *any) {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
	}
	must(seedBody(t, "create_request"), &request)
	payload, _ := json.Marshal(request.(map[string]any)["payload"])
	must(strings.ReplaceAll(seedBody(t, name), "{ ... }", string(payload)), &seeds)
	must(got, &ours)
	leaveOut(ours, beyond)
	if diff := cmp.Diff(loosely(t, seeds), loosely(t, ours)); diff != "" {
		t.Errorf("%s (-seed +ours):\n%s", name, diff)
	}
}

// leaveOut removes fields of an object, and of those in its lists.
func leaveOut(value any, fields []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range fields {
			delete(value, field)
		}
		for _, inner := range value {
			if list, ok := inner.([]any); ok {
				leaveOut(list, fields)
			}
		}
	case []any:
		for _, element := range value {
			leaveOut(element, fields)
		}
	}
}

// loosely replaces ids and times by placeholders.
func loosely(t *testing.T, value any) any {
	t.Helper()
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = loosely(t, value[i])
		}
	case map[string]any:
		for name, field := range value {
			value[name] = loosely(t, field)
			switch text, isText := field.(string); {
			case name == "id" || name == "event_id":
				value[name] = fmt.Sprintf("%T", field)
			case strings.HasSuffix(name, "_at") && isText:
				if _, err := time.Parse(time.RFC3339Nano, text); err != nil || !strings.HasSuffix(text, "Z") {
					t.Errorf("%s is not in RFC 3339 and UTC: %s", name, text)
				}
				value[name] = "a time"
			}
		}
	}
	return value
}

func (s *served) enqueue(t testing.TB, body string) int64 {
	t.Helper()
	var made jobView
	s.call(t, "POST", "/events", body).want(t, 201, &made)
	return made.ID
}

// take claims a job that must exist. It waits, because an expired lease may be noticed a
// little later.
func (s *served) take(t testing.TB, tags, worker string) claimedJobView {
	t.Helper()
	var job claimedJobView
	s.call(t, "GET", "/events/subscribe?wait=60&tags="+tags+"&worker_id="+worker, nil).want(t, 200, &job)
	return job
}

func (s *served) job(t testing.TB, id int64) jobView {
	t.Helper()
	var job jobView
	s.call(t, "GET", fmt.Sprintf("/events/%d?include_logs=true", id), nil).want(t, 200, &job)
	return job
}

func actions(j jobView) string {
	var all []string
	for _, e := range j.Logs {
		all = append(all, e.Action)
	}
	return strings.Join(all, " ")
}

// The first job of the specification from end to end, body by body.
//
// seed 004.1, 004.7–10, 13, 15–18, 24, 26
func TestJobAsTheSeedHasIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	made := s.call(t, "POST", "/events", seedBody(t, "create_request"))
	made.want(t, 201)
	likeSeed(t, "create_response", made.body)
	equal(t, "Location", made.header.Get("Location"), "/events/1")

	taken := s.call(t, "GET", "/events/subscribe?tags=email,notification&worker_id=worker-02:8742", nil)
	taken.want(t, 200)
	likeSeed(t, "claim_response", taken.body, "attempt", "lease_until")
	equal(t, "Cache-Control", taken.header.Get("Cache-Control"), "no-store")
	s.call(t, "GET", "/events/subscribe?tags=email,notification&worker_id=worker-03:1", nil).want(t, 204)
	var processing jobView
	s.call(t, "GET", "/events/1", nil).want(t, 200, &processing)
	equal(t, "status", processing.Status, "PROCESSING")
	equal(t, "worker", processing.WorkerID, "worker-02:8742")

	done := s.call(t, "POST", "/events/1/complete", seedBody(t, "complete_request"))
	done.want(t, 200)
	likeSeed(t, "complete_response", done.body)

	got := s.call(t, "GET", "/events/1?include_logs=true", nil)
	got.want(t, 200)
	likeSeed(t, "get_response", got.body, "state", "why")
	var completed jobView
	got.want(t, 200, &completed)
	if !completed.UpdatedAt.After(completed.CreatedAt) || !completed.UpdatedAt.Equal(completed.Logs[1].CreatedAt) {
		t.Errorf("updated_at is not when it was completed: %s", got.body)
	}
}

// seed 004.19–20, 22–23
func TestFailureAsTheSeedHasIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, seedBody(t, "create_request"))
	s.take(t, "email", "worker-02:8742")
	failed := s.call(t, "POST", "/events/1/fail", seedBody(t, "fail_request"))
	failed.want(t, 200)
	likeSeed(t, "fail_response", failed.body)
	job := s.job(t, 1)
	equal(t, "status", job.Status, "PENDING")
	equal(t, "retry_count", job.RetryCount, 1)
	equal(t, "log", actions(job), "PICKED FAILED")
	var recorded failureView
	failed.want(t, 200, &recorded)
	equal(t, "next_retry_at", recorded.NextRetryAt.Sub(recorded.CreatedAt), 5*time.Minute)
	equal(t, "next_retry_at of the job", *job.NextRetryAt, *recorded.NextRetryAt)
	equal(t, "entry", job.Logs[1].ErrorMessage, "Connection timeout: mail server unreachable. Will retry.")
}

// The third failure is the last. Its response is that of the specification, and the log
// has it.
//
// seed 004.3, 004.6, 004.21, 22, 23
func TestRetriesAreUsedUp(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","retry_delays":[0]}`)
	for attempt := 1; attempt <= 3; attempt++ {
		equal(t, "attempt", s.take(t, "x", "w:1").Attempt, attempt)
		answer := s.call(t, "POST", "/events/1/fail", seedBody(t, "fail_request")+" ")
		answer.wantProblem(t, 409, "worker-02:8742") // another worker has it
		answer = s.call(t, "POST", "/events/1/fail", `{"worker_id":"w:1"}`)
		if attempt < 3 {
			answer.want(t, 200)
			continue
		}
		answer.want(t, 400)
		likeSeed(t, "fail_exhausted", answer.body)
		equal(t, "content type", answer.header.Get("Content-Type"), "application/json")
	}
	job := s.job(t, 1)
	equal(t, "status", job.Status, "FAILED")
	equal(t, "retry_count", job.RetryCount, 3)
	if job.NextRetryAt != nil {
		t.Errorf("it is to be tried again at %s", job.NextRetryAt)
	}
	equal(t, "log", actions(job), "PICKED FAILED PICKED FAILED PICKED FAILED")
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil).want(t, 204)
}

// seed 004.30
func TestListAsTheSeedHasIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, seedBody(t, "create_request"))
	s.enqueue(t, `{"title":"Process Payment","tags":"payment,priority-high"}`)
	s.take(t, "email", "worker-02:8742")
	s.call(t, "POST", "/events/1/complete", seedBody(t, "complete_request")).want(t, 200)
	s.take(t, "payment", "w:1")
	s.call(t, "POST", "/events/2/fail", `{"worker_id":"w:1"}`).want(t, 200)
	list := s.call(t, "GET", "/events?limit=10", nil)
	list.want(t, 200)
	likeSeed(t, "list_response", list.body, "state", "why")
}

// The log of a job that fails once, as in the specification: two workers, five entries.
// The test moves the clock of the database.
//
// seed 004.2, 004.4–5, 31, 33
func TestLifecycleAsTheSeedHasIt(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, seedBody(t, "create_request"))
	s.take(t, "email", "worker-01:7234")
	s.call(t, "POST", "/events/1/start", `{"worker_id":"worker-01:7234"}`).want(t, 200)
	s.call(t, "POST", "/events/1/fail",
		`{"worker_id":"worker-01:7234","status_code":503,"error_message":"Service unavailable, will retry","execution_time_ms":8000}`).want(t, 200)
	s.call(t, "GET", "/events/subscribe?tags=email&worker_id=worker-02:8742", nil).want(t, 204)
	posthorntest.Advance(t, s.ph, 5*time.Minute+time.Second)
	job := s.take(t, "email", "worker-02:8742")
	equal(t, "retry_count", job.RetryCount, 1)
	s.call(t, "POST", "/events/1/complete", seedBody(t, "complete_request")).want(t, 200)

	var shown struct{ Logs []map[string]any }
	s.call(t, "GET", "/events/1?include_logs=true", nil).want(t, 200, &shown)
	for _, entry := range shown.Logs {
		entry["event_id"] = 1.0 // the path has the id
	}
	raw, _ := json.Marshal(shown.Logs)
	likeSeed(t, "lifecycle", string(raw))
}

// Process A publishes, process B consumes, step by step.
//
// seed 004.39
func TestProcessAPublishesProcessBConsumes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.enqueue(t, seedBody(t, "report_request"))
	job := s.take(t, "reporting", "worker-03:9100")
	equal(t, "id", job.ID, id)
	equal(t, "status", job.Status, "PROCESSING")
	payments := "/events/subscribe?tags=payment&worker_id=worker-04:9101"
	s.call(t, "GET", payments, nil).want(t, 204)
	s.call(t, "POST", fmt.Sprintf("/events/%d/complete", id),
		`{"worker_id":"worker-03:9100","execution_time_ms":15000,"status_code":200}`).want(t, 200)
	equal(t, "status", s.job(t, id).Status, "COMPLETED")
	s.call(t, "GET", payments, nil).want(t, 204)
	payment := s.enqueue(t, `{"title":"Process Payment","tags":"payment"}`)
	equal(t, "id", s.take(t, "payment", "worker-04:9101").ID, payment)
}

package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
)

func TestSnoozeJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.take(t, "x", "w:1")
	var snoozed struct {
		Action      string
		NextRetryAt time.Time `json:"next_retry_at"`
	}
	s.call(t, "POST", "/events/1/snooze", map[string]any{"worker_id": "w:1", "attempt": 1, "snooze_for": "1h", "reason": "later"}).want(t, 200, &snoozed)
	equal(t, "action", snoozed.Action, "SNOOZED")
	if d := time.Until(snoozed.NextRetryAt); d < 50*time.Minute {
		t.Errorf("the job is due again in %v", d)
	}
	equal(t, "status", s.job(t, 1).Status, "PENDING")
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2", nil).want(t, 204)
	for _, bad := range []map[string]any{
		{"worker_id": "w:1"}, {"worker_id": "w:1", "snooze_for": "soon"}, {"worker_id": "w:1", "snooze_for": "-1h"}, {"snooze_for": "1h"},
	} {
		s.call(t, "POST", "/events/1/snooze", bad).want(t, 400)
	}
	s.call(t, "POST", "/events/1/snooze", map[string]any{"worker_id": "w:2", "snooze_for": "1h"}).want(t, 409)
}

// A period of 0 is given, not missing: the job goes on at once.
func TestPeriodsOfZero(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for id, zero := range []any{"0ms", 0, "0s"} {
		s.enqueue(t, `{"title":"a","tags":"x"}`)
		s.take(t, "x", "w:1")
		report := func(verb, period string) answered {
			body := map[string]any{"worker_id": "w:1", "name": verb, period: zero, "type": "payment.settled", "key": "order-7"}
			return s.call(t, "POST", fmt.Sprintf("/events/%d/%s", id+1, verb), body)
		}
		var slept sleepView
		report("sleep", "sleep_for").want(t, 200, &slept)
		equal(t, "the sleep is over", slept.Over, true)
		var awaited awaitedView
		report("await", "timeout").want(t, 200, &awaited)
		equal(t, "the wait has timed out", awaited.TimedOut, true)
		report("snooze", "snooze_for").want(t, 200)
		equal(t, "taken again", s.take(t, "x", "w:1").ID, int64(id+1))
	}
	for verb, period := range map[string]string{"sleep": "sleep_for", "await": "timeout", "snooze": "snooze_for"} {
		body := map[string]any{"worker_id": "w:1", "name": "none", "type": "t", "key": "k"}
		s.call(t, "POST", "/events/1/"+verb, body).wantProblem(t, 400, period+" is missing")
	}
}

func TestChangeAndDeleteJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"first","tags":"x"}`)
	s.enqueue(t, `{"title":"second","tags":"x"}`)
	s.enqueue(t, `{"title":"third","tags":"x"}`)
	var changed jobView
	s.call(t, "PATCH", "/events/2", map[string]any{"priority": 5, "payload": map[string]int{"n": 2}}).want(t, 200, &changed)
	equal(t, "priority", changed.Priority, 5)
	equal(t, "payload", string(changed.Payload), `{"n":2}`)
	s.call(t, "DELETE", "/events/1", nil).want(t, 204)
	s.call(t, "GET", "/events/1", nil).want(t, 404)
	equal(t, "taken", s.take(t, "x", "w:1").Title, "second")
	s.call(t, "PATCH", "/events/2", map[string]any{"priority": 1}).want(t, 409)
	s.call(t, "DELETE", "/events/2", nil).want(t, 409)
	s.call(t, "DELETE", "/events/1", nil).want(t, 404)
	s.call(t, "PATCH", "/events/3", map[string]any{}).want(t, 400)
	s.call(t, "PATCH", "/events/3", map[string]any{"run_at": "soon"}).want(t, 400)
}

// A job waits for an event over HTTP. The token must read events, and does not get those of streams that are hidden from it.
func TestJobAwaitsEvent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	all := s.issue(t, "default", allScopes)
	worker := s.issue(t, "default", []scope{scopeJobsWork})
	payroll := s.issue(t, "default", allScopes, "payroll")
	await := func(attempt int, headers ...string) answered {
		return s.call(t, "POST", "/events/1/await", map[string]any{
			"worker_id": "w:1", "attempt": attempt, "name": "paid", "type": "payment.settled", "key": "order-7", "timeout": "1h",
		}, headers...)
	}
	pay := func(stream string) {
		s.call(t, "POST", "/v1/events", map[string]any{"type": "payment.settled", "key": "order-7", "stream": stream, "payload": 1990}, payroll).want(t, 201)
		s.exec(t, "update posthorn.await_places set at = at - interval '1 minute'; select posthorn.wake_jobs()")
	}
	s.call(t, "POST", "/events", `{"title":"a","tags":"x"}`, all).want(t, 201)
	take := func(status int) {
		s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil, all).want(t, status)
	}
	take(200)
	await(1, worker).wantProblem(t, 403, "the token lacks the scope read")
	s.call(t, "POST", "/events/1/await", `{"worker_id":"w:1","name":"paid","type":"t","key":"k"}`, all).wantProblem(t, 400, "timeout is missing")
	pay("payroll")
	var got awaitedView
	await(1, all).want(t, 200, &got)
	if got.Event != nil || got.WaitsUntil == nil || got.TimedOut {
		t.Fatalf("it waits: %+v", got)
	}
	pay("payroll")
	take(204)
	pay("default")
	take(200)
	got = awaitedView{}
	await(2, all).want(t, 200, &got)
	if got.Event == nil || got.Event.Stream != "default" || string(got.Event.Payload) != "1990" || got.WaitsUntil != nil {
		t.Errorf("event: %+v", got)
	}
	var listed jobStepsView
	s.call(t, "GET", "/events/1/steps", nil, all).want(t, 200, &listed)
	if len(listed.Steps) != 1 || listed.Steps[0].AwaitedEvent() != got.Event.ID || strings.Contains(string(listed.Steps[0].Result), "1990") {
		t.Errorf("steps: %+v", listed.Steps)
	}
}

// The event that an attempt has got is hidden from a later one whose token sees less.
func TestAwaitedEventIsHidden(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named, others := s.issue(t, "default", allScopes, "payroll"), s.issue(t, "default", allScopes)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x"}`, named).want(t, 201)
	s.call(t, "POST", "/v1/events", `{"type":"t","key":"k","stream":"payroll"}`, named).want(t, 201)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil, named).want(t, 200)
	const await = `{"worker_id":"w:1","name":"paid","type":"t","key":"k","timeout":"1h"}`
	s.call(t, "POST", "/events/1/await", await, named).want(t, 200)
	s.call(t, "POST", "/events/1/await", await, others).wantProblem(t, 403, "restricted stream")
}

// A step shows that a job waits, for a type. Who may not read the stream of the event learns neither its key nor its id.
func TestStepsWithholdHiddenEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	named, others := s.issue(t, "default", allScopes, "payroll"), s.issue(t, "default", allScopes)
	s.call(t, "POST", "/events", `{"title":"a","tags":"x"}`, named).want(t, 201)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil, named).want(t, 200)
	s.exec(t, "select posthorn.publish('default', 'paid', stream => 'payroll', key => 'xq7-hidden'), posthorn.publish('default', 'paid', key => 'open-1')")
	await := func(name, key string) {
		s.call(t, "POST", "/events/1/await", `{"worker_id":"w:1","name":"`+name+`","type":"paid","key":"`+key+`","timeout":"1h"}`, named).want(t, 200)
	}
	await("first", "xq7-hidden")
	await("second", "open-1")
	await("third", "xq7-pending")
	var listed jobStepsView
	s.call(t, "GET", "/events/1/steps", nil, named).want(t, 200, &listed)
	equal(t, "keys for a token that names the stream", listed.Steps[0].EventKey+" "+listed.Steps[1].EventKey+" "+listed.Steps[2].EventKey, "xq7-hidden open-1 xq7-pending")
	shown := s.call(t, "GET", "/events/1/steps", nil, others)
	shown.check(t, "steps")
	listed = jobStepsView{}
	shown.want(t, 200, &listed)
	if first, second := listed.Steps[0], listed.Steps[1]; !first.Withheld() || first.AwaitedEvent() != 0 || first.EventType != "paid" || second.Withheld() || second.EventKey != "open-1" || !listed.Steps[2].Waits() {
		t.Errorf("steps: %s", shown.body)
	}
	s.call(t, "GET", "/events/1?include_logs=true", nil, others).check(t, "the job and its log")
	b := s.visit(t)
	b.signIn(strings.TrimPrefix(others, "Authorization: Bearer "))
	page := b.get("/ui/default/job?id=1")
	page.wantPage(t, 200, "an event <bdi>paid</bdi> of a stream that the token may not read", "waits for <bdi>paid</bdi> until")
	page.check(t, "page of the job")
}

// A worker saves what it has done for good, and the next attempt gets that with the job, and the progress.
func TestJobSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	if job := s.take(t, "x", "w:1"); job.Steps != nil || job.Progress != nil {
		t.Errorf("the first attempt has the steps %s and the progress %s", job.Steps, job.Progress)
	}
	step := func(name string, result any) answered {
		return s.call(t, "POST", "/events/1/steps", map[string]any{"worker_id": "w:1", "attempt": 1, "name": name, "result": result})
	}
	step("charge", 7).want(t, 200)
	var saved savedStepView
	step("charge", 8).want(t, 200, &saved)
	equal(t, "saved result", string(saved.Result), "7")
	step("", 1).want(t, 400)
	step("large", strings.Repeat("x", 1<<16)).want(t, 400)
	s.call(t, "POST", "/events/1/heartbeat", map[string]any{"worker_id": "w:1", "progress": 50}).want(t, 200)
	sleep := func(worker string, attempt int, name string) answered {
		return s.call(t, "POST", "/events/1/sleep", map[string]any{"worker_id": worker, "attempt": attempt, "name": name, "sleep_for": "1h"})
	}
	sleep("w:1", 1, "charge").want(t, 409)
	var slept sleepView
	sleep("w:1", 1, "nap").want(t, 200, &slept)
	if slept.Over || slept.WakesAt == nil {
		t.Errorf("it sleeps: %+v", slept)
	}
	step("late", 1).want(t, 409)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2", nil).want(t, 204)
	s.exec(t, `create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return clock_timestamp() + interval '2 hours'`)
	s.exec(t, "select posthorn.promote_jobs()")
	job := s.take(t, "x", "w:2")
	equal(t, "progress", string(job.Progress), "50")
	if want := `"charge" : 7`; !strings.Contains(string(job.Steps), want) && !strings.Contains(string(job.Steps), `"charge":7`) {
		t.Errorf("the steps %s lack %s", job.Steps, want)
	}
	for _, late := range []map[string]any{{"worker_id": "w:2", "attempt": 1, "name": "late"}, {"worker_id": "w:1", "attempt": 2, "name": "late"}} {
		s.call(t, "POST", "/events/1/steps", late).want(t, 409)
	}
	sleep("w:2", 2, "nap").want(t, 200, &slept)
	equal(t, "over", slept.Over, true)
	var listed jobStepsView
	s.call(t, "GET", "/events/1/steps", nil).want(t, 200, &listed)
	if len(listed.Steps) != 2 || listed.Steps[0].Name != "charge" || listed.Steps[1].WakesAt.IsZero() {
		t.Errorf("steps: %+v", listed.Steps)
	}
	s.call(t, "GET", "/events/2/steps", nil).want(t, 404)
	s.visit(t).get("/ui/default/job?id=1").wantPage(t, 200, `id="steps"`, "charge", "a sleep until")
}

// A job says over HTTP what it waits for, and a cancel ends what waits, if it is asked to.
func TestJobAfterOthers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"first","tags":"x"}`)
	s.enqueue(t, `{"title":"second","tags":"x","after":[1]}`)
	s.enqueue(t, `{"title":"third","tags":"x","after":[2,1]}`)
	s.call(t, "POST", "/events", map[string]any{"title": "fourth", "tags": "x", "after": []int{9}}).want(t, 404)
	equal(t, "it waits for", s.job(t, 3).WaitsFor, []int64{1, 2})
	var order struct{ Waits []admin.JobWait }
	s.call(t, "GET", "/events/2/waits", nil).want(t, 200, &order)
	equal(t, "order", order.Waits, []admin.JobWait{{Side: "before", ID: 1, Title: "first", Status: "PENDING"}, {Side: "after", ID: 3, Title: "third", Status: "PENDING"}})
	equal(t, "taken", s.take(t, "x", "w:1").Title, "first")
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2", nil).want(t, 204)
	s.call(t, "POST", "/events/1/complete", map[string]any{"worker_id": "w:1"}).want(t, 200)
	equal(t, "taken", s.take(t, "x", "w:1").Title, "second")
	s.call(t, "POST", "/events/2/cancel?jobs_after=drop", nil).want(t, 400)
	s.call(t, "POST", "/events/2/cancel?jobs_after=fail", nil).want(t, 200)
	equal(t, "status", s.job(t, 3).Status, "FAILED")
	equal(t, "error", s.job(t, 3).ErrorMessage, "job 2, for which it waited, was cancelled")
}

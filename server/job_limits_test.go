package server

import (
	"testing"

	"github.com/posthorn/posthorn/admin"
)

// Tags of jobs are limited, paused and resumed over HTTP, and in the audit log.
func TestJobLimits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const mail = "/v1/job-limits/mail"
	limits := func() []admin.JobLimitStatus {
		t.Helper()
		var all list[admin.JobLimitStatus]
		s.call(t, "GET", "/v1/job-limits", nil).want(t, 200, &all)
		return all.Items
	}
	equal(t, "limits at first", len(limits()), 0)
	s.call(t, "PUT", mail, `{"max_running":1,"max_started":100,"period_seconds":60}`).want(t, 204)
	s.call(t, "POST", mail+"/pause", nil).want(t, 204)
	all := limits()
	if len(all) != 1 || all[0].Tag != "mail" || all[0].Limit().String() != "1 at once, 100 per 1m0s" || all[0].PausedAt.IsZero() {
		t.Errorf("the limits are %+v", all)
	}
	s.call(t, "POST", "/events", `{"title":"a","payload":{},"tags":"mail"}`).want(t, 201)
	s.call(t, "GET", "/events/subscribe?tags=mail&worker_id=w:1", nil).want(t, 204)
	var resumed struct {
		WasPaused bool `json:"was_paused"`
	}
	s.call(t, "POST", mail+"/resume", nil).want(t, 200, &resumed)
	equal(t, "was paused", resumed.WasPaused, true)
	s.call(t, "POST", mail+"/resume", nil).want(t, 200, &resumed)
	equal(t, "was paused again", resumed.WasPaused, false)
	s.call(t, "GET", "/events/subscribe?tags=mail&worker_id=w:1&wait=60", nil).want(t, 200)
	s.call(t, "PUT", mail, `{"max_running":-1}`).want(t, 204)
	equal(t, "none may run", limits()[0].MaxRunning, -1)
	s.call(t, "PUT", mail, `{"max_running":0,"max_started":0,"period_seconds":60}`).want(t, 204)
	equal(t, "none may run or start", limits()[0].Limit().String(), "0 at once, 0 per 1m0s")
	s.call(t, "PUT", mail, `{}`).want(t, 204)
	equal(t, "limits at last", len(limits()), 0)
	actions, err := s.ph.Admin().Actions(t.Context(), 0, 10)
	if err != nil || len(actions) == 0 || actions[0].Name != "set-job-limit" || actions[0].Subject != "mail" {
		t.Errorf("the audit log is %+v, %v", actions, err)
	}
}

// A limit of a pattern is set, listed and removed over HTTP like that of a tag.
func TestJobLimitsByPattern(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const pattern = "/v1/job-limits/tenant:*"
	s.call(t, "PUT", pattern, `{"max_running":1}`).want(t, 204)
	for range 2 {
		s.call(t, "POST", "/events", `{"title":"a","payload":{},"tags":"tenant:7"}`).want(t, 201)
	}
	s.call(t, "GET", "/events/subscribe?tags=tenant:7&worker_id=w:1", nil).want(t, 200)
	s.call(t, "GET", "/events/subscribe?tags=tenant:7&worker_id=w:1", nil).want(t, 204)
	var all list[admin.JobLimitStatus]
	s.call(t, "GET", "/v1/job-limits", nil).want(t, 200, &all)
	if len(all.Items) != 1 || all.Items[0].Tag != "tenant:*" || all.Items[0].Running != 1 || all.Items[0].HeldBack != 1 {
		t.Errorf("the limits are %+v", all.Items)
	}
	s.call(t, "PUT", pattern, `{}`).want(t, 204)
	s.call(t, "GET", "/events/subscribe?tags=tenant:7&worker_id=w:1", nil).want(t, 200)
}

func TestJobLimitErrors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/job-limits/mail", `{"max_started":1}`).wantProblem(t, 400, "needs a period")
	s.call(t, "PUT", "/v1/job-limits/mail", `{"period_seconds":60}`).wantProblem(t, 400, "needs max_started")
	s.call(t, "PUT", "/v1/job-limits/mail", `{"max_running":-2}`).wantProblem(t, 400, "max_running")
	s.call(t, "PUT", "/v1/job-limits/mail", `{"max_running":99999999999}`).wantProblem(t, 400, "max_running")
	s.call(t, "PUT", "/v1/job-limits/mail", `{"period_seconds":99999999}`).wantProblem(t, 400, "period_seconds")
	s.call(t, "PUT", "/v1/job-limits/mail", `{"most":1}`).wantProblem(t, 400, "most")
	s.call(t, "PUT", "/v1/job-limits/%20", `{}`).wantProblem(t, 400, "tag")
	s.call(t, "POST", "/v1/job-limits/%00/pause", nil).wantProblem(t, 400, "NUL")
}

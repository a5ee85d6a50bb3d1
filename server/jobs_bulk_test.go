package server

import (
	"testing"

	"github.com/posthorn/posthorn/op"
)

// All jobs of a status and tags are changed by one request. The reason stands in their logs,
// and the audit log has one entry.
func TestJobsAreChangedInBulk(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.enqueue('default', 'a', tags => array[case when i % 3 = 0 then 'x' else 'y' end], max_retries => 0) from generate_series(1, 450) i`)
	s.exec(t, `select posthorn.fail_job(j.id, 'w', 'no') from posthorn.claim_jobs('default', 'w', '{x,y}', 1000) j`)
	admins := s.issue(t, "default", []scope{scopeAdmin})
	var got struct{ Count int64 }
	change := func(verb, body string, want int64) {
		t.Helper()
		if s.call(t, "POST", "/v1/jobs/"+verb, body, admins).want(t, 200, &got); got.Count != want {
			t.Errorf("%s: changed %d jobs, want %d", verb, got.Count, want)
		}
	}
	change("retry", `{"status": "FAILED", "tags": ["y"], "reason": "mended"}`, 300)
	if n := s.number(t, "select count(*) from posthorn.jobs where status = 'PENDING' and 'y' = any (tags)"); n != 300 {
		t.Errorf("%d jobs with the tag are pending", n)
	}
	if n := s.number(t, "select count(*) from posthorn.job_log where action = 'RESET' and reason = 'mended'"); n != 300 {
		t.Errorf("the logs of %d jobs have the reason", n)
	}
	change("cancel", `{"status": "PENDING", "tags": ["y"]}`, 300)
	s.call(t, "POST", "/v1/jobs/delete", `{"status": "FAILED"}`, admins).wantProblem(t, 400, "jobs that are FAILED cannot be deleted")
	s.call(t, "POST", "/v1/jobs/cancel", `{"status": "FAILED"}`, admins).wantProblem(t, 400, "jobs that are FAILED cannot be cancelled")
	change("retry", `{"status": "FAILED"}`, 150)
	change("delete", `{"status": "PENDING"}`, 150)
	if n := s.number(t, "select count(*) from posthorn.list_actions('default') where action = 'retry-jobs' and done in (300, 150) and ended_at is not null"); n != 2 {
		t.Errorf("the audit log has %d entries of the two retries", n)
	}
	s.call(t, "POST", "/v1/jobs/retry", `{"tags": ["y"]}`, admins).wantProblem(t, 400, "validation failed")
	s.call(t, "POST", "/v1/jobs/retry", `{"status": "COMPLETED"}`, admins).wantProblem(t, 400, "validation failed")
	s.call(t, "POST", "/v1/jobs/delete", `{"status": "PENDING", "reason": "x"}`, admins).wantProblem(t, 400, "validation failed")
	consumer := s.issue(t, "default", []scope{scopeConsume, scopeRead})
	s.call(t, "POST", "/v1/jobs/cancel", `{"status": "PENDING"}`, consumer).wantProblem(t, 403, "the token lacks the scope "+string(op.Admin))
}

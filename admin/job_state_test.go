package admin_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Each state of a job is shown with a sentence, selected by filters, and counted.
func TestStatesOfJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	for _, sql := range []string{
		"select posthorn.enqueue('default', 'ready', tags => '{ready}')",
		"select posthorn.enqueue('default', 'later', run_at => now() + '1 day')",
		"select posthorn.enqueue('default', 'put off', tags => '{off}')",
		"select posthorn.snooze_job(j.id, 'w', '1 hour', reason => 'the shop is closed') from posthorn.claim_jobs('default', 'w', '{off}') j",
		"select posthorn.enqueue('default', 'retry', tags => '{retry}', max_retries => 4)",
		"select posthorn.fail_job(j.id, 'w', e'connection refused\\nat dial', retry_in => '4 minutes') from posthorn.claim_jobs('default', 'w', '{retry}') j",
		"select posthorn.enqueue('default', 'asleep', tags => '{asleep}')",
		"select posthorn.sleep_job(j.id, 'w', 'cool down', '3 days') from posthorn.claim_jobs('default', 'w', '{asleep}') j",
		"select posthorn.enqueue('default', 'waiting for an event', tags => '{await}')",
		"select posthorn.await_event(j.id, 'w', 'payment', 'payment.settled', 'o-17', '1 day') from posthorn.claim_jobs('default', 'w', '{await}') j",
		"select posthorn.enqueue('default', 'behind other jobs', after => '{1,2}')",
		"select posthorn.set_job_limit('default', 'tenant:*', 1)",
		"select posthorn.enqueue('default', 'running', tags => '{tenant:7}')",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{tenant:7}')",
		"select posthorn.enqueue('default', 'held back by a limit', tags => '{tenant:7}')",
		"select posthorn.pause_job_tag('default', 'mail')",
		"select posthorn.enqueue('default', 'paused', tags => '{mail,tenant:7}')",
		"select posthorn.enqueue('default', 'completed', tags => '{done}')",
		"select posthorn.complete_job(j.id, 'w') from posthorn.claim_jobs('default', 'w', '{done}') j",
		"select posthorn.enqueue('default', 'failed', tags => '{failed}')",
		"select posthorn.fail_job(j.id, 'w', 'no such card', permanent => true) from posthorn.claim_jobs('default', 'w', '{failed}') j",
		"select posthorn.enqueue('default', 'cancelled', tags => '{gone}')",
		"select posthorn.cancel_job((select max(id) from posthorn.enqueued_jobs), 'withdrawn')",
	} {
		w.Exec(sql)
	}
	sentences := map[string]string{
		"ready": "has waited for a worker for", "later": "due in", "put off": "put off for 1h: the shop is closed", "retry": "retry 1 of 3 in ",
		"asleep": "sleeps: cool down, for 3 days", "waiting for an event": "waits for payment.settled of o-17, for up to", "behind other jobs": "behind 2 jobs",
		"held back by a limit": "held back: tenant:7 runs 1 of 1", "paused": "the tag mail has been paused for", "running": "w has had it for",
		"completed": "ago", "failed": "after 1 failure, ", "cancelled": "ago",
	}
	a := w.Admin()
	jobs, err := a.Jobs(t.Context(), admin.JobFilter{Limit: 100})
	if err != nil || len(jobs) != len(sentences) {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	want := map[string]int64{"stalled": 0}
	for _, j := range jobs {
		state := j.Title
		if state == "put off" {
			state = "later"
		}
		if want[state]++; j.State != state || !strings.Contains(j.Why, sentences[j.Title]) || strings.Contains(j.Why, "\n") {
			t.Errorf("the job %q is %s: %s", j.Title, j.State, j.Why)
		}
	}
	for state, n := range want {
		if state == "stalled" {
			continue
		}
		filter := admin.JobFilter{State: state, Limit: 100}
		listed, err := a.Jobs(t.Context(), filter)
		browsed, _, err2 := a.BrowseJobs(t.Context(), filter, 0)
		counted, err3 := a.CountJobs(t.Context(), filter)
		if err != nil || err2 != nil || err3 != nil || int64(len(listed)) != n || int64(len(browsed)) != n || counted != n {
			t.Errorf("jobs that are %s: %d are listed, %d are browsed, %d are counted, want %d; %v, %v, %v", state, len(listed), len(browsed), counted, n, err, err2, err3)
		}
		if slices.ContainsFunc(append(listed, browsed...), func(j admin.JobStatus) bool { return j.State != state }) {
			t.Errorf("the filter %s has selected others: %+v, %+v", state, listed, browsed)
		}
	}
	if n, err := a.CountJobs(t.Context(), admin.JobFilter{State: "asleep", Status: admin.JobFailed}); err != nil || n != 0 {
		t.Errorf("%d jobs are asleep and FAILED, %v", n, err)
	}
	counts, err := a.JobCounts(t.Context(), 100)
	if err != nil || len(counts) != len(want)-1 {
		t.Errorf("the counts are %+v, %v", counts, err)
	}
	for _, c := range counts {
		if c.Jobs != want[c.State] {
			t.Errorf("%d jobs are counted as %s, want %d", c.Jobs, c.State, want[c.State])
		}
	}
}

// The filter of lists knows the states that the database decides.
func TestFilterKnowsTheStatesOfJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	field, _ := reflect.TypeFor[admin.JobFilter]().FieldByName("State")
	testworld.Equal(t, "the states", strings.Split(field.Tag.Get("enum"), ","), testworld.Ask[[]string](w, "select posthorn.job_states()"))
}

// A job that others keep waiting for ever says so, and one whose worker is silent.
func TestReasonsOfStuckJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	for _, sql := range []string{
		"select posthorn.enqueue('default', 'first', tags => '{first}')",
		"select posthorn.enqueue('default', 'second', after => '{1}')",
		"select posthorn.fail_job(j.id, 'w', 'broken', permanent => true) from posthorn.claim_jobs('default', 'w', '{first}') j",
		"select posthorn.enqueue('default', 'silent', tags => '{silent}')",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{silent}')",
		"update posthorn.running_jobs set seen_at = seen_at - interval '10 minutes'",
		"select posthorn.enqueue('default', 'fourth', after => '{2}')",
		"select posthorn.enqueue('default', 'fifth', after => '{1,2}')",
	} {
		w.Exec(sql)
	}
	for id, sentence := range map[int64]string{
		2: `behind job 1, which failed \d+s ago: broken`, 3: "w has sent no heartbeat for 10m.*", 4: `behind job 2, and so behind job 1, which failed \d+s ago: broken`, 5: `behind 2 jobs; job 1 failed \d+s ago: broken`,
	} {
		if j, err := w.Admin().Job(t.Context(), id); err != nil || !regexp.MustCompile("^"+sentence+"$").MatchString(j.Why) {
			t.Errorf("job %d is %s: %s, %v; want %q", id, j.State, j.Why, err, sentence)
		}
	}
}

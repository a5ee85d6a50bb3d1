package admin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// An action reaches all jobs of a filter in parts: also those that are rare among other
// jobs, and none that came later.
func TestSteerJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	enqueue := func(n int, tag string) {
		w.Exec("select count(posthorn.enqueue('default', 'x', tags => array[$2])) from generate_series(1, $1)", n, tag)
	}
	steer := func(action, status, tag string, last int64) {
		t.Helper()
		for after := int64(0); ; {
			next, _, err := w.Admin().SteerJobs(t.Context(), action, admin.JobFilter{Status: status, Tags: []string{tag}}, after, last, "test", "")
			if err != nil {
				t.Fatal(err)
			}
			if next == 0 {
				return
			}
			if next <= after {
				t.Fatalf("after %d it goes on after %d", after, next)
			}
			after = next
		}
	}
	count := func(status, tag string) int {
		return testworld.Ask[int](w, "select posthorn.count_jobs('default', '"+status+"', array['"+tag+"'])::int")
	}
	enqueue(3, "rare")
	enqueue(7000, "usual")
	enqueue(250, "rare")
	last := testworld.Ask[int64](w, "select max(id) from posthorn.enqueued_jobs")
	enqueue(2, "rare")
	steer("cancel", "PENDING", "rare", last)
	testworld.Equal(t, "cancelled jobs", count("CANCELLED", "rare"), 253)
	testworld.Equal(t, "jobs that came later", count("PENDING", "rare"), 2)
	testworld.Equal(t, "other jobs", count("PENDING", "usual"), 7000)

	w.Exec("select count(posthorn.fail_job(j.id, 'w', permanent => true)) from posthorn.claim_jobs('default', 'w', '{usual}', 300) j")
	w.Exec("select count(*) from posthorn.claim_jobs('default', 'w', '{usual}', 300)")
	steer("retry", "FAILED", "usual", last)
	steer("retry", "PROCESSING", "usual", last)
	testworld.Equal(t, "failed jobs", count("FAILED", "usual"), 0)
	testworld.Equal(t, "jobs that workers have", count("PROCESSING", "usual"), 0)
	testworld.Equal(t, "pending jobs", count("PENDING", "usual"), 7000)
	steer("delete", "PENDING", "usual", last-251)
	testworld.Equal(t, "pending jobs behind the last one", count("PENDING", "usual"), 1)
}

// An action on the jobs that a search finds reaches all of them in parts, and none that came later. Those whose status does
// not allow it are left out.
func TestSteerFoundJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select count(posthorn.enqueue('default', case when i % 2 = 0 then 'a needle' else 'hay' end, tags => '{x}')) from generate_series(1, 900) i")
	w.Exec("select count(posthorn.complete_job(j.id, 'w')) from posthorn.claim_jobs('default', 'w', '{x}', 10) j") // five needles among them
	last := testworld.Ask[int64](w, "select max(id) from posthorn.enqueued_jobs")
	w.Exec("select posthorn.enqueue('default', 'a needle', tags => '{x}')")
	search := admin.JobSearch{Title: "NEEDLE"}
	n, more, err := w.Admin().CountFoundJobs(t.Context(), search, last+1, 10_000, time.Minute)
	if err != nil || n != 450 || more {
		t.Errorf("%d jobs are found, more %v, %v", n, more, err)
	}
	changed, parts := int64(0), 0
	for before := last + 1; before > 0; parts++ {
		next, jobs, err := w.Admin().SteerFoundJobs(t.Context(), "cancel", search, before, "test", "")
		if err != nil || next >= before {
			t.Fatalf("below %d it goes on below %d, %v", before, next, err)
		}
		changed += jobs
		before = next
	}
	if changed != 445 || parts < 3 {
		t.Errorf("%d jobs are changed in %d parts", changed, parts)
	}
	const left = "select count(*)::int from posthorn.jobs where title = $1 and status = $2"
	testworld.Equal(t, "the needle that came later", testworld.Ask[int](w, left, "a needle", "PENDING"), 1)
	testworld.Equal(t, "hay", testworld.Ask[int](w, left, "hay", "PENDING"), 445)
	if _, err := w.Admin().SteerChosenJobs(t.Context(), "eat", []int64{1}, "", ""); !errors.Is(err, pg.ErrInvalid) {
		t.Errorf("another action: %v", err)
	}
}

// Of the jobs that were chosen those are changed that are there, once each, and none of another namespace.
func TestSteerChosenJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select posthorn.define_namespace('other')")
	job := testworld.Ask[int64](w, "select posthorn.enqueue('default', 'here')")
	foreign := testworld.Ask[int64](w, "select posthorn.enqueue('other', 'there')")
	done := testworld.Ask[int64](w, "select posthorn.enqueue('default', 'done', tags => '{x}')")
	w.Exec("select posthorn.complete_job(j.id, 'w') from posthorn.claim_jobs('default', 'w', '{x}', 1) j")
	const null = "select posthorn.steer_chosen_jobs(null, 'cancel', array[$1::bigint])"
	if _, err := w.Pool().Exec(t.Context(), null, foreign); err == nil {
		t.Error("jobs are changed without a namespace")
	}
	changed, err := w.Admin().SteerChosenJobs(t.Context(), "cancel", []int64{foreign, done, job, job, 4711}, "test", "")
	if err != nil || changed != 1 {
		t.Errorf("%d jobs are changed, %v", changed, err)
	}
	testworld.Equal(t, "statuses", testworld.Ask[string](w, "select string_agg(status, ' ' order by id) from posthorn.jobs"), "CANCELLED PENDING COMPLETED")
}

// All jobs of a status and tags are changed by one call, in several transactions. The audit log
// has one entry, with the error of a call that failed.
func TestRetryJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select count(posthorn.enqueue('default', 'x', tags => '{a}')) from generate_series(1, 450)")
	w.Exec("select count(posthorn.fail_job(j.id, 'w', permanent => true)) from posthorn.claim_jobs('default', 'w', '{a}', 450) j")
	ann := w.Admin().By("ann")
	failed := admin.JobFilter{Status: "failed", Tags: []string{"a"}}
	if n, err := ann.RetryJobs(t.Context(), failed, "mended"); err != nil || n != 450 {
		t.Errorf("retried %d jobs, %v", n, err)
	}
	if n, err := ann.RetryJobs(t.Context(), admin.JobFilter{Status: admin.JobCompleted}, ""); err == nil {
		t.Errorf("retried %d completed jobs", n)
	}
	actions, err := ann.Actions(t.Context(), 0, 10)
	if err != nil || len(actions) != 2 {
		t.Fatalf("the audit log has %+v, %v", actions, err)
	}
	if a := actions[1]; a.Name != "retry-jobs" || a.Done != 450 || a.EndedAt.IsZero() || a.Error != "" {
		t.Errorf("the entry of the retry is %+v", a)
	}
	if a := actions[0]; a.Done != 0 || a.EndedAt.IsZero() || a.Error == "" {
		t.Errorf("the entry of the call that failed is %+v", a)
	}
	failed.Limit = 10
	if _, err := ann.RetryJobs(t.Context(), failed, ""); err == nil {
		t.Error("a limit was accepted, and has no effect")
	}
}

// Before an action on jobs they are counted up to a bound, in all places where they wait.
func TestCountJobsToSteer(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select posthorn.set_job_limit('default', 'held', 1)")
	w.Exec("select count(posthorn.enqueue('default', 'x', tags => '{a,b}')) from generate_series(1, 5)")
	w.Exec("select count(posthorn.enqueue('default', 'x', tags => '{a}', run_at => now() + interval '1 hour')) from generate_series(1, 3)")
	w.Exec("select count(posthorn.enqueue('default', 'x', tags => '{a,held}')) from generate_series(1, 4)")
	w.Exec("select count(*) from posthorn.claim_jobs('default', 'w', '{held}', 4)") // one; the others are held back
	for _, c := range []struct {
		status string
		tags   []string
		n      int64
	}{
		{"PENDING", nil, 11},
		{"PENDING", []string{"a"}, 11},
		{"PENDING", []string{"b"}, 5},
		{"PENDING", []string{"a", "b"}, 11},
		{"PENDING", []string{"held"}, 3},
		{"PENDING", []string{"none"}, 0},
		{"PROCESSING", nil, 1},
		{"PROCESSING", []string{"b"}, 0},
		{"FAILED", nil, 0},
	} {
		n, more, err := w.Admin().CountJobsToSteer(t.Context(), admin.JobFilter{Status: c.status, Tags: c.tags})
		if err != nil || n != c.n || more {
			t.Errorf("%s %q: %d jobs, more: %v, %v; want %d", c.status, c.tags, n, more, err, c.n)
		}
	}
	if !testworld.Ask[bool](w, "select more from posthorn.count_jobs_to_steer('default', 'PENDING', most => 5)") {
		t.Error("it has looked at 5 of 10 ready rows, and does not say that there are more")
	}
}

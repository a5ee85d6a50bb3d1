package admin_test

import (
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// Jobs of a state that stand behind many of another one are counted.
func TestJobCountsSeeEachState(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	execIn(t, ph,
		"select posthorn.enqueue('default', 'x', tags => '{later}', run_at => now() + interval '1 hour') from generate_series(1, 30)",
		"select posthorn.enqueue('default', 'x', tags => '{retry}') from generate_series(1, 3)",
		work("default", "retry", 3, "posthorn.fail_job(j.id, 'w', 'broken', retry_in => '2 hours')"),
		"select posthorn.pause_job_tag('default', 'paused'), posthorn.set_job_limit('default', 'full', max_running => 1)",
		"select posthorn.enqueue('default', 'x', tags => '{paused}') from generate_series(1, 30)",
		"select posthorn.enqueue('default', 'x', tags => '{full}') from generate_series(1, 5)",
		"select posthorn.enqueue('default', 'x', tags => '{full,paused}') from generate_series(1, 2)",
		"select posthorn.claim_jobs('default', 'w', '{full}', 1)")
	counts, err := ph.Admin().JobCounts(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, c := range counts {
		got[c.State] = c.Jobs
	}
	for state, want := range map[string]int64{"later": 10, "retry": 3, "paused": 10, "held back by a limit": 4, "running": 1, "ready": 0} {
		if got[state] != want {
			t.Errorf("%d jobs are counted as %s, not %d", got[state], state, want)
		}
	}
}

// A search for a state makes out that of a few hundred jobs at a time, and goes on behind them.
func TestStatesAreFoundBehindManyJobs(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	execIn(t, ph,
		"select posthorn.enqueue('default', 'x', tags => '{wanted}') from generate_series(1, 3)",
		"select posthorn.pause_job_tag('default', 'paused')",
		"select posthorn.enqueue('default', 'x', tags => '{paused}') from generate_series(1, 450)",
		"select posthorn.enqueue('default', 'x', tags => '{later}', run_at => now() + interval '1 hour') from generate_series(1, 300)")
	for state, want := range map[string]int{"ready": 3, "paused": 450, "later": 300, "retry": 0} {
		found, calls := 0, 0
		for before := int64(0); ; calls++ {
			jobs, next, err := a.SearchJobs(t.Context(), admin.JobSearch{JobFilter: admin.JobFilter{State: state, Limit: 1000}}, before)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				if j.State != state {
					t.Errorf("a job that is %s is found as %s", j.State, state)
				}
			}
			if found += len(jobs); next == 0 {
				break
			}
			before = next
		}
		if found != want || state == "ready" && calls != 2 {
			t.Errorf("%d jobs that are %s are found in %d further calls, not %d", found, state, calls, want)
		}
	}
}

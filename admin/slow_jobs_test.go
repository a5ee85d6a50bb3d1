package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// foundInJobs returns the finding of a kind among those about jobs.
func foundInJobs(t *testing.T, a *admin.Admin, kind string) (one admin.Finding) {
	t.Helper()
	all, err := a.Findings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Check == "jobs" && f.Kind == kind {
			one = f
		}
	}
	return one
}

// aHeartbeat is one of all workers.
const aHeartbeat = "update posthorn.running_jobs set seen_at = posthorn.now(), lease_until = posthorn.now() + interval '1 minute'"

// A job that hangs while its worker sends heartbeats is compared with the jobs of its tag, on its own page, in the list of busy
// workers and by the doctor. One with a tag
// that has few jobs, one without tags, one that took as long before, and one of a silent worker are not slow.
func TestSlowJobs(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	tend(t, ph, 2*time.Minute)
	execIn(t, ph,
		`select posthorn.enqueue('default', 'export', tags => '{export,tenant:7}') from generate_series(1, 25) i`,
		`select posthorn.enqueue('default', 'backup', tags => '{backup}') from generate_series(1, 25) i`,
		`select posthorn.enqueue('default', 'rare', tags => '{rare}') from generate_series(1, 19) i`)
	execIn(t, ph, work("default", "export", 25, completeJob), work("default", "rare", 19, completeJob),
		work("default", "backup", 25, "posthorn.complete_job(j.id, 'w', execution_time_ms => 600000)"))
	tend(t, ph, time.Minute)
	execIn(t, ph, `select posthorn.enqueue('default', x.title, tags => x.tags) from (values
		('hangs', '{export,tenant:7}'::text[]), ('backup', '{backup}'), ('rare', '{rare}'), ('silent', '{export}'), ('mixed', '{export,rare}'), ('untagged', '{}')) x (title, tags)`,
		`select posthorn.claim_jobs('default', 'w', '{export,backup,rare}', 10), posthorn.claim_jobs('default', 'w', '{}', 10)`)
	posthorntest.Advance(t, ph, 30*time.Second)
	execIn(t, ph, aHeartbeat)
	busy := func(trouble string) (all []string) {
		t.Helper()
		work, err := a.BusyWorkersInTrouble(t.Context(), trouble, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range work {
			all = append(all, fmt.Sprintf("%s slow=%v stalled=%v %s", b.Name, b.Slow, b.Stalled, b.Why))
		}
		return all
	}
	if slow := busy("slow"); len(slow) > 0 {
		t.Errorf("after half a minute %q are slow", slow)
	}
	posthorntest.Advance(t, ph, 47*time.Minute)
	execIn(t, ph, aHeartbeat+" where job <> (select id from posthorn.jobs where title = 'silent')")

	if slow := busy("slow"); len(slow) != 1 || slow[0] != "hangs slow=true stalled=false usually 3s" {
		t.Errorf("the slow jobs are %q", slow)
	}
	if stalled := busy("stalled"); len(stalled) != 1 || stalled[0] != "silent slow=false stalled=true silent for 47m, others get it now; usually 3s" {
		t.Errorf("the stalled jobs are %q", stalled)
	}
	all := strings.Join(busy(""), "\n")
	for _, want := range []string{"hangs slow=true", "backup slow=false stalled=false usually 10m", "rare slow=false stalled=false \n", "silent slow=false", "mixed slow=false stalled=false \n", "untagged slow=false stalled=false \n"} {
		if !strings.Contains(all+"\n", want) {
			t.Errorf("%q is not among the busy workers:\n%s", want, all)
		}
	}
	jobs, err := a.Jobs(t.Context(), admin.JobFilter{Status: admin.JobProcessing})
	if err != nil || len(jobs) != 6 || !strings.HasPrefix(jobs[0].Why, "w has had it for 47m") || !strings.HasSuffix(jobs[0].Why, " take 3s at most") {
		t.Errorf("the jobs are %+v, %v", jobs, err)
	}
	id := jobs[0].ID
	f := foundInJobs(t, a, "slow jobs")
	if !strings.HasPrefix(f.Found, fmt.Sprintf("1 job in namespace default has run for far longer than is usual: job %d of worker w for 47m", id)) || !strings.HasSuffix(f.Found, ", usually 3s") || !f.Failing || f.Size != 1 {
		t.Errorf("the doctor finds %+v", f)
	}
	if f := foundInJobs(t, a, "stalled jobs"); !strings.Contains(f.Found, fmt.Sprintf("; w has job %d", jobs[3].ID)) {
		t.Errorf("of the silent worker the doctor finds %+v", f)
	}
}

// The jobs of a worker that fell silent are named with it until another worker takes them, or they are done. They are not
// among those that no worker takes, unless others of their tag are.
func TestWorkersThatFellSilent(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	execIn(t, ph, `select posthorn.enqueue('default', 'x', tags => '{mail}') from generate_series(1, 3)`,
		`select posthorn.claim_jobs('default', 'host:1', '{mail}', 2)`,
		`select posthorn.enqueue('default', 'y', tags => '{sms}')`, `select posthorn.claim_jobs('default', 'host:1', '{sms}')`)
	posthorntest.Advance(t, ph, 10*time.Minute)
	execIn(t, ph, `select posthorn.expire_jobs()`)
	posthorntest.Advance(t, ph, time.Minute)
	const kind = "workers that fell silent"
	if f := foundInJobs(t, a, kind); !strings.HasPrefix(f.Found, "worker host:1 of namespace default fell silent, and lost its jobs 1m") || !strings.HasSuffix(f.Found, " ago; jobs 1, 2 and 4 wait for another one") || f.Subject != "host:1" || f.Size != 3 {
		t.Errorf("the doctor finds %+v", f)
	}
	if f := foundInJobs(t, a, "tags with jobs that no worker takes"); f.Subject != "mail" || f.Size != 3 {
		t.Errorf("of jobs that no worker takes the doctor finds %+v", f)
	}
	j, err := a.Job(t.Context(), 1)
	if err != nil || !strings.HasPrefix(j.Why, "its worker host:1 fell silent, and lost it 1m") || !strings.Contains(j.Why, " ago; no other one has taken it") {
		t.Errorf("the job says %q, %v", j.Why, err)
	}
	execIn(t, ph, work("default", "mail", 2, completeJob), work("default", "sms", 1, completeJob))
	if f := foundInJobs(t, a, kind); f.Found != "" {
		t.Errorf("after they are done the doctor finds %+v", f)
	}
}

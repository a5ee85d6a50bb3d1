package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// Of each tag one look says what waits and since when, what runs of which limit, and why the others wait.
func TestJobTags(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	execIn(t, ph,
		`select posthorn.set_job_limit('default', 'tenant:*', max_running => 2)`,
		`select posthorn.enqueue('default', 'x', tags => array['mail', 'tenant:' || t]) from generate_series(7, 8) t, generate_series(1, 5)`,
		`select posthorn.enqueue('default', 'x', tags => '{idle}', run_at => posthorn.now() - interval '10 minutes')`,
		`select posthorn.enqueue('default', 'x', tags => '{stopped}')`, `select posthorn.pause_job_tag('default', 'stopped')`,
		`select posthorn.enqueue('default', 'x', tags => '{later}', run_at => posthorn.now() + interval '1 hour')`,
		`select posthorn.claim_jobs('default', 'w', '{mail}', 4)`)
	posthorntest.Advance(t, ph, 3*time.Minute)
	tags := func(names ...string) map[string]string {
		t.Helper()
		all, err := a.JobTags(t.Context(), names, 20)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]string{}
		for _, tag := range all {
			limit, since := "any number", "nothing"
			if tag.MaxRunning != nil {
				limit = fmt.Sprint(*tag.MaxRunning)
			}
			if !tag.WaitingSince.IsZero() {
				now, err := a.Now(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				since = now.Sub(tag.WaitingSince).Round(time.Minute).String()
			}
			said[tag.Tag] = fmt.Sprintf("%d wait since %s, %d of %s run, %.2f of all: %s", tag.Waiting, since, tag.Running, limit, tag.Share, tag.Why)
		}
		return said
	}
	want := map[string]string{
		"tenant:7": "3 wait since 3m0s, 2 of 2 run, 0.50 of all: held back: tenant:7 runs 2 of 2",
		"idle":     "1 wait since 13m0s, 0 of any number run, 0.00 of all: no worker runs any of them",
		"stopped":  "1 wait since 3m0s, 0 of any number run, 0.00 of all: the tag stopped has been paused for 3m",
		"later":    "0 wait since nothing, 0 of any number run, 0.00 of all: ",
	}
	for tag, said := range tags("tenant:7", "idle", "stopped", "later") {
		if said != want[tag] {
			t.Errorf("of %s it is said that %s; want %s", tag, said, want[tag])
		}
	}
	all := tags()
	for _, tag := range []string{"tenant:7", "tenant:8", "mail", "idle", "stopped"} {
		if all[tag] == "" {
			t.Errorf("tag %s is not among those with jobs: %v", tag, all)
		}
	}
	if all["later"] != "" {
		t.Errorf("tag later has no due job, and is listed: %s", all["later"])
	}
	other := admin.New(ph.Pool(), "other")
	execIn(t, ph, "select posthorn.define_namespace('other')")
	if found, err := other.JobTags(t.Context(), nil, 20); err != nil || len(found) > 0 {
		t.Errorf("another namespace has the tags %+v, %v", found, err)
	}
}

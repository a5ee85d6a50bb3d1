package admin_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// seconds are those behind minutes, which depend on how fast the test is.
var seconds = regexp.MustCompile(`m[0-9]+s\b`)

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
			said[tag.Tag] = fmt.Sprintf("%d wait since %s, %d of %s run, %.2f of all: %s", tag.Waiting, since, tag.Running, limit, tag.Share, seconds.ReplaceAllString(tag.Why, "m"))
		}
		return said
	}
	want := map[string]string{
		"tenant:7": "3 wait since 3m0s, 2 of 2 run, 0.50 of all: held back: tenant:7 runs 2 of 2",
		"mail":     "6 wait since 3m0s, 4 of any number run, 1.00 of all: held back: tenant:8 runs 2 of 2",
		"idle":     "1 wait since 13m0s, 0 of any number run, 0.00 of all: no worker runs any of them",
		"stopped":  "1 wait since 3m0s, 0 of any number run, 0.00 of all: the tag stopped has been paused for 3m",
		"later":    "0 wait since nothing, 0 of any number run, 0.00 of all: ",
	}
	said := tags("tenant:7", "mail", "idle", "stopped", "later")
	for tag, wanted := range want {
		if said[tag] != wanted {
			t.Errorf("of %s it is said that %q; want %s", tag, said[tag], wanted)
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

// Jobs with a tag wait because another tag of theirs is paused, whether a claim has found that out for all of them or for none.
func TestJobTagsThatOthersHoldBack(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	said := func() string {
		t.Helper()
		all, err := a.JobTags(t.Context(), []string{"mail"}, 20)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		why, _, _ := strings.Cut(all[0].Why, " for ")
		return fmt.Sprintf("%d since %v: %s", all[0].Waiting, !all[0].WaitingSince.IsZero(), why)
	}
	execIn(t, ph, `select posthorn.pause_job_tag('default', 'tenant:7')`,
		`select posthorn.enqueue('default', 'x', tags => '{mail,tenant:7}') from generate_series(1, 100)`)
	const want = "100 since true: the tag tenant:7 has been paused"
	if got := said(); got != want {
		t.Errorf("before a claim, %s", got)
	}
	execIn(t, ph, `select posthorn.claim_jobs('default', 'w', '{mail}', 200)`)
	if got := said(); got != want {
		t.Errorf("after a claim, %s", got)
	}
	if all, err := a.JobTags(t.Context(), nil, 20); err != nil || len(all) != 2 {
		t.Errorf("the tags are %+v, %v", all, err)
	}
}

// Of more than a thousand tags, those are looked at whose jobs have been due longest.
func TestManyJobTags(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	execIn(t, ph, `select posthorn.enqueue('default', 'x', tags => array['t' || lpad(i::text, 4, '0')], run_at => posthorn.now() - make_interval(secs => i))
		from generate_series(1, 1200) i`)
	all, err := ph.Admin().JobTags(t.Context(), nil, 1000)
	if err != nil || len(all) != 1000 {
		t.Fatalf("there are %d tags, %v", len(all), err)
	}
	for _, tag := range all {
		if tag.Tag < "t0201" {
			t.Errorf("tag %s is listed, whose job is due since %v", tag.Tag, tag.WaitingSince)
		}
	}
}

// Each tag has a verdict: a limit that it has used up does not starve it, unless the limit allows none or is that of another tag.
func TestVerdictsOnTags(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	w.Exec("select posthorn.set_job_limit('default', tag, max_running => most) from (values ('tenant:*', 2), ('own', 1), ('closed', 0)) x (tag, most)")
	w.Exec("select posthorn.set_job_limit('default', 'often', max_started => 1, period => '1 day'), posthorn.pause_job_tag('default', 'stopped')")
	for tags, jobs := range map[string]int{"{tenant:7}": 3, "{two,tenant:7}": 1, "{many,stopped}": 1, "{many}": 1, "{own}": 2, "{closed}": 1, "{often}": 2, "{mail,tenant:7}": 1, "{idle}": 1, "{crowded}": 2, "{stopped}": 1, "{busy}": 1} {
		w.Exec("select posthorn.enqueue('default', 'x', tags => $1::text[], priority => case $1 when '{mail,tenant:7}' then -1 when '{many,stopped}' then 1 else 0 end) from generate_series(1, $2::int)", tags, jobs)
	}
	for tag, jobs := range map[string]int{"tenant:7": 2, "own": 1, "often": 1, "crowded": 1, "busy": 1} {
		w.Exec("select posthorn.claim_jobs('default', 'w', array[$1::text], $2::int, lease_for => '1 day')", tag, jobs)
	}
	w.Exec("select posthorn.claim_jobs('default', 'w', '{two}', 1, lease_for => '1 day')") // tenant:7 has no room for it
	want := map[string]string{
		"two": "held back: tenant:7 runs 2 of 2", "many": "held back: the tag stopped has been paused for 1m",
		"tenant:7": "not starved: it runs 2 of the 2 that tenant:* allows", "own": "not starved: it runs 1 of the 1 that its limit allows",
		"closed": "held back: closed runs 0 of 0", "often": "not starved: it has started 1 of 1 in 24h", "mail": "held back: tenant:7 runs 2 of 2",
		"idle": "not starved: its first job has waited for 1m", "crowded": "not starved: it runs 1, 17% of all jobs that run", "stopped": "paused: for 1m",
		"busy": "not starved: it runs 1, 17% of all jobs that run", "none": "not starved: no job of it waits or runs",
	}
	check := func() {
		t.Helper()
		got := map[string]string{}
		tags, err := w.Admin().JobTags(t.Context(), slices.Collect(maps.Keys(want)), 20)
		for _, tag := range tags {
			got[tag.Tag] = tag.Verdict + ": " + tag.Standing
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the verdicts (-want +got), %v:\n%s", err, diff)
		}
	}
	move(time.Minute)
	check()
	move(4 * time.Minute)
	want["idle"], want["stopped"] = "no worker: none runs any of its jobs", "paused: for 5m"
	want["many"] = "held back: the tag stopped has been paused for 5m"
	check()
	move(54 * time.Minute)
	w.Exec("select posthorn.enqueue('default', 'x', tags => '{two,tenant:9}')")
	move(time.Minute)
	want["two"], want["many"] = "not starved: its first job has waited for 1m", want["idle"]
	want["crowded"], want["stopped"] = "starved: it runs 1, 17% of all jobs that run", "paused: for 1h"
	check()
}

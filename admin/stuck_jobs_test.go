package admin_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/op"
)

// stuckIn returns the stuck jobs with a trouble, or all for "", in words.
func stuckIn(t *testing.T, w *testworld.World, trouble string) (all []string) {
	t.Helper()
	jobs, err := w.Admin().StuckJobs(t.Context(), trouble, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		all = append(all, fmt.Sprintf("%s: %s for %v, %d others of %q: %s: %s", j.Title, j.Trouble, time.Duration(j.Seconds)*time.Second, j.Others, j.Tag, j.Why, j.Helps))
	}
	return all
}

// Each job that does not go on by itself is listed with its reason and since when, the longest first; many of one reason have one
// row, which counts the others. Jobs that wait for their time, for an event or for a moment are not stuck.
func TestStuckJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	w.Exec(`select posthorn.enqueue('default', 'silent', tags => '{silent}'), posthorn.enqueue('default', 'lost', tags => '{lost}'),
		posthorn.enqueue('default', 'failed', tags => '{failed}'), posthorn.enqueue('default', 'later', tags => '{later}', run_at => posthorn.now() + interval '1 day'),
		posthorn.enqueue('default', 'sleeps', tags => '{sleeps}')`)
	w.Exec("select posthorn.enqueue('default', 'behind', after => '{3}'), posthorn.enqueue('default', 'behind that', after => '{6}')")
	w.Exec("select posthorn.enqueue('default', 'also silent', tags => '{silent}'), posthorn.enqueue('default', 'also lost', tags => '{lost}')")
	w.Exec("select posthorn.claim_jobs('default', 'w1', '{silent}', 2, lease_for => '1 day'), posthorn.claim_jobs('default', 'w2', '{lost}', 2, lease_for => '1 minute')")
	w.Exec("select posthorn.sleep_job(j.id, 'w3', 'night', '1 day') from posthorn.claim_jobs('default', 'w3', '{sleeps}') j")
	w.Exec("select posthorn.fail_job(j.id, 'w3', 'refused', permanent => true) from posthorn.claim_jobs('default', 'w3', '{failed}') j")
	move(2 * time.Minute)
	w.Exec("select posthorn.expire_jobs()")
	w.Exec("select posthorn.set_job_limit('default', 'tenant:*', max_running => 1), posthorn.pause_job_tag('default', 'mail')")
	w.Exec("select posthorn.enqueue('default', 'tenant ' || i, tags => '{tenant:7}') from generate_series(1, 3) i")
	w.Exec("select posthorn.enqueue('default', 'mail', tags => '{mail}'), posthorn.enqueue('default', 'nobody', tags => '{rare}') from generate_series(1, 2)")
	w.Exec("select posthorn.enqueue('default', 'untagged')")
	w.Exec("select posthorn.claim_jobs('default', 'w4', '{tenant:7}', lease_for => '1 day')")
	const heartbeat = "update posthorn.running_jobs set seen_at = posthorn.now() where worker <> 'w1'"
	move(5 * time.Minute)
	w.Exec(heartbeat)
	if early := stuckIn(t, w, ""); len(early) != 3 {
		t.Errorf("after 5 minutes %q are stuck", early)
	}
	move(time.Minute)
	w.Exec(heartbeat)
	want := []string{
		"silent: stalled for 8m0s, 1 others of \"\": on w1: restart w1 or retry; others get them in 23h52m",
		"failed: blocks others for 8m0s, 2 others of \"\": since it failed: refused: retry it or cancel those behind",
		"lost: lost for 6m0s, 1 others of \"\": by w2: start w2 or another worker",
		"tenant 2: held back for 6m0s, 1 others of \"tenant:7\": by the limit of tenant:*: tenant:7 runs 1 of 1: raise the limit of tenant:*, or give tenant:7 its own",
		"mail: held back for 6m0s, 1 others of \"mail\": by the pause of mail: resume mail",
		"nobody: not taken for 6m0s, 1 others of \"rare\": no worker for rare: start a worker",
		"untagged: not taken for 6m0s, 0 others of \"\": no worker for jobs without tags: start a worker",
	}
	if got := stuckIn(t, w, ""); !slices.Equal(got, want) {
		t.Errorf("the stuck jobs are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if lost := stuckIn(t, w, "lost"); len(lost) != 1 || lost[0] != want[2] {
		t.Errorf("%q are lost", lost)
	}
	if first, err := w.Admin().StuckJobs(t.Context(), "", 1); err != nil || len(first) != 1 || first[0].Seconds != 480 {
		t.Errorf("the job that has been stuck longest is %+v, %v", first, err)
	}
	w.Exec("select posthorn.define_namespace('other')")
	untagged := testworld.Ask[int64](w, "select id from posthorn.jobs where title = 'untagged'")
	for _, c := range []struct {
		trouble string
		id      int64
		want    []int64
	}{{"lost", 2, []int64{2, 9}}, {"lost", 1, nil}, {"blocks others", 3, []int64{6, 7}}, {"blocks others", 6, nil}, {"not taken", untagged, []int64{untagged}}} {
		var ids []int64
		jobs, err := w.Admin().StuckWith(t.Context(), c.trouble, c.id, 100)
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		if slices.Sort(ids); err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("for job %d, which is %s, stand the jobs %v, %v, not %v", c.id, c.trouble, ids, err, c.want)
		}
		if jobs, err := admin.New(w.Pool(), "other").StuckWith(t.Context(), c.trouble, c.id, 100); err != nil || len(jobs) > 0 {
			t.Errorf("in another namespace job %d stands for %+v, %v", c.id, jobs, err)
		}
	}
}

// A job that is held back says whether a pause or a limit does so, and that of which tag or pattern, also if a tag matches several.
func TestHeldBackBySomething(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	w.Exec("select posthorn.set_job_limit('default', tag, max_running => most) from (values ('own', 1), ('shop:*', 9), ('shop:7:*', 1), ('closed', 0)) x (tag, most)")
	w.Exec("select posthorn.pause_job_tag('default', 'news:*'), posthorn.pause_job_tag('default', 'shop:8')")
	for _, tag := range []string{"own", "shop:7:a", "shop:8", "closed", "news:1"} {
		w.Exec("select posthorn.enqueue('default', $1::text, tags => array['any', $1::text]) from generate_series(1, 2)", tag)
		w.Exec("select posthorn.claim_jobs('default', 'w', array[$1::text], 1, lease_for => '1 day')", tag)
	}
	move(6 * time.Minute)
	want := []string{
		`own: held back for 6m0s, 0 others of "own": by a limit: own runs 1 of 1: raise the limit of own`,
		`shop:7:a: held back for 6m0s, 0 others of "shop:7:a": by the limit of shop:7:*: shop:7:a runs 1 of 1: raise the limit of shop:7:*, or give shop:7:a its own`,
		`shop:8: held back for 6m0s, 1 others of "shop:8": by the pause of shop:8: resume shop:8`,
		`closed: held back for 6m0s, 1 others of "closed": by a limit: closed runs 0 of 0: raise the limit of closed`,
		`news:1: held back for 6m0s, 1 others of "news:1": by the pause of news:*: news:1: resume news:*`,
	}
	if got := stuckIn(t, w, "held back"); !slices.Equal(got, want) {
		t.Errorf("the jobs that are held back are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The step of a wait is saved when the wait ends, and not when it begins.
func TestWaitIsSavedAtItsEnd(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	const await = "select posthorn.await_event(1, 'w', 'paid', 'payment.settled', 'o-15', '1 hour')"
	saved := func() time.Time {
		t.Helper()
		steps, err := w.Admin().JobSteps(t.Context(), 1)
		if err != nil || len(steps) != 1 {
			t.Fatalf("the steps are %+v, %v", steps, err)
		}
		return steps[0].SavedAt
	}
	w.Exec("select posthorn.enqueue('default', 'ship', tags => '{x}')")
	w.Exec("select posthorn.claim_jobs('default', 'w', '{x}')")
	w.Exec(await)
	began := saved()
	move(2 * time.Hour)
	w.Exec("select posthorn.promote_jobs()")
	w.Exec("select posthorn.claim_jobs('default', 'w', '{x}')")
	if waits := saved(); !waits.Equal(began) {
		t.Errorf("a wait from %v on is saved at %v", began, waits)
	}
	w.Exec(await)
	if took := saved().Sub(began); took != 2*time.Hour {
		t.Errorf("the wait is saved %v after its beginning", took)
	}
}

// A job that is slow is stuck, while its worker goes on; so is one that waits for a job that was deleted, and the tag of which only
// some jobs are run is stuck after an hour.
func TestMoreStuckJobs(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	w.Exec("select posthorn.tend()")
	move(time.Second)
	w.Exec("select posthorn.enqueue('default', 'export', tags => '{export}') from generate_series(1, 25)")
	w.Exec("select posthorn.complete_job(j.id, 'w', execution_time_ms => 3000) from posthorn.claim_jobs('default', 'w', '{export}', 25) j")
	move(time.Minute)
	w.Exec("select posthorn.tend()")
	w.Exec("select posthorn.enqueue('default', 'hangs', tags => '{export}'), posthorn.enqueue('default', 'hangs too', tags => '{export}'), posthorn.enqueue('default', 'starves', tags => '{export}')")
	w.Exec("select posthorn.enqueue('default', 'first')")
	w.Exec("select posthorn.enqueue('default', 'second', after => array[(select max(id) from posthorn.jobs)])")
	w.Exec("select posthorn.claim_jobs('default', 'w', '{export}', 2, lease_for => '1 day')")
	w.Exec("alter table posthorn.enqueued_jobs disable trigger all; delete from posthorn.enqueued_jobs where title = 'first'; delete from posthorn.ready_jobs where tag = ''")
	const heartbeat = "update posthorn.running_jobs set seen_at = posthorn.now()"
	move(59 * time.Minute)
	w.Exec(heartbeat)
	if got := stuckIn(t, w, "not taken"); len(got) > 0 {
		t.Errorf("within the hour %q are not taken", got)
	}
	move(2 * time.Minute)
	w.Exec(heartbeat)
	want := []string{
		"hangs: slow for 1h1m0s, 1 others of \"\": on w; usually 3s: look at w or retry it",
		"starves: not taken for 1h1m0s, 0 others of \"export\": the workers are busy with others of export: start more workers",
		"second: blocks others for 1h1m0s, 0 others of \"\": job 29, which it waits for, was deleted: cancel it",
	}
	if got := stuckIn(t, w, ""); !slices.Equal(got, want) {
		t.Errorf("the stuck jobs are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := w.Admin().StuckJobs(t.Context(), "tired", 100); err == nil || !strings.Contains(err.Error(), "there is no trouble tired") {
		t.Errorf("a trouble that does not exist is %v", err)
	}
	field, _ := reflect.TypeFor[op.ListStuckJobsInput]().FieldByName("Trouble")
	testworld.Equal(t, "the troubles", strings.Split(field.Tag.Get("enum"), ","), testworld.Ask[[]string](w, "select posthorn.stuck_troubles()"))
}

// Each state of a job has its sentence, and the name of the time at which the job goes on. The event of a wait has its key for callers
// who may read all streams.
func TestJobsStand(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	w.Exec(`select posthorn.enqueue('default', 'j', tags => array['t' || i], retry_delays => '{1 hour}') from generate_series(1, 7) i`)
	w.Exec("select posthorn.enqueue('default', 'later', run_at => posthorn.now() + interval '1 day'), posthorn.enqueue('default', 'behind', after => '{1}')")
	w.Exec("select posthorn.claim_jobs('default', 'w', '{t2,t3,t4,t5,t6,t7}', 10)")
	w.Exec("select posthorn.fail_job(3, 'w', 'refused'), posthorn.sleep_job(4, 'w', 'night', '1 day'), posthorn.await_event(5, 'w', 'paid', 'payment.settled', 'o-17', '1 day')")
	w.Exec("select posthorn.complete_job(6, 'w'), posthorn.fail_job(7, 'w', 'no such card.', permanent => true)")
	move(100 * time.Second)
	for id, want := range map[int64]string{
		1: "It is ready: has waited for a worker for 1m40s.", 2: "It is running: w has sent no heartbeat for 1m40s.",
		3: "It will run again: retry 1 of 2 in 58m20s: refused.next retry", 4: "It sleeps: night, for 23h58m.sleeps until",
		5: "It waits for payment.settled of o-17, for up to 23h58m, and has waited for 1m40s.waits until",
		6: "It was completed 1m40s ago.", 7: "It failed for good after 1 failure, 1m40s ago: no such card.",
		8: "It is due in 23h58m.", 9: "It is behind job 1.",
	} {
		o, err := w.Admin().JobOutlook(t.Context(), id)
		if got := o.Standing + o.GoesOn; err != nil || got != want {
			t.Errorf("job %d stands at %q, %v, not at %q", id, got, err, want)
		}
	}
	const named, nameless = "waits for payment.settled of o-17, for up to 23h58m, and has waited for 1m40s", "waits for payment.settled, for up to 23h58m"
	for _, c := range []struct {
		hidden []string
		want   string
	}{{nil, named}, {[]string{"secret"}, nameless}} {
		a := w.Admin().Hiding(c.hidden)
		one, err := a.Job(t.Context(), 5)
		if err != nil || one.Why != c.want {
			t.Errorf("the job %q, %v, and should %q", one.Why, err, c.want)
		}
		some, err := a.Jobs(t.Context(), admin.JobFilter{State: "waiting for an event"})
		if err != nil || len(some) != 1 || some[0].Why != c.want {
			t.Errorf("the listed jobs are %+v, %v", some, err)
		}
		found, _, err := a.SearchJobs(t.Context(), admin.JobSearch{Title: "j"}, 0)
		if err != nil || len(found) != 7 || found[2].Why != c.want {
			t.Errorf("the found jobs are %+v, %v", found, err)
		}
		o, err := a.JobOutlook(t.Context(), 5)
		if err != nil || o.Standing != "It "+c.want+"." {
			t.Errorf("the job stands at %q, %v", o.Standing, err)
		}
	}
}

// People look for a tag and for a worker by a part of their names.
func TestTagsAndWorkersAreFound(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec(`select posthorn.enqueue('default', 'x', tags => '{tenant:7}'), posthorn.enqueue('default', 'x', tags => '{tenant:77}'), posthorn.enqueue('default', 'x', tags => '{mail}')`)
	w.Exec("select posthorn.claim_jobs('default', 'Packer-1', '{mail}'), posthorn.set_job_limit('default', 'rare', max_running => 1)")
	w.Exec("select posthorn.register_node('default', 'node-9', display_name => 'Packer of the shop')")
	for part, want := range map[string]string{"tenant 7": "tenant:7 tenant:77", "TENANT:77": "tenant:77", "mail": "mail", "rar": "rare", ":": "", "none": ""} {
		tags, err := w.Admin().FindJobTags(t.Context(), part, 20)
		if got := strings.Join(tags, " "); err != nil || got != want {
			t.Errorf("%q finds the tags %q, %v, not %q", part, got, err, want)
		}
	}
	workers, err := w.Admin().FindWorkers(t.Context(), "packer", 20)
	if err != nil || fmt.Sprint(workers) != "[{Packer-1  1 0} {node-9 Packer of the shop 0 0}]" {
		t.Errorf("the workers are %v, %v", workers, err)
	}
	if workers, err := w.Admin().FindWorkers(t.Context(), "", 20); err != nil || len(workers) > 0 {
		t.Errorf("nothing finds %v, %v", workers, err)
	}
}

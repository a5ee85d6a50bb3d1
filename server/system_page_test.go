package server

import (
	"fmt"
	"html"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
)

// evil is text that others wrote: markup, a script, a mark that turns the direction of
// text, and a control character.
const evil = "<script>alert(1)</script>\u202e\u0007"

// markup is what is between texts: attributes have no bare > in them.
var markup = regexp.MustCompile(`<[^>]*>`)

// wantHarmless fails the test if a page shows evil as anything but text.
func (a answered) wantHarmless(t testing.TB) answered {
	t.Helper()
	a.wantNone(t, "<script>alert")
	answered{body: markup.ReplaceAllString(a.body, "")}.wantNone(t, "\u202e", "\u0007") // a field holds a name as it is
	if !strings.Contains(a.body, "&lt;script&gt;alert(1)") {
		t.Errorf("the text is missing: %s", a.body)
	}
	return a
}

// hidden returns the value of a hidden field of a page's form.
func (a answered) hidden(t testing.TB, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(a.body)
	if found == nil {
		t.Fatalf("the page has no field %s: %s", name, a.body)
	}
	return found[1]
}

// await waits until a query yields true.
func (s *served) await(t testing.TB, condition, query string) {
	t.Helper()
	await.True(t, condition, func() (done bool) {
		if err := s.ph.Pool().QueryRow(t.Context(), query).Scan(&done); err != nil {
			t.Fatal(err)
		}
		return done
	})
}

func TestJobPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	form := b.get("/ui/default/job/enqueue").wantPage(t, 200, `id="job-form"`)
	page := b.post(form, "/ui/default/job/enqueue", url.Values{
		"title": {"send mail"}, "tags": {"mail,urgent"}, "payload": {`{"user": 7}`}, "priority": {"3"}, "run_at": {"2099-01-02T03:04"},
	}).wantPage(t, 200, "Job 1 is enqueued.", "PENDING", "2099-01-02 03:04", "urgent")
	b.get("/ui/default/jobs?status=PENDING&tag=urgent").wantPage(t, 200, "send mail", "jobs/cancel")
	b.get("/ui/default/jobs?tag=none").wantPage(t, 200, "There is no such job.")
	b.get("/ui/default/jobs?status=DONE").wantPage(t, 400, "there is no status DONE")
	form = b.get("/ui/default/job/change?id=1").wantPage(t, 200, "Change job 1")
	b.post(form, "/ui/default/job/change", url.Values{"id": {"1"}, "priority": {"9"}, "payload": {"no json"}}).wantPage(t, 400, "not valid JSON")
	b.post(form, "/ui/default/job/change", url.Values{"id": {"1"}, "priority": {"9"}, "payload": {`{"user": 8}`}}).
		wantPage(t, 200, "Job 1 is changed.", "CHANGED", "priority 9")
	b.post(page, "/ui/default/job/cancel", url.Values{"id": {"1"}, "back": {"/ui/default/job?id=1"}}).wantPage(t, 200, "Job 1 is cancelled.", "CANCELLED")
	b.post(page, "/ui/default/job/delete", url.Values{"id": {"1"}}).wantPage(t, 409, "job 1 is CANCELLED")
	b.get("/ui/default/job?id=77").wantPage(t, 404, "job 77 does not exist")
}

// The page passes each choice for the jobs behind one that is cancelled, and for those behind many.
func TestJobPageChoosesJobsAfter(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	for i, c := range []struct{ choice, status string }{{"", "PENDING"}, {"keep", "PENDING"}, {"cancel", "CANCELLED"}, {"fail", "FAILED"}} {
		one, many := 4*i+1, 4*i+3
		tag := "t" + strconv.Itoa(i)
		for _, id := range []int{one, many} {
			s.exec(t, "select posthorn.enqueue('default', 'first', tags => array[$1])", tag)
			s.exec(t, "select posthorn.enqueue('default', 'second', tags => '{behind}', after => array[$1::bigint])", id)
		}
		b.get(fmt.Sprintf("/ui/default/job?id=%d", one)).wantPage(t, 200, "Cancel …")
		ask := b.get(fmt.Sprintf("/ui/default/job/cancel?id=%d", one)).wantPage(t, 200, "<option>keep</option><option>cancel</option><option>fail</option>")
		b.post(ask, "/ui/default/job/cancel", url.Values{"id": {strconv.Itoa(one)}, "jobs_after": {c.choice}}).
			wantPage(t, 200, fmt.Sprintf("Job %d is cancelled.", one))
		ask = b.get("/ui/default/jobs/cancel?status=PENDING&tag="+tag).wantPage(t, 200, "Cancel 1 job?", "<option>keep</option><option>cancel</option><option>fail</option>")
		b.post(ask, "/ui/default/jobs/cancel", url.Values{"last": {ask.hidden(t, "last")}, "status": {"PENDING"}, "tag": {tag}, "jobs_after": {c.choice}})
		s.await(t, "it is cancelled", fmt.Sprintf("select status = 'CANCELLED' from posthorn.jobs where id = %d", many))
		for _, id := range []int64{int64(one) + 1, int64(many) + 1} {
			equal(t, fmt.Sprintf("job %d, with %q", id, c.choice), s.job(t, id).Status, c.status)
		}
	}
}

func TestJobPageShowsTextOfOthers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.enqueue('default', '<script>alert(1)</script>', json_build_object('a', $1::text), tags => array['<b>x</b>'], max_retries => 0)`, evil)
	s.exec(t, `select posthorn.claim_jobs('default', '<b>w</b>', array['<b>x</b>'])`)
	s.exec(t, `select posthorn.save_step(1, '<b>w</b>', $1, '1')`, "<script>alert(1)</script>\u202e")
	s.exec(t, `select posthorn.fail_job(1, '<b>w</b>', $1)`, evil+strings.Repeat("x", 1<<20))
	b.get("/ui/default/jobs").wantPage(t, 200, "FAILED").wantHarmless(t).wantNone(t, "<b>")
	page := b.get("/ui/default/job?id=1").wantPage(t, 200, "It has failed for good.").wantHarmless(t)
	page.wantNone(t, "<b>x", "<b>w")
	page.wantPage(t, 200, `<title>step &lt;script&gt;alert(1)&lt;/script&gt;\u202e of attempt 1`, "<title>attempt 1 on &lt;b&gt;w&lt;/b&gt;, ", ", then failed: &lt;script&gt;")
	if len(page.body) > 200_000 {
		t.Errorf("the page has %d bytes", len(page.body))
	}
}

// Everything that a filter matches is retried, and the audit log counts it.
func TestRetryAllJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const n = 450
	s.exec(t, fmt.Sprintf(`select posthorn.enqueue('default', 'a', tags => array[case when i %% 3 = 0 then 'x' else 'y' end], max_retries => 0) from generate_series(1, %d) i`, n))
	s.exec(t, `select posthorn.fail_job(j.id, 'w', 'no') from posthorn.claim_jobs('default', 'w', '{x,y}', 1000) j`)
	b := s.visit(t)
	ask := b.get("/ui/default/jobs/retry?status=FAILED&tag=y").wantPage(t, 200, "Retry 300 jobs?")
	fields := url.Values{}
	for _, name := range []string{"last", "expected", "status", "tag"} {
		fields.Set(name, ask.hidden(t, name))
	}
	progress := b.post(ask, "/ui/default/jobs/retry", fields)
	progress.wantPage(t, 200, "retry-jobs")
	s.await(t, "all are pending", `select count(*) = 300 from posthorn.jobs where status = 'PENDING' and 'y' = any (tags)`)
	s.await(t, "the others have failed", `select count(*) = 150 from posthorn.jobs where status = 'FAILED'`)
	s.await(t, "the audit log counts them", `select exists (select from posthorn.list_actions('default') where action = 'retry-jobs' and done = 300 and ended_at is not null)`)
	b.get("/ui/default/jobs/retry?tag=y").wantPage(t, 400, "choose a status first")
}

// More jobs than the page counts are asked for without their number, and the action still
// ends at the last one that was there.
func TestDeleteMoreJobsThanAreCounted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select count(posthorn.enqueue('default', 'a')) from generate_series(1, 10001)`)
	b := s.visit(t)
	ask := b.get("/ui/default/jobs/delete?status=PENDING").wantPage(t, 200, "Delete 10,000 jobs or more?", ">Delete all<")
	if ask.hidden(t, "last") != "10001" || ask.hidden(t, "expected") != "" {
		t.Errorf("it ends at %s, with %q jobs expected", ask.hidden(t, "last"), ask.hidden(t, "expected"))
	}
	b.post(ask, "/ui/default/jobs/delete", url.Values{"status": {"PENDING"}, "last": {"300"}, "expected": {""}}).wantPage(t, 200, "delete-jobs").wantNone(t, `id="progress"`)
	s.await(t, "the audit log counts them", `select exists (select from posthorn.list_actions('default') where done = 300 and expected is null and ended_at is not null)`)
	s.await(t, "the others stay", `select count(*) = 9701 from posthorn.jobs`)
}

// The page lists namespaces, makes them and changes their metadata; for a token of one
// namespace there is only that one.
func TestNamespacePages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/namespaces").wantPage(t, 200, `data-key="default"`, "Make a namespace").wantNone(t, `data-key="shop"`)
	page := b.get("/ui/default/namespace/define").wantPage(t, 200, "Make a namespace, or replace its metadata")
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"shop"}, "metadata": {`{"team": "<b>sales</b>"}`}}).
		wantPage(t, 200, "Namespace shop is defined.", `data-key="shop"`, `<option>shop</option>`, "sales").wantNone(t, "<b>sales")
	b.get("/ui/default/namespace/define?name=shop").wantPage(t, 200, `name="name" value="shop"`, "sales")
	b.get("/ui/default/namespace/define?name=none").wantPage(t, 200, `name="name" value="none"`)
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"shop"}, "metadata": {`[]`}}).wantPage(t, 400, "the metadata is no JSON object")
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"Shop"}}).wantPage(t, 400, "not a valid name")
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"kept"}}).wantPage(t, 200, `data-key="kept"`)
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"kept"}, "metadata": {`{"team": "us"}`}}).wantPage(t, 200, "us")
	b.post(page, "/ui/default/namespace/define", url.Values{"name": {"kept"}}).wantPage(t, 200).wantNone(t, "&#34;us&#34;")
	s.exec(t, `select posthorn.define_namespace('n' || i) from generate_series(101, 160) i`)
	b.get("/ui/default/namespaces").wantPage(t, 200, `data-key="n148"`, "namespaces?after=n148").wantNone(t, `data-key="n149"`)
	b.get("/ui/default/namespaces?after=n148").wantPage(t, 200, `data-key="n149"`, `data-key="shop"`).wantNone(t, `data-key="n148"`)
	b.get("/ui/shop/audit").wantPage(t, 200, "define-namespace")
	bound, token := s.visit(t), s.issue(t, "default", []scope{scopeRead, scopeAdmin})
	s.forget()
	bound.signIn(strings.TrimPrefix(token, "Authorization: Bearer "))
	bound.get("/ui/default/namespaces").wantPage(t, 200, `data-key="default"`, "Change").wantNone(t, "shop", "kept", "Make a namespace")
	page = bound.get("/ui/default/namespace/define?name=shop").wantPage(t, 200)
	page.wantNone(t, "sales")
	bound.post(page, "/ui/default/namespace/define", url.Values{"name": {"third"}}).wantPage(t, 403, "its own namespace")
}

func TestTagPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	page := b.get("/ui/default/job-limits").wantPage(t, 200, "No tag is paused or limited.")
	page = b.post(page, "/ui/default/tag/limit", url.Values{"tag": {"mail"}, "max_running": {"5"}, "max_started": {"100"}, "seconds": {"60"}, "back": {"/ui/default/job-limits"}}).
		wantPage(t, 200, "Tag mail: 5 at once, 100 per 1m0s.", "100 in 60 s")
	page = b.post(page, "/ui/default/tag/pause", url.Values{"tag": {"mail"}, "back": {"/ui/default/job-limits"}}).wantPage(t, 200, ">paused<", "Resume")
	b.post(page, "/ui/default/tag/resume", url.Values{"tag": {"mail"}, "back": {"/ui/default/job-limits"}}).wantNone(t, ">paused<")
	b.post(page, "/ui/default/tag/limit", url.Values{"tag": {"mail"}, "max_running": {"-2"}}).wantPage(t, 400, "max_running is out of range: -2", "from -1 to 1000000000")
	b.get("/ui/default/tag/limit?tag=mail").wantPage(t, 200, `name="max_running" value="5"`, `name="seconds" value="60"`, `aria-current="page">Jobs`)
	b.post(page, "/ui/default/tag/limit", url.Values{"tag": {"mail"}, "max_running": {"0"}}).wantPage(t, 200, "Tag mail: 0 at once.")
	b.post(page, "/ui/default/tag/limit", url.Values{"tag": {"mail"}}).wantPage(t, 200, "Tag mail: no limit.", "No tag is paused or limited.")

	// The limit of a pattern is that of each tag, and starts that nothing limits are not counted.
	s.exec(t, "select posthorn.set_job_limit('default', 'tenant:*', 2)")
	b.get("/ui/default/job-limits").wantPage(t, 200, `<td data-label="Most running" class="n">2 each</td>`, `<td data-label="Started" class="n">–</td>`, "sums of all these tags")
	s.exec(t, "select posthorn.set_job_limit('default', 'tenant:*')")

	// The form has whole seconds, and would cut another period.
	s.exec(t, "select posthorn.set_job_limit('default', 'sms', max_started => 10, period => '1.5 seconds')")
	b.get("/ui/default/tag/limit?tag=sms").wantPage(t, 400, "the period of tag sms is no whole number of seconds", "posthorn jobs limit")
}

func TestSchedulePages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.schedule('default', $1, '0 7 * * *', 'report.due', timezone => 'Europe/Berlin')`, "night<b>ly</b>")
	b := s.visit(t)
	b.get("/ui/default/schedules").wantPage(t, 200, "night&lt;b&gt;ly", "0 7 * * *").wantNone(t, "<b>")
	page := b.get("/ui/default/schedule?name="+url.QueryEscape("night<b>ly</b>")).wantPage(t, 200, "Next times", "Run now")
	back := "/ui/default/schedules"
	b.post(page, "/ui/default/schedule/run", url.Values{"name": {"night<b>ly</b>"}, "back": {back}}).wantPage(t, 200, "has published its event")
	s.await(t, "its event is there", "select exists (select from posthorn.events where type = 'report.due')")
	b.post(page, "/ui/default/schedule/pause", url.Values{"name": {"night<b>ly</b>"}, "back": {back}}).wantPage(t, 200, "paused", "Resume")
	b.get("/ui/default/schedule?name=none").wantPage(t, 404, "none")
}

// A form makes a schedule and changes it, and a question comes before its end.
func TestScheduleForms(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/schedules").wantPage(t, 200, "Make a schedule…")
	page := b.get("/ui/default/schedule/put").wantPage(t, 200, `name="name"`, `name="cron_expression"`, `<textarea id="f-payload"`, `<option value="once">Once for all of them</option>`)
	fields := url.Values{
		"name": {"nightly"}, "cron_expression": {"0 7 * * *"}, "event_type": {"report.due"}, "payload": {`{"a": "<b>"}`}, "metadata": {`{"m": 1}`},
		"catch_up": {"all"}, "timezone": {"Europe/Berlin"}, "key": {"k"},
	}
	page = b.post(page, "/ui/default/schedule/put", fields).wantPage(t, 200, "Schedule nightly is active.", "Europe/Berlin", "key <bdi>k")
	page.wantNone(t, "<b>")
	change := regexp.MustCompile(`href="(/ui/default/schedule/put[^"]*)"`).FindStringSubmatch(page.body)
	if change == nil {
		t.Fatal("the page has no link to change the schedule")
	}
	equal(t, "the link to the form", html.UnescapeString(change[1]), "/ui/default/schedule/put?name=nightly") // a payload may be large
	b.get(html.UnescapeString(change[1])).wantPage(t, 200, `value="0 7 * * *"`, `value="Europe/Berlin"`, `<option value="all" selected>`, `{&#34;a&#34;: &#34;&lt;b&gt;&#34;}`)
	s.await(t, "it is there", `select exists (select from posthorn.schedules where name = 'nightly' and payload->>'a' = '<b>' and metadata->>'m' = '1' and catch_up = 'all')`)
	for name, wrong := range map[string]string{"payload": "{", "metadata": "[]", "cron_expression": "61 * * * *"} {
		bad := maps.Clone(fields)
		bad[name] = []string{wrong}
		b.post(page, "/ui/default/schedule/put", bad).wantPage(t, 400, "")
	}
	job := url.Values{"name": {"tidy"}, "cron_expression": {"@hourly"}, "kind": {"job"}, "job_title": {"tidy"}, "job_priority": {"-3"}}
	b.post(page, "/ui/default/schedule/put", job).wantPage(t, 200, "Schedule tidy is active.")
	b.get("/ui/default/schedule/put?name=tidy").wantPage(t, 200, `name="job_priority" value="-3"`)
	s.exec(t, `select posthorn.schedule_job('default', 'odd', '@hourly', '{"title": "odd", "retry_delays": [60]}')`)
	b.get("/ui/default/schedule/put?name=odd").wantPage(t, 409, "has a field that the form cannot show")
	s.exec(t, `select posthorn.schedule_job('default', 'late', '@hourly', '{"title": "late", "after": [1]}')`)
	b.get("/ui/default/schedule/put?name=late").wantPage(t, 409, "has a field that the form cannot show")
	s.exec(t, "select posthorn.unschedule('default', name) from unnest('{tidy,odd,late}'::text[]) name")
	ask := b.get("/ui/default/schedule/delete?name=nightly").wantPage(t, 200, "Delete schedule nightly (0 7 * * *, report.due)?")
	b.post(ask, "/ui/default/schedule/delete", url.Values{"name": {"nightly"}}).wantPage(t, 200, "Deleted schedule nightly.", "There is no schedule.")
	b.get("/ui/default/schedule/delete?name=nightly").wantPage(t, 404, "nightly")
	b.post(ask, "/ui/default/schedule/delete", url.Values{"name": {"nightly"}}).wantPage(t, 404, "nightly")
}

// A form sets the policy of a stream.
func TestStreamPolicyForm(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.publish('default', 'paid', stream => 'payroll')`)
	b.get("/ui/default/stream?name=payroll").wantPage(t, 200, "Set its policy…")
	page := b.get("/ui/default/stream/set?name=payroll&security_level=open").wantPage(t, 200, `value="payroll"`, "<option selected>open</option>")
	b.post(page, "/ui/default/stream/set", url.Values{"name": {"payroll"}, "security_level": {"restricted"}}).wantPage(t, 200, "Stream payroll is restricted.")
	b.post(page, "/ui/default/stream/set", url.Values{"name": {"payroll"}, "security_level": {"open"}, "dek_rotation_days": {"x"}}).wantPage(t, 400, "not a number")
	b.post(page, "/ui/default/stream/set", url.Values{"name": {"payroll"}, "security_level": {"open"}, "dek_rotation_days": {"3000000000"}}).wantPage(t, 400, "out of range", "from 1 to 36500")
}

// An import is deleted after a question.
func TestDeleteImportPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.define_import('default', 'from-nats', 'nats://broker:4222', 'nats', '{orders}')`)
	b.get("/ui/default/import?name=from-nats").wantPage(t, 200, "Delete…")
	ask := b.get("/ui/default/import/delete?name=from-nats").wantPage(t, 200, "Delete import from-nats with its position", "a second time")
	b.post(ask, "/ui/default/import/delete", url.Values{"name": {"from-nats"}}).wantPage(t, 200, "Deleted import from-nats.")
	b.get("/ui/default/import?name=from-nats").wantPage(t, 404, "from-nats")
}

// The page lists failovers with their lost events. These come back after a question, and link to
// what they are now. A token that does not name a restricted stream sees none of its events.
func TestFailoverPages(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Tokens: true})
	s.exec(t, `
		select posthorn.set_stream_policy('default', 'payroll', 'restricted');
		insert into posthorn.moves (next_id, reason, last_id, timeline, replayed_at) values (100, 'promotion', 10, 2, '2026-01-02 03:04:05Z');
		insert into posthorn.lost_events (id, namespace_id, next_id, stream, type, tags, payload, metadata, published_at, found_by)
		select 11 + n, x.id, 100, (array['orders', 'payroll'])[1 + n], 'paid', '{}', '{"a": "<b>"}', '{}', now(), 'relay out'
		from posthorn.namespaces x, generate_series(0, 1) n where x.namespace = 'default'`)
	all, others := s.visit(t), s.visit(t)
	all.signIn(strings.TrimPrefix(s.issue(t, "default", []scope{scopeRead, scopeAdmin}, "payroll"), "Authorization: Bearer "))
	others.signIn(strings.TrimPrefix(s.issue(t, "default", []scope{scopeRead, scopeAdmin}), "Authorization: Bearer "))
	all.get("/").wantPage(t, 200, "2 events that the log has not", "/ui/default/failover?id=1", "Bring back…")
	all.get("/ui/default/relays").wantPage(t, 200, "/ui/default/failovers")
	all.get("/ui/default/failovers").wantPage(t, 200, "1: promotion", "/ui/default/failover?id=1")
	page := all.get("/ui/default/failover?id=1").wantPage(t, 200, "2 events, 0 brought back", "orders", "payroll", "relay out", "&lt;b&gt;")
	page.wantNone(t, "<b>")
	others.get("/ui/default/failover?id=1").wantPage(t, 200, "1 event, 0 brought back", "orders").wantNone(t, "payroll")
	ask := others.get("/ui/default/failover/bring-back?id=1").wantPage(t, 200, "Publish 1 event again that failover 1 has lost")
	others.post(ask, "/ui/default/failover/bring-back", url.Values{"id": {"1"}}).wantPage(t, 200, "Brought 1 event back", "1 event, 1 brought back", "/ui/default/event?id=")
	all.get("/ui/default/failover?id=1").wantPage(t, 200, "2 events, 1 brought back")
	all.get("/ui/default/failover?id=2").wantPage(t, 404, "does not exist in namespace default")
}

// The replacement of a projection is given up.
func TestAbandonReplacement(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.define_projection('default', 'totals')")
	s.exec(t, "select posthorn.begin_replacement('default', 'totals')")
	b.get("/ui/default/projections").wantPage(t, 200, "replaces", "Give up…")
	ask := b.get("/ui/default/projection/abandon?name=totals").wantPage(t, 200, "Give up the replacement of projection totals?")
	b.post(ask, "/ui/default/projection/abandon", url.Values{"name": {"totals"}}).wantPage(t, 200, "The replacement of projection totals is given up.").wantNone(t, "Give up…")
	s.call(t, "POST", "/v1/projections/totals/abandon", nil).wantProblem(t, 404, "totals")
	s.call(t, "GET", "/v1/projections/totals", nil).want(t, 200)
}

func TestSystemPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.register_node('default', 'node-1', 'web <b>1</b>')`)
	s.exec(t, `select posthorn.publish('default', 'a', stream => 'orders')`)
	s.exec(t, `select posthorn.set_stream_policy('default', 'secret', 'restricted')`)
	s.exec(t, `select posthorn.define_projection('default', 'totals')`)
	b.get("/ui/default/nodes").wantPage(t, 200, "node-1", "web &lt;b&gt;1")
	b.get("/ui/default/streams").wantPage(t, 200, "orders", "restricted")
	b.get("/ui/default/stream?name=orders").wantPage(t, 200, "every token of the namespace")
	b.get("/ui/default/projections").wantPage(t, 200, "totals", "follows the log")
	for _, name := range []string{"relay", "import", "archive", "stream"} {
		b.get("/ui/default/"+name+"?name=none").wantPage(t, 404, "none")
	}
}

func TestTokenPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	operator, reader := s.visit(t), s.visit(t)
	operator.signIn(s.token(t, "read", "admin"))
	reader.signIn(s.token(t, "read"))
	operator.get("/ui/default/tokens").wantPage(t, 200, "&lt;b&gt;ops", "Revoke …").wantNone(t, "<b>ops")
	reader.get("/ui/default/tokens").wantPage(t, 403, "lacks the scope admin")
	reader.get("/").wantNone(t, ">Tokens</a>")
	ask := operator.get("/ui/default/token/revoke?id=2").wantPage(t, 200, "Revoke token 2")
	operator.post(ask, "/ui/default/token/revoke", url.Values{"id": {"2"}}).wantPage(t, 200, "is revoked", "revoked")
	operator.get("/ui/default/token/revoke?id=77").wantPage(t, 404, "token &#39;77&#39; does not exist")
}

func TestWebhookPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/webhooks").wantPage(t, 200, "There is no webhook.")
	secret, err := s.ph.Admin().CreateWebhook(t.Context(), "shop", admin.WebhookSettings{
		URL: "https://example.com/hook?<b>", Headers: map[string]string{"X-Key": "sesame"},
	})
	if err != nil {
		t.Fatal(err)
	}
	page := b.get("/ui/default/webhook?name=shop").wantPage(t, 200, "https://example.com/hook", "X-Key", "No request was sent.")
	page.wantNone(t, secret, "sesame", "<b>")
	back := "/ui/default/webhooks"
	s.exec(t, `insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
		select group_id, i, name, 0, posthorn.now() from posthorn.webhooks, generate_series(1, 1001) i`)
	b.get("/ui/default/webhook?name=shop").wantPage(t, 200, "1,000 events or more")
	b.get(back).wantPage(t, 200, "1,000 or more")
	s.exec(t, "delete from posthorn.retries")
	b.post(page, "/ui/default/webhook/test", url.Values{"name": {"shop"}, "back": {back}}).wantPage(t, 200, "gets a test event")
	b.post(page, "/ui/default/webhook/disable", url.Values{"name": {"shop"}, "back": {back}}).wantPage(t, 200, "disabled by an operator", "Enable")
	b.post(page, "/ui/default/webhook/enable", url.Values{"name": {"shop"}, "back": {back}}).wantPage(t, 200, "is enabled", "Disable")
	b.post(page, "/ui/default/webhook/redeliver", url.Values{"name": {"shop"}, "event": {"77"}}).wantPage(t, 404, "event 77")
	b.get("/ui/default/webhook?name=none").wantPage(t, 404, "none")
}

// The list of archives counts the events that are not in the store yet, also those that no
// archiver has read.
func TestPageArchivesCountEventsThatAreLeft(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.define_archive('default', 'cold', 'file:///var/archive')`)
	s.publish(t, 3)
	s.visit(t).get("/ui/default/archives").wantPage(t, 200, `<td data-label="Events left" class="n">3</td><td data-label="Archived" class="n">0</td>`)
}

package server

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/posthorntest"
)

// aBadNight puts a shop into all kinds of trouble at once: groups that nobody reads, a
// relay without its broker, and a webhook, a projection and jobs that fail.
func (s *served) aBadNight(t testing.TB) {
	t.Helper()
	s.bury(t, "billing", 3, "503 from bank.example")
	for _, sql := range []string{
		`select posthorn.define_group('default', 'unread-' || i) from generate_series(1, 10) i`,
		`select posthorn.publish('default', 'order.placed', stream => 'orders') from generate_series(1, 900)`,
	} {
		s.exec(t, sql)
	}
	posthorntest.Advance(t, s.ph, 50*time.Minute)
	for _, sql := range []string{
		`select posthorn.define_relay('default', 'to-redis')`,
		`insert into posthorn.retries (group_id, event_id, attempts, due_at, error, failed_at)
			select group_id, 1, 1, posthorn.now() + interval '1 minute', 'connection refused', posthorn.now() from posthorn.relays`,
		`select posthorn.create_webhook('default', 'hook-' || i, '{"url": "https://example.com"}') from generate_series(1, 3) i`,
		`update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = 'the endpoint answered 503'`,
		`select posthorn.define_projection('default', 'totals')`,
		`select posthorn.fail_projection(lease, attempt, 1, 'no column b') from posthorn.claim('default', 'totals', 'w', 1)`,
		`select posthorn.enqueue('default', 'mail', max_retries => 0) from generate_series(1, 800)`,
		`select posthorn.fail_job(j.id, 'w', 'no route to host') from posthorn.claim_jobs('default', 'w', '{}', 800) j`,
	} {
		s.exec(t, sql)
	}
}

// The overview counts each job in one state, and those that a limit holds back.
func TestOverviewCountsEachJobOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, sql := range []string{
		`select posthorn.set_job_limit('default', 'mail', 1)`,
		`select posthorn.enqueue('default', 'mail', tags => '{mail}') from generate_series(1, 3)`,
		`select posthorn.enqueue('default', 'order', tags => '{order}')`,
		`select posthorn.claim_jobs('default', 'w', '{mail}')`,
		`select posthorn.claim_jobs('default', 'w', '{order}')`,
		`select posthorn.await_event(4, 'w', 'wait', 'paid', '9', '1 day')`,
		`select posthorn.claim_jobs('default', 'w', '{mail}', 2)`,
	} {
		s.exec(t, sql)
	}
	s.visit(t).get("/").wantPage(t, 200, "0 ready", "2 held back by a limit", "1 waiting for an event", "1 running").wantNone(t, "for later")
}

// The overview counts jobs that wait for others and for events, and says which of them go on only if somebody acts.
func TestOverviewShowsJobsThatWait(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, sql := range []string{
		`select posthorn.enqueue('default', 'pack', tags => '{box}', max_retries => 0)`,
		`select posthorn.enqueue('default', 'send', after => '{1}')`,
		`select posthorn.enqueue('default', 'bill', after => '{2}')`,
		`select posthorn.enqueue('default', 'order', tags => '{order}')`,
		`select posthorn.claim_jobs('default', 'w', '{order}')`,
		`select posthorn.await_event(4, 'w', 'wait', 'paid', '9', '1 day')`,
		`select posthorn.fail_job(j.id, 'w', 'no box') from posthorn.claim_jobs('default', 'w', '{box}') j`,
	} {
		s.exec(t, sql)
	}
	s.visit(t).get("/").wantPage(t, 200, "2 behind other jobs", "1 waiting for an event", "2 jobs wait behind jobs that failed, or were cancelled or deleted; the first of these is job 1, which is FAILED",
		"jobs show 1; retry that job, or cancel the jobs that wait for it", `href="/ui/default/job?id=1">Show<`, "1 job failed for good in the last day").
		wantNone(t, "Retry all")
}

// A job that failed and the jobs behind it have one warning. If others failed too, they have one of their own.
func TestOverviewShowsOtherFailures(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.enqueue('default', 'pack', tags => '{box}', max_retries => 0)`)
	s.exec(t, `select posthorn.enqueue('default', 'weigh', tags => '{box}', max_retries => 0), posthorn.enqueue('default', 'send', after => '{1}')`)
	s.exec(t, `select posthorn.fail_job(j.id, 'w', 'no box') from posthorn.claim_jobs('default', 'w', '{box}', 2) j`)
	s.visit(t).get("/").wantPage(t, 200, "2 jobs failed for good in the last day", "Retry all", "1 job waits behind jobs that failed")
}

// A job that was deleted has no page, so the warning leads to one that waits for it.
func TestOverviewLeadsBehindADeletedJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.enqueue('default', 'pack', tags => '{box}')`)
	s.exec(t, `select posthorn.enqueue('default', 'send', after => '{1}')`)
	s.exec(t, "alter table posthorn.enqueued_jobs disable trigger all")
	s.exec(t, "delete from posthorn.enqueued_jobs where id = 1")
	b := s.visit(t)
	b.get("/").wantPage(t, 200, "the first of these is job 1, which is DELETED", `href="/ui/default/job?id=2">Show<`)
	b.get("/ui/default/job?id=2").wantPage(t, 200)
}

// The link of each warning about jobs leads to those jobs, and to no others.
func TestOverviewLeadsToJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	began := time.Now().UTC().Truncate(time.Second)
	s.at(t, began, `select posthorn.enqueue('default', 'nobody takes it', tags => '{rare}')`, `select posthorn.enqueue('default', 'silent', tags => '{mail}')`,
		`select posthorn.claim_jobs('default', 'w', '{mail}', lease_for => '1 hour')`)
	s.at(t, began.Add(10*time.Minute), `select posthorn.enqueue('default', 'well', tags => '{mail}')`, `select posthorn.claim_jobs('default', 'w2', '{mail}', lease_for => '1 hour')`,
		`select posthorn.enqueue('default', 'just now', tags => '{mail}')`,
		`select posthorn.enqueue('default', 'lost', tags => '{report}')`, `select posthorn.claim_jobs('default', 'w3', '{report}', lease_for => '1 minute')`)
	s.at(t, began.Add(14*time.Minute), "update posthorn.running_jobs set seen_at = posthorn.now() where worker = 'w2'", "select posthorn.expire_jobs()")
	s.at(t, began.Add(15*time.Minute), "update posthorn.running_jobs set seen_at = posthorn.now() where worker = 'w2'")
	b := s.visit(t)
	overview := b.get("/").wantPage(t, 200, `<a href="/ui/default/busy">2 jobs run now</a>`)
	for path, want := range map[string]string{
		"/ui/default/jobs?state=ready&tag=rare": "1", "/ui/default/busy?trouble=stalled": "job 2", "/ui/default/stuck?trouble=lost": "lost 5",
	} {
		if link := fmt.Sprintf(`href="%s">Show<`, html.EscapeString(path)); !strings.Contains(overview.body, link) {
			t.Errorf("no warning has the link %s:\n%s", link, overview.body)
		}
		equal(t, path, strings.Join(b.get(path).wantPage(t, 200).keys(), ", "), want)
	}
}

// The warning of jobs that failed in the last day leads to these, and not to those that failed before.
func TestOverviewLeadsToRecentFailures(t *testing.T) {
	t.Parallel()
	s := serve(t)
	now := time.Now().UTC().Truncate(time.Second)
	const fail = "select posthorn.fail_job(j.id, 'w', 'no', permanent => true) from posthorn.claim_jobs('default', 'w', '{x}') j"
	s.at(t, now.Add(-48*time.Hour), "select posthorn.enqueue('default', 'long ago', tags => '{x}')", fail)
	s.at(t, now.Add(-time.Hour), "select posthorn.enqueue('default', 'today', tags => '{x}')", fail)
	s.at(t, now)
	b := s.visit(t)
	page := b.get("/").wantPage(t, 200).body
	link := regexp.MustCompile(`href="([^"]*status=FAILED[^"]*)">Show<`).FindStringSubmatch(page)
	if link == nil {
		t.Fatal("there is no warning")
	}
	path := html.UnescapeString(link[1])
	equal(t, "jobs", strings.Join(b.get(path).wantPage(t, 200).keys(), ", "), "2")
	shown, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	if command := "jobs list --status failed --ended-from " + shown.Query().Get("ended_from") + ";"; !strings.Contains(page, command) {
		t.Errorf("the advice does not have the command %s", command)
	}
}

var cardTitle = regexp.MustCompile(`<section class="finding[^>]*><p><strong>(.*?)</strong>`)

// First comes what fails now, and of that the largest; what is alike is one card.
func TestOverviewAtNight(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.aBadNight(t)
	page := s.visit(t).get("/").want(t, 200)
	var titles []string
	for _, found := range cardTitle.FindAllStringSubmatch(page.body, -1) {
		titles = append(titles, html.UnescapeString(regexp.MustCompile("<[^>]*>").ReplaceAllString(found[1], "")))
	}
	for i, want := range []string{
		"Projection totals stands still at event 1",
		"Relay to-redis cannot write: connection refused",
		"800 jobs failed for good in the last day",
		"Group billing: 3 dead letters",
		"3 webhooks that fail: hook-1, hook-2, hook-3; the first: webhook hook-1 fails for",
		"11 groups that no worker reads: billing, unread-1, unread-10, unread-2, unread-3 and 6 more; the first: group billing has 900 events",
	} {
		if len(titles) <= i || !strings.HasPrefix(titles[i], want) {
			t.Errorf("card %d is not %q; the cards are\n%s", i, want, strings.Join(titles, "\n"))
		}
	}
	if !regexp.MustCompile(`Checked <time `).MatchString(page.body) {
		t.Error("the page does not say when it looked for them")
	}
}

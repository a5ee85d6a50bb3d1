package server

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var othersOfPage = regexp.MustCompile(`<tr data-key="([^"]*)">.*?<a href="([^"]*)">&#43;`)

// A stuck job stands for others: the link beside it leads to the list of these jobs, and of no more, whatever tags they have. So does the
// page of a job that failed.
func TestStuckPageLeadsToTheOthers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	now := time.Now().UTC().Truncate(time.Second)
	s.at(t, now.Add(-20*time.Minute), "select posthorn.set_job_limit('default', 'tenant:*', max_running => 1), posthorn.pause_job_tag('default', 'newsletter')",
		"select posthorn.enqueue('default', 'text', tags => '{sms}') from generate_series(1, 2)",
		"select posthorn.enqueue('default', 'other text', tags => '{sms}')",
		"select posthorn.enqueue('default', 'close', tags => '{books}')",
		"select posthorn.enqueue('default', 'report', after => '{4}') from generate_series(1, 2)",
		"select posthorn.enqueue('default', 'send', after => '{5,6}')",
		"select posthorn.enqueue('default', 'import', tags => '{import,tenant:7}') from generate_series(1, 3)",
		"select posthorn.enqueue('default', 'import', tags => '{import,tenant:8}')",
		"select posthorn.enqueue('default', 'untagged') from generate_series(1, 2)",
		"select posthorn.enqueue('default', 'news', tags => '{newsletter}') from generate_series(1, 2)",
		"select posthorn.claim_jobs('default', 'w1', '{sms}', 2, lease_for => '1 minute')",
		"select posthorn.claim_jobs('default', 'w2', '{sms}', 1, lease_for => '1 minute')",
		"select posthorn.claim_jobs('default', 'w3', '{tenant:7,tenant:8}', 2, lease_for => '1 day')",
		"select posthorn.fail_job(4, 'w4', 'locked', permanent => true) from posthorn.claim_jobs('default', 'w4', '{books}')")
	s.at(t, now.Add(-18*time.Minute), "select posthorn.expire_jobs()")
	s.at(t, now, "update posthorn.running_jobs set seen_at = posthorn.now()", "select posthorn.enqueue('default', 'just enqueued')")
	b := s.visit(t)
	page := b.get("/ui/default/stuck").wantPage(t, 200, "13 jobs are stuck", ">4 <bdi>close</bdi></a>", "<bdi>by the limit of tenant:*: tenant:7 runs 1 of 1</bdi>", "<bdi>since it failed: locked</bdi>")
	got := map[string]string{}
	for _, row := range othersOfPage.FindAllStringSubmatch(page.body, -1) {
		keys := b.get(html.UnescapeString(row[2])).wantPage(t, 200).keys()
		slices.Sort(keys)
		got[row[1]] = strings.Join(keys, " ")
	}
	want := map[string]string{"lost 1": "1 2", "blocks others 4": "5 6 7", "held back 9": "10 9", "not taken 12": "12 13", "held back 14": "14 15"}
	equal(t, "the others", got, want)
	b.get("/ui/default/job?id=4").wantPage(t, 200, `href="/ui/default/stuck?id=4&amp;trouble=blocks%20others">all that wait behind it</a>`)
	b.get("/ui/default/stuck?id=4&trouble=blocks%20others").wantPage(t, 200, "3 jobs behind job 4")
	b.get("/ui/default/stuck?id=4&trouble=lost").wantPage(t, 200, "None is any more.")
	b.get("/ui/default/stuck?id=16&trouble=not+taken").wantPage(t, 200, "None is any more.")
	b.get("/ui/default/stuck?id=4&trouble=tired").wantPage(t, 400, "no jobs are listed by the trouble tired")
}

// The numbers beside the states of jobs are those of all jobs. A list that a filter narrows has none, and its links keep the filter.
func TestNumbersOfJobsAreOfTheList(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.enqueue('default', 'a', tags => '{mail}') from generate_series(1, 3)")
	b := s.visit(t)
	const number = `ready</a> <span class="n">3</span>`
	for _, all := range []string{"", "?state=ready", "?status=PENDING", "?status=FAILED&state=", "?tag="} {
		b.get("/ui/default/jobs"+all).wantPage(t, 200, `href="/ui/default/jobs?state=ready"`, number)
	}
	b.get("/ui/default/jobs?status=PENDING&tag=sms").wantPage(t, 200, `<a href="/ui/default/jobs?tag=sms">all</a>`)
	for _, narrow := range []string{"tag=sms", "title=b", "error=b", "payload=b", "enqueued_from=2026-01-01T00:00:00Z", "enqueued_before=2026-01-01T00:00:00Z", "ended_from=2026-01-01T00:00:00Z"} {
		page := b.get("/ui/default/jobs?status=PENDING&before=9&" + narrow)
		page.wantNone(t, number, "of these stalled")
		name, _, _ := strings.Cut(narrow, "=")
		link := regexp.MustCompile(`href="/ui/default/jobs\?([^"]*)">ready</a>`).FindStringSubmatch(page.wantPage(t, 200).body)
		if link == nil || !strings.Contains(link[1], name+"=") || !strings.Contains(link[1], "state=ready") || strings.Contains(link[1], "status=") || strings.Contains(link[1], "before=9") {
			t.Errorf("with %s the link is %q", narrow, link)
		}
	}
}

// The only hit of a search is shown at once, unless others may have been left out. A tag has its verdict beside it.
func TestSoleHitIsShown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.enqueue('default', 'import', '{"order": "o-17"}', tags => '{tenant:7}'), posthorn.enqueue('default', 'mail', tags => '{tenant:8}')`)
	b := s.visit(t)
	b.get("/ui/default/find?q=mail").wantPage(t, 200, "<h1>Job 2 ·")
	b.get("/ui/default/find?q=tenant+8").wantPage(t, 200, "<h1>Jobs</h1>", `<span class="tag"><bdi>tenant:8</bdi></span> <strong>Not starved</strong>`, "its first job has waited for", "1 job waits for")
	b.get("/ui/default/find?q=o-17").wantPage(t, 200, "<h1>Find</h1>", "job with it in its payload")
	b.get("/ui/default/find?q=tenant").wantPage(t, 200, "<h1>Find</h1>", "tenant:7", "tenant:8", "Not starved")
}

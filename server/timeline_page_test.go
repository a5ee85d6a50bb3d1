package server

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var barOfPage = regexp.MustCompile(`<g class="([^"]*)"><title>([^<]*)</title>`)

// bars returns the bars of the timeline on the page of a job, with their classes.
func (a answered) bars() []string {
	var all []string
	for _, found := range barOfPage.FindAllStringSubmatch(a.body, -1) {
		all = append(all, found[1]+": "+html.UnescapeString(found[2]))
	}
	return all
}

// at runs statements some time after others, as the database sees it.
func (s *served) at(t testing.TB, at time.Time, statements ...string) {
	t.Helper()
	s.exec(t, fmt.Sprintf("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return timestamptz '%s'", at.Format(time.RFC3339)))
	for _, sql := range statements {
		s.exec(t, sql)
	}
}

// flow enqueues job 1, which fails, is retried, sleeps, waits for an event until it comes, and is completed.
func (s *served) flow(t testing.TB, began time.Time) {
	t.Helper()
	after := func(seconds int, statements ...string) {
		t.Helper()
		s.at(t, began.Add(time.Duration(seconds)*time.Second), statements...)
	}
	const due = "select posthorn.promote_jobs()"
	const await = "select posthorn.await_event(1, $worker, 'paid', 'payment.settled', 'o-17', '1 day')"
	after(0, "select posthorn.enqueue('default', 'ship', tags => '{x}')")
	after(10, "select posthorn.claim_jobs('default', 'w1', '{x}')")
	after(12, "select posthorn.save_step(1, 'w1', 'charge', '7')")
	after(15, `select posthorn.fail_job(1, 'w1', e'connection refused\nat dial', retry_in => '1 minute')`)
	after(80, due, "select posthorn.claim_jobs('default', 'w2', '{x}')")
	after(82, "select posthorn.sleep_job(1, 'w2', 'cool down', '1 hour')")
	after(7200, due, "select posthorn.claim_jobs('default', 'w3', '{x}')")
	after(7201, strings.Replace(await, "$worker", "'w3'", 1))
	after(10800, "select posthorn.publish('default', 'payment.settled', key => 'o-17')",
		"update posthorn.await_places set at = at - interval '1 minute'", "select posthorn.wake_jobs()")
	after(10805, "select posthorn.claim_jobs('default', 'w4', '{x}')", strings.Replace(await, "$worker", "'w4'", 1))
	after(10806, "select posthorn.complete_job(1, 'w4')")
}

// The page of a job shows its whole life: a picture with the words of each bar, the same as a list with a link to the event that ended
// a wait, and one sentence about where it stands.
func TestJobPageShowsTimeline(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.flow(t, time.Now().UTC().Truncate(time.Second))
	event := s.number(t, "select max(id) from posthorn.events")
	page := s.visit(t).get("/ui/default/job?id=1").wantPage(t, 200, `<p id="state"><span class="tag">completed</span> <bdi>It was completed 0s ago, in attempt 4.</bdi></p>`)
	want := []string{
		"moment: enqueued", "queue: in the queue, 10 s",
		"run bad: attempt 1 on w1, 5 s, then failed: connection refused", "step: step charge of attempt 1, 2 s",
		"rest: until attempt 2 is due, 60 s", "queue: in the queue, 5 s",
		"run: attempt 2 on w2, 2 s, then slept: cool down", "rest: sleep cool down, 60 min", "queue: in the queue, 59 min",
		"run: attempt 3 on w3, 1 s, then waited for payment.settled: paid", fmt.Sprintf("rest: waiting for payment.settled of o-17 (paid), ended by event %d, 60 min", event),
		"run: attempt 4 on w4, 1 s, then completed",
	}
	if got := page.bars(); !slices.Equal(got, want) {
		t.Errorf("the timeline is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	page.wantPage(t, 200, fmt.Sprintf(`<bdi>waiting for payment.settled of o-17 (paid)</bdi>, ended by <a href="/ui/default/event?id=%d">event %d</a>, 60 min`, event, event),
		"<bdi>attempt 1 on w1</bdi>, 5 s (0%), then <bdi>failed: connection refused</bdi>", `<li class="step"><span class="when">`,
		`<p id="spent">It <bdi>took 3h: 1h waiting for payment.settled of o-17, 1h asleep, 58m53s in the queue, 1m between attempts, 9s running</bdi>.</p>`)
	// The history says what comes at the time of a next attempt: a wait may end before it, and a sleep does not.
	_, history, _ := strings.Cut(page.body, `<table id="history"`)
	for _, row := range strings.Split(history, "</tr>") {
		for action, want := range map[string]string{"connection refused": "next attempt TIME", "sleeps: cool down": "until TIME", "waits for payment.settled: paid": "until TIME at the latest"} {
			if strings.Contains(row, action) != regexp.MustCompile(`<span class="soft">`+strings.Replace(want, "TIME", "<time[^<]*</time>", 1)+`</span>`).MatchString(row) {
				t.Errorf("with %q the row of the history has no %q, or another one has it:\n%s", action, want, row)
			}
		}
	}
}

// A job with which nothing has happened has a timeline, too; so have one that runs and one that sleeps.
func TestJobPageTimelineGoesOn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	began := time.Now().UTC().Truncate(time.Second)
	s.at(t, began, "select posthorn.enqueue('default', 'new', tags => '{new}'), posthorn.enqueue('default', 'runs', tags => '{x}'), posthorn.enqueue('default', 'sleeps', tags => '{y}')",
		"select posthorn.claim_jobs('default', 'w', '{x,y}', 2)", "select posthorn.sleep_job(3, 'w', 'night', '1 hour')")
	s.at(t, began.Add(time.Minute))
	b := s.visit(t)
	for id, want := range map[int][]string{
		1: {"moment: enqueued", "queue open: in the queue", "It is ready: has waited for a worker for 1m."},
		2: {"moment: enqueued", "run open: attempt 1 on w: running", "It is running: w has"},
		3: {"moment: enqueued", "run: attempt 1 on w, then slept: night", "rest open: sleep night, 60.1 s so far, until " + began.Add(time.Hour).Format("2006-01-02 15:04:05 UTC"), "It sleeps: night, for 59m."},
	} {
		page := b.get(fmt.Sprintf("/ui/default/job?id=%d", id)).wantPage(t, 200, want[len(want)-1])
		if got := page.bars(); !slices.Equal(got, want[:len(want)-1]) {
			t.Errorf("the timeline of job %d is %q, not %q", id, got, want)
		}
	}
}

// The page of a job that was changed or put off very often shows the newest entries of its log.
func TestJobPageHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.enqueue('default', 'a')")
	const change = "insert into posthorn.job_log_entries (event_id, action, attempt, reason, created_at) select 1, 'CHANGED', 0, 'change ' || i, posthorn.now() from generate_series($1::int, $2) i"
	s.exec(t, change, 1, 500)
	b := s.visit(t)
	page := b.get("/ui/default/job?id=1").wantPage(t, 200, "change 1<", "It leaves out 402 earlier bars.")
	equal(t, "entries", strings.Count(page.body, "CHANGED"), 500)
	s.exec(t, change, 501, 700)
	s.exec(t, "select posthorn.change_job(1, priority => 3)")
	page = b.get("/ui/default/job?id=1").wantPage(t, 200, "These are the newest 500 entries", "change 202<", "priority 3", "It leaves out earlier attempts.")
	page.wantNone(t, "change 201<", "earlier bars")
	equal(t, "entries", strings.Count(page.body, "CHANGED"), 500)
}

// The page of a job shows fifty of the jobs before and behind it, and how many more there are, as a graph and in words.
func TestJobPageShowsOrder(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.enqueue('default', '<b>first</b>'), posthorn.enqueue('default', 'second', after => '{1}')")
	s.exec(t, "select posthorn.enqueue('default', 'later', after => '{2}') from generate_series(1, 52)")
	s.exec(t, "select posthorn.cancel_job(1)")
	b := s.visit(t)
	page := b.get("/ui/default/job?id=2").wantPage(t, 200, `aria-label="Job 2 waits for 1 job, and 52 jobs wait for it.`, "job 1 &lt;b&gt;first&lt;/b&gt;: CANCELLED", "job 1, which is cancelled",
		"2 further ones that wait for it are not shown.")
	page.wantNone(t, "<b>", "further ones before it", "or more")
	equal(t, "boxes", strings.Count(page.body, `class="box"`), 52)
	equal(t, "rows", strings.Count(page.body, `<tr data-key="after`), 50)
	b.get("/ui/default/job?id=54").wantPage(t, 200, `aria-label="Job 54 waits for 1 job, and 0 jobs wait for it.`, "job 2 second: PENDING")
}

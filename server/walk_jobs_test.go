package server

import (
	"time"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/posthorn/posthorn/internal/test/await"
)

// A job is enqueued, changed and cancelled, and the list shows it without being loaded
// again.
func walkJobs(p *person) {
	p.visit("/")
	p.goTo("Jobs")
	p.sees("There is no such job.")
	p.must("mark")
	p.exec(p.T, "select posthorn.enqueue('default', 'late arrival')")
	p.sees("late arrival")
	p.must("marked")
	p.click("Enqueue a job")
	p.fill("Title", "send mail")
	p.fill("Tags, separated by commas", "mail")
	p.fill("Payload", `{"to": "you"}`)
	p.click("Enqueue")
	p.sees("Job 2 is enqueued.", "Job 2 · send mail")
	p.finds(`select status = 'PENDING' and tags = '{mail}' and payload::jsonb = '{"to": "you"}' from posthorn.jobs where id = 2`)
	p.click("Change …")
	p.fill("Priority: higher goes first", "7")
	p.click("Change")
	p.sees("Job 2 is changed.", "CHANGED")
	p.finds("select priority = 7 from posthorn.jobs where id = 2")
	p.click("Cancel")
	p.sees("Job 2 is cancelled.", "CANCELLED")
	p.finds("select status = 'CANCELLED' from posthorn.jobs where id = 2")
	p.recorded("change-job 2 1", "cancel-job 2 1")
}

// A job is found by a word of its payload, from the box at the top. A payload that is no JSON stays in the form, with the remedy.
func walkFindJob(p *person) {
	p.exec(p.T, `select posthorn.enqueue('default', 'order', '{"Order": "o-17"}'), posthorn.enqueue('default', 'another', '{"Order": "o-18"}')`)
	p.visit("/")
	p.fill("Find an event, a job, a tag, a worker or a group", "O-17")
	p.press(kb.Enter)
	p.sees("1 order: ready", "Search all jobs by")
	p.click("payload")
	p.sees("1 order")
	p.seesNone("2 another")
	p.fill("Payload contains, JSON or a word", `{"Order": `)
	p.click("Show")
	p.sees("the payload to look for is not valid JSON", "A word without brackets")
	equal(p.T, "the payload that was typed", p.field("Payload contains, JSON or a word"), `{"Order": `)
	p.fill("Payload contains, JSON or a word", `{"Order": "o-18"}`)
	p.click("Show")
	p.sees("2 another")
	p.seesNone("1 order")
}

// A person who cancels jobs chooses whether the jobs that wait for them stay, are cancelled or fail.
func walkJobsAfter(p *person) {
	p.exec(p.T, `select posthorn.enqueue('default', 'pack', tags => '{box}')`)
	p.exec(p.T, `select posthorn.enqueue('default', 'send', tags => '{van}', after => '{1}')`)
	p.exec(p.T, `select posthorn.enqueue('default', 'bill', tags => '{van}', after => '{2}')`)
	p.visit("/ui/default/job?id=2")
	p.click("Cancel …")
	p.sees("Cancel a job that is not finished")
	p.choose(jobsAfterOne, "fail")
	p.click("Cancel")
	p.sees("Job 2 is cancelled.", "CANCELLED")
	p.finds("select status = 'FAILED' from posthorn.jobs where id = 3")
	p.exec(p.T, `select posthorn.enqueue('default', 'call', tags => '{van}', after => '{1}')`)
	p.visit("/ui/default/jobs?status=PENDING&tag=box")
	p.click("Cancel all that match …")
	p.sees("Cancel 1 job?")
	p.choose(jobsAfterMany, "cancel")
	p.click("Cancel 1")
	p.sees("done")
	p.finds("select status = 'CANCELLED' from posthorn.jobs where id = 4")
	p.recorded("cancel-job 2 1", "cancel-jobs 1")
}

// The labels of the choices.
const (
	jobsAfterOne  = "Jobs after. Whether the jobs that wait for it, and the jobs behind them, stay as they are or end. Default: keep"
	jobsAfterMany = "Jobs after. Whether the jobs that wait for them, and the jobs behind those, stay as they are or end. Default: keep"
)

// All jobs that failed and have a tag are retried.
func walkRetryJobs(p *person) {
	p.exec(p.T, `select posthorn.enqueue('default', 'call', tags => array[case when i % 3 = 0 then 'sms' else 'mail' end], max_retries => 0) from generate_series(1, 30) i`)
	p.exec(p.T, `select posthorn.fail_job(j.id, 'w', 'no answer') from posthorn.claim_jobs('default', 'w', '{sms,mail}', 100) j`)
	p.visit("/ui/default/jobs")
	p.choose("Status", "FAILED")
	p.fill("Has any of these tags, separated by commas", "mail")
	p.click("Show")
	p.sees("no answer")
	p.click("Retry all that match …")
	p.sees("Retry 20 jobs?", "tag mail")
	p.click("Retry 20")
	p.sees("20 of 20", "done")
	p.finds("select count(*) filter (where status = 'PENDING') = 20 and count(*) filter (where status = 'FAILED') = 10 from posthorn.jobs")
	p.recorded("retry-jobs 20")
}

// Jobs are chosen by their boxes, and all that match a search are changed: not only those of a status and tags.
func walkChooseJobs(p *person) {
	p.exec(p.T, `select posthorn.enqueue('default', 'call ' || i, tags => '{sms}', max_retries => 0) from generate_series(1, 9) i`)
	p.exec(p.T, `select posthorn.fail_job(j.id, 'w', 'no answer') from posthorn.claim_jobs('default', 'w', '{sms}', 100) j`)
	pending := func(want string) {
		p.finds("select array_agg(id order by id) filter (where status = 'PENDING') = '" + want + "' from posthorn.jobs")
	}
	p.visit("/ui/default/jobs")
	p.sees("With a status there are actions on all that match.")
	p.seesNone("Retry the chosen…")
	p.choose("Choose job 3", "yes")
	p.choose("Choose job 7", "yes")
	p.exec(p.T, `select posthorn.enqueue('default', 'late arrival')`)
	p.sees("late arrival") // the page was renewed, and the boxes stay ticked
	p.click("Retry the chosen…")
	p.sees("Retry 2 jobs?", "id 7,3")
	p.click("Retry 2")
	p.sees("2 of 2", "done")
	pending("{3,7,10}")
	p.visit("/ui/default/jobs?state=failed")
	p.choose("Choose all jobs of the page", "yes")
	p.click("Cancel the chosen…")
	p.sees("Cancel 7 jobs?")
	p.click("Cancel 7")
	p.sees("0 of 7", "done") // those that have failed stay as they are
	p.visit("/ui/default/jobs?state=failed")
	p.fill("Title contains", "CALL 8")
	p.click("Show")
	p.click("Retry all that match …")
	p.sees("Retry 1 job?", "title CALL 8")
	p.click("Retry 1")
	p.sees("1 of 1", "done")
	pending("{3,7,8,10}")
	p.recorded("retry-jobs 2", "cancel-jobs 0", "retry-jobs 1")
}

// Dead letters are chosen by their boxes.
func walkChooseDeadLetters(p *person) {
	p.exec(p.T, `select posthorn.define_group('default', 'billing', '{}')`)
	fail := func(eventType string, n int) {
		p.exec(p.T, `select posthorn.publish('default', $1::text) from generate_series(1, $2::int)`, eventType, n)
		p.exec(p.T, `with c as (select * from posthorn.claim('default', 'billing', 'n', 4))
			select posthorn.settle(min(lease), min(attempt), jsonb_agg(jsonb_build_object('event', event_id, 'error', 'no', 'permanent', true))) from c`)
	}
	fail("order.placed", 4)
	p.visit("/ui/default/dead-letters")
	p.choose("Choose dead letter 2", "yes")
	p.choose("Choose dead letter 4", "yes")
	fail("order.paid", 1)
	p.sees("order.paid") // the page was renewed, and the boxes stay ticked
	p.click("Redrive the chosen…")
	p.sees("Redrive 2 dead letters?", "id 4,2")
	p.click("Redrive 2")
	p.sees("2 of 2", "done")
	p.finds("select array_agg(id order by id) = '{1,3,5}' from posthorn.list_dead_letters('default')")
	p.recorded("redrive-dead-letters 2")
}

// A search among many jobs goes on by itself until it finds one, and can be stopped. If a part of it fails, the person
// reads why, and can go on.
func walkSearchJobs(p *person) {
	p.searchSlowly()
	p.exec(p.T, `select posthorn.enqueue('default', 'the Needle', '{"order": 7}', tags => '{rare}', max_retries => 0)`)
	p.exec(p.T, `select posthorn.fail_job(j.id, 'w', 'No answer from the bank') from posthorn.claim_jobs('default', 'w', '{rare}', 1) j`)
	p.exec(p.T, `insert into posthorn.enqueued_jobs (run_at, created_at, namespace_id, month, priority, max_retries, title, tags, payload)
		select o.run_at, o.created_at, o.namespace_id, o.month, 0, 0, 'hay', '{}', '{}' from posthorn.enqueued_jobs o, generate_series(1, 10000)`)
	p.visit("/ui/default/jobs")
	for label, text := range map[string]string{"Title contains": "needle", "Error contains": "no answer", "Payload contains, JSON or a word": `{"order": 7}`} {
		p.fill(label, text)
		p.click("Show")
		p.sees("1 the Needle", "No answer from the bank")
		p.visit("/ui/default/jobs")
	}
	p.fill("Title contains", "nothing has this title")
	goOn := p.holdSearch() // so that it does not end before it is stopped
	p.click("Show")
	p.must("click", "Stop", "", "main")
	goOn()
	p.until("renewed") // the page is live again, so the search has ended
	p.sees("Look further back", "None of the newest jobs match", "Looked back to number 5,002 of 10,001")
	p.exec(p.T, "update unreadable set below = 5000")
	p.click("Look further back")
	p.sees("The search has ended early: jobs below 5000 cannot be read", "Looked back to number 2 of 10,001")
	p.until("renewed")
	p.sees("The search has ended early")
	p.exec(p.T, "update unreadable set below = 0")
	p.click("Look further back")
	p.sees("There is no such job.")
}

// searchSlowly makes each step of a search for jobs take longer than the server searches before it answers. Steps among the jobs below a
// number in the table unreadable fail.
func (p *person) searchSlowly() {
	p.exec(p.T, `create table unreadable as select 0::bigint as below`)
	p.exec(p.T, `create schema quick`)
	p.exec(p.T, `alter function posthorn.recent_jobs(int, text, bigint, int) set schema quick`)
	p.exec(p.T, `create function posthorn.recent_jobs(namespace_id int, status text, before bigint, most int) returns bigint[] language plpgsql as $$
		begin
			if before < (select below from public.unreadable) then
				raise exception 'jobs below % cannot be read', (select below from public.unreadable) using errcode = 'PH002';
			end if;
			perform pg_sleep(0.2) where most > 1000;
			return quick.recent_jobs(namespace_id, status, before, most);
		end $$`)
}

// holdSearch keeps the next request by which the script searches further waiting until goOn is called.
func (p *person) holdSearch() (goOn func()) {
	p.Helper()
	held := make(chan fetch.RequestID, 1)
	chromedp.ListenTarget(p.tab.ctx, func(event any) {
		if request, ok := event.(*fetch.EventRequestPaused); ok {
			held <- request.RequestID
		}
	})
	p.do(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*before=*", ResourceType: network.ResourceTypeFetch}}))
	return func() {
		p.Helper()
		p.do(fetch.ContinueRequest(await.Value(p.T, "a request of the search", held)))
		p.do(fetch.Disable())
	}
}

// The error of a job that failed, and the buttons that help, are seen at once.
func walkFailedJob(p *person) {
	p.exec(p.T, `select posthorn.enqueue('default', 'call', tags => '{sms}', max_retries => 0)`)
	p.exec(p.T, `select posthorn.fail_job(j.id, 'a-worker-with-a-long-name-7f3a', $1) from posthorn.claim_jobs('default', 'a-worker-with-a-long-name-7f3a', '{sms}', 1) j`,
		"no answer from https://sms.example/v2/messages/send?account=1234567890&template=welcome: 503 Service Unavailable")
	p.visit("/ui/default/job?id=1")
	p.inSight("503 Service Unavailable", "FAILED", "Retry", "Enqueue one like this …", "a-worker-with-a-long-name-7f3a")
	p.click("Retry")
	p.sees("PENDING")
	p.recorded("reset-job 1 1")
}

// A person sees where the time of a job went, reads it in words, and follows the link to the event that a wait ended with.
func walkTimeline(p *person) {
	p.flow(p.T, time.Now().UTC().Truncate(time.Second))
	p.visit("/ui/default/job?id=1")
	p.inSight("It was completed", "Timeline")
	p.unfold("The timeline in words")
	p.sees("attempt 1 on w1, 5 s (0%), then failed: connection refused", "sleep cool down, 60 min", "attempt 4 on w4, 1 s (0%), then completed")
	p.clickIn("waiting for payment.settled of o-17 (paid)", "event 1")
	p.sees("Event 1: payment.settled")
}

// The jobs of a tag are limited, paused and resumed.
func walkJobTags(p *person) {
	p.exec(p.T, "select posthorn.enqueue('default', 'call', tags => '{sms}') from generate_series(1, 3)")
	p.visit("/ui/default/jobs")
	p.click("Tags of jobs")
	p.sees("No tag is paused or limited.")
	p.fill("Tag", "sms")
	p.fill("Most at once", "2")
	p.click("Set the limit")
	p.sees("Tag sms: 2 at once.")
	p.finds("select count(*) = 2 from posthorn.claim_jobs('default', 'w', '{sms}', 10)")
	p.clickIn("sms", "Pause")
	p.sees("Tag sms is paused.")
	p.seesIn("sms", "paused")
	p.finds("select paused_at is not null from posthorn.job_limits")
	p.clickIn("sms", "Resume")
	p.sees("Tag sms is resumed.")
	p.finds("select paused_at is null from posthorn.job_limits")
	p.clickIn("sms", "Limit…")
	p.fill("Max running. How many jobs with the tag run at once. Default: any number; 0 or -1: none", "3")
	p.click("Save")
	p.sees("Tag sms: 3 at once.")
	p.finds("select max_running = 3 from posthorn.job_limits")
}

// A person on call sees which jobs are stuck and why, finds the tag of a tenant and a worker by a part of their names, and sees what
// the worker runs.
func walkOnCall(p *person) {
	p.exec(p.T, "select posthorn.set_job_limit('default', 'tenant:*', max_running => 1)")
	p.exec(p.T, "select posthorn.enqueue('default', 'import ' || i, tags => '{tenant:7}', run_at => posthorn.now() - interval '1 hour') from generate_series(1, 3) i")
	p.exec(p.T, "select posthorn.claim_jobs('default', 'importer-1', '{tenant:7}', lease_for => '1 hour')")
	p.visit("/")
	p.click("2 jobs are stuck")
	p.sees("2 jobs are stuck")
	p.seesIn("2 import 2 +1 more", "held back", "by the limit of tenant:*: tenant:7 runs 1 of 1", "raise the limit of tenant:*, or give tenant:7 its own", "1h")
	p.click("+1 more")
	p.sees("Not starved: it runs 1 of the 1 that tenant:* allows; 2 jobs wait, the first for 1h", "3 import 3")
	p.visit("/")
	p.click("1 job runs now")
	p.sees("1 import 1")
	p.visit("/ui/default/stuck")
	p.click("slow")
	p.sees("No job is stuck: no job has the trouble slow.")
	p.fill("Find an event, a job, a tag, a worker or a group", "tenant 7")
	p.press(kb.Enter)
	p.sees("held back: tenant:7 runs 1 of 1", "3 import 3")
	p.fill("Find an event, a job, a tag, a worker or a group", "IMPORTER")
	p.press(kb.Enter)
	p.sees("Only the work of importer-1", "1 import 1")
}

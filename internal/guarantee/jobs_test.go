package guarantee

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// job enqueues a job; more are further arguments of enqueue.
func (s *session) job(tags string, more ...string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.enqueue('default', 'a', tags => '"+tags+"'"+strings.Join(append([]string{""}, more...), ", ")+")")
}

// claimJobs takes jobs for a minute.
func (s *session) claimJobs(worker, tags string, n int) []int64 {
	s.t.Helper()
	return column[int64](s, "select id from posthorn.claim_jobs('default', $1, $2::text::text[], $3, '1 minute')", worker, tags, n)
}

// jobLog returns the log of a job as text.
func (s *session) jobLog(id int64) string {
	s.t.Helper()
	return strings.Join(column[string](s, "select action from posthorn.job_log where event_id = $1 order by id", id), " ")
}

func (s *session) jobStatus(id int64) string {
	s.t.Helper()
	return value[string](s, "select status from posthorn.jobs where id = $1", id)
}

// Sixteen workers take jobs with common, rare and overlapping tags: each job is taken
// once.
func TestNoJobIsTakenTwice(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"null", "case when i % 2 = 0 then 'tenant ' || i % 7 end"} {
		t.Run("fair key "+key, func(t *testing.T) {
			t.Parallel()
			noJobIsTakenTwice(t, key)
		})
	}
}

func noJobIsTakenTwice(t *testing.T, key string) {
	s := database(t)
	const n = 800
	s.exec(`select posthorn.enqueue('default', 'a', tags => case when i % 100 = 0 then '{rare,common}' when i % 3 = 0 then '{common,other}'
		when i % 3 = 1 then '{other}' else '{common}' end::text[], fair_key => `+key+`) from generate_series(1, $1::int) i`, n)
	var mu sync.Mutex
	var all []int64
	var workers sync.WaitGroup
	for i := range 16 {
		own := s.another()
		tags := []string{"{common}", "{rare,other}", "{common,rare}", "{other,common}"}[i%4]
		workers.Go(func() {
			for value[int](own, "select count(*) from posthorn.ready_jobs where tag = any ($1::text::text[])", tags) > 0 {
				taken := own.claimJobs("w", tags, 1+i%5)
				mu.Lock()
				all = append(all, taken...)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.Sort(all)
	equal(t, "jobs taken", len(all), n)
	equal(t, "different jobs", len(slices.Compact(all)), n)
	equal(t, "jobs picked more or less than once", value[int](s,
		"select count(*) from (select event_id from posthorn.job_log where action = 'PICKED' group by 1 having count(*) <> 1 or max(attempt) <> 1) x"), 0)
}

// A worker whose lease has expired cannot change the job, not even under the name of
// its new worker.
func TestLateWorkerOfAJobIsFencedOut(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}")
	s.claimJobs("early", "{x}", 1)
	s.turnClock(2 * time.Minute)
	equal(t, "taken over", s.claimJobs("late", "{x}", 1), []int64{id})
	for _, who := range []string{"'early'", "'late', attempt => 1"} {
		for _, verb := range []string{"complete_job", "fail_job", "start_job", "heartbeat_job"} {
			s.refused("PH003", "select posthorn."+verb+"($1, "+who+")", id)
		}
	}
	for _, who := range []string{"'early', array[$1], array[1]", "'late', array[$1], array[1]", "'early', array[$1]"} {
		for _, verb := range []string{"complete_jobs", "release_jobs", "heartbeat_jobs"} {
			equal(t, verb+" by "+who, column[int64](s, "select posthorn."+verb+"("+strings.ReplaceAll(who, "$1", "$1::bigint")+")", id), []int64{})
		}
	}
	s.exec("select posthorn.complete_job($1, 'late', 2)", id)
	equal(t, "story", s.jobLog(id), "PICKED EXPIRED PICKED COMPLETED")
}

// After a slow look for leases that have passed, no session looks again for a while. A
// clock that was turned back does not make the pause longer.
func TestLooksForExpiredLeasesPause(t *testing.T) {
	t.Parallel()
	s := database(t)
	other := s.another()
	id := s.job("{x}")
	s.claimJobs("silent", "{x}", 1)
	later := s.clock()
	pauseUntil := func(period string) {
		s.exec("select setval('posthorn.expire_jobs_from', (1000 * extract(epoch from posthorn.now() + $1::interval))::bigint)", period)
	}
	later("2 minutes")
	pauseUntil("9 seconds")
	equal(t, "expired by upkeep in the pause", value[int](s, "select (posthorn.tend()->>'expire_jobs')::int"), 0)
	equal(t, "taken over in the pause", other.claimJobs("w", "{x}", 1), []int64{})
	later("2 minutes 10 seconds")
	equal(t, "taken over after it", other.claimJobs("w", "{x}", 1), []int64{id})
	later("10 minutes")
	pauseUntil("1 hour")
	equal(t, "expired by upkeep after the clock was turned back", value[int](s, "select (posthorn.tend()->>'expire_jobs')::int"), 1)
}

// Enqueueing under the key of a pending job returns that job. If the job was taken or
// the key has expired, another job is created.
func TestUniqueKeyMakesOneJob(t *testing.T) {
	t.Parallel()
	s := database(t)
	const pending, hour = "unique_key => 'k'", "unique_key => 'h', unique_for => '1 hour'"
	first, timed := s.job("{x}", pending), s.job("{y}", hour)
	equal(t, "again", s.job("{z}", pending), first)
	s.exec("select posthorn.claim_jobs('default', 'w', '{x,y}', 2)")
	second := s.job("{x}", pending)
	if second == first {
		t.Error("a job that is being done stands for one that is yet to be done")
	}
	s.exec("select posthorn.complete_job($1, 'w')", timed)
	equal(t, "within the hour", s.job("{y}", hour), timed)
	s.turnClock(2 * time.Hour)
	if s.job("{y}", hour) == timed {
		t.Error("the key outlives its time")
	}
	s.exec("select posthorn.define_namespace('elsewhere')")
	if value[int64](s, "select posthorn.enqueue('elsewhere', 'a', unique_key => 'k')") == second {
		t.Error("the key reaches into another namespace")
	}
	s.exec("select posthorn.cancel_job($1)", second)
	if s.job("{x}", pending) == second {
		t.Error("the key is that of a cancelled job")
	}
}

// A transaction that enqueued under the key of a pending job can rely on the worker
// seeing its writes: the job is not taken before it commits.
func TestJobWaitsForThoseThatWereToldOfIt(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "unique_key => 'k'")
	teller := s.another()
	teller.exec("begin")
	equal(t, "job of the key", teller.job("{x}", "unique_key => 'k'"), id)
	equal(t, "taken before the commit", s.claimJobs("w", "{x}", 1), []int64{})
	teller.exec("commit")
	equal(t, "taken after it", s.claimJobs("w", "{x}", 1), []int64{id})
}

// A transaction that enqueues under the key while the job is being taken waits, and
// gets a new job.
func TestEnqueueUnderAKeyWaitsForTheClaim(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, end := range []string{"commit", "rollback"} {
		id := s.job("{x}", "unique_key => 'k'")
		worker, enqueuer := s.another(), s.another()
		worker.exec("begin")
		equal(t, "taken", worker.claimJobs("w", "{x}", 1), []int64{id})
		enqueuer.exec("create temp table told (id bigint)")
		outcome := enqueuer.background("insert into told select posthorn.enqueue('default', 'b', tags => '{x}', unique_key => 'k')")
		s.awaitBlocked(enqueuer)
		worker.exec(end)
		if err := outcome(); err != nil {
			t.Fatal(err)
		}
		told := value[int64](enqueuer, "select id from told")
		if (told == id) != (end == "rollback") {
			t.Errorf("after %s, enqueue returned job %d, the first is %d", end, told, id)
		}
		s.exec("select posthorn.cancel_job($1)", told)
	}
}

// Higher priority comes first, then the longest overdue job, then the first enqueued:
// exactly so for any tags.
func TestJobsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`select posthorn.enqueue('default', 'a', tags => (array['{x}', '{y}', '{x,y}', '{y,z}'])[1 + i % 4]::text[], priority => i % 7 - 3,
		run_at => posthorn.now() - (i * 37 % 11) * interval '1 hour') from generate_series(1, 200) i`)
	want := column[int64](s, "select id from posthorn.jobs order by priority desc, run_at, id")
	s.exec("begin")
	equal(t, "order of one claim", s.claimJobs("w", "{x,y}", 200), want)
	s.exec("rollback")
	var got []int64
	for len(got) < 200 {
		got = append(got, s.claimJobs("w", "{z,y,x}", 1+len(got)%3)...)
	}
	equal(t, "order of many", got, want)
}

// Delayed and failed jobs are taken when they are due, even without upkeep.
func TestJobsComeWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "run_at => posthorn.now() + interval '1 hour'", "retry_delays => '{2 hours}'")
	equal(t, "too early", s.claimJobs("w", "{x}", 1), []int64{})
	s.turnClock(61 * time.Minute)
	equal(t, "due", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	s.turnClock(3 * time.Hour)
	equal(t, "too early again", s.claimJobs("w", "{x}", 1), []int64{})
	s.turnClock(182 * time.Minute)
	equal(t, "due again", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	s.turnClock(20 * time.Hour)
	equal(t, "the last delay repeats", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	equal(t, "three failures", s.jobStatus(id), "FAILED")
	equal(t, "story", s.jobLog(id), "PICKED FAILED PICKED FAILED PICKED FAILED")
}

// A job has failed after three of its workers have died: the job may be the cause.
func TestJobThatSilencesItsWorkersFails(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "unique_key => 'k'")
	for i := 1; i <= 3; i++ {
		equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
		s.turnClock(time.Duration(i) * 2 * time.Minute)
	}
	equal(t, "a fourth time", s.claimJobs("w", "{x}", 1), []int64{})
	equal(t, "status", s.jobStatus(id), "FAILED")
	equal(t, "story", s.jobLog(id), "PICKED EXPIRED PICKED EXPIRED PICKED EXPIRED FAILED")
	equal(t, "error", value[string](s, "select error_message from posthorn.jobs where id = $1", id), "its worker went silent, 3 times so far: the job may be what ends them")
	s.exec("select posthorn.reset_job($1, 'mended')", id)
	equal(t, "after a reset", s.claimJobs("w", "{x}", 1), []int64{id})
	equal(t, "attempt", value[int](s, "select attempt from posthorn.jobs where id = $1", id), 4)
}

// Cancelling or resetting a job while it is being taken waits for the claim, and then
// takes the job away from its worker.
func TestTakingAJobAwayWhileItIsTaken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verb, end, story string }{
		{"cancel_job", "commit", "PICKED CANCELLED"},
		{"cancel_job", "rollback", "CANCELLED"},
	} {
		t.Run(c.verb+" "+c.end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			id := s.job("{x}")
			worker, person := s.another(), s.another()
			worker.exec("begin")
			worker.claimJobs("w", "{x}", 1)
			outcome := person.background("select posthorn."+c.verb+"($1)", id)
			s.awaitBlocked(person)
			worker.exec(c.end)
			if err := outcome(); err != nil {
				t.Fatal(err)
			}
			equal(t, "story", s.jobLog(id), c.story)
			s.refused("PH003", "select posthorn.complete_job($1, 'w')", id)
			equal(t, "left", s.claimJobs("w", "{x}", 1), []int64{})
		})
	}
}

// Concurrent reports of a worker and of an operator about a job take effect one after
// the other, in either order.
func TestEndOfAJobBesideAReset(t *testing.T) {
	t.Parallel()
	for first, second := range map[string]string{
		"complete_job($1, 'w')": "reset_job($1)", "reset_job($1)": "complete_job($1, 'w')",
		"fail_job($1, 'w', 'no')": "cancel_job($1)", "cancel_job($1)": "fail_job($1, 'w', 'no')",
		"release_jobs('w', array[$1])": "cancel_job($1)", "heartbeat_job($1, 'w')": "reset_job($1)",
	} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			id := s.job("{x}")
			s.claimJobs("w", "{x}", 1)
			a, b := s.another(), s.another()
			a.exec("begin")
			a.exec("select posthorn."+strings.ReplaceAll(first, "$1", "$1::bigint"), id)
			outcome := b.background("select posthorn."+strings.ReplaceAll(second, "$1", "$1::bigint"), id)
			s.awaitBlocked(b)
			a.exec("commit")
			err := outcome()
			want := map[string]string{
				"complete_job($1, 'w')": "PICKED COMPLETED", "reset_job($1)": "PICKED RESET", "fail_job($1, 'w', 'no')": "PICKED FAILED CANCELLED",
				"cancel_job($1)": "PICKED CANCELLED", "release_jobs('w', array[$1])": "PICKED RESET CANCELLED", "heartbeat_job($1, 'w')": "PICKED RESET",
			}[first]
			equal(t, "story", s.jobLog(id), want)
			refused := !strings.Contains(want, " CANCELLED") && first != "heartbeat_job($1, 'w')" || first == "cancel_job($1)"
			if refused != hasCode(err, "PH003") && !hasCode(err, "PH002") || !refused && err != nil {
				t.Errorf("the second was answered %v", err)
			}
		})
	}
}

// A rollback undoes everything: an enqueued job does not exist, and a taken job waits
// as before.
func TestRolledBackJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("begin")
	gone := s.job("{x}")
	s.exec("rollback")
	s.refused("PH001", "select posthorn.get_job($1)", gone)
	id := s.job("{x,y}", "unique_key => 'k'")
	for _, end := range []string{"rollback", "commit"} {
		s.exec("begin")
		equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{id})
		s.exec(end)
	}
	equal(t, "story", s.jobLog(id), "PICKED")
	for _, end := range []string{"rollback", "commit"} {
		s.exec("begin")
		s.exec("select posthorn.complete_job($1, 'w')", id)
		s.exec(end)
	}
	equal(t, "story", s.jobLog(id), "PICKED COMPLETED")
}

// A claim with an old snapshot does not take jobs that others have taken since.
func TestClaimOfJobsInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 5)")
	for _, level := range []string{"repeatable read", "serializable"} {
		old := s.another()
		old.exec("begin isolation level " + level)
		old.exec("select count(*) from posthorn.ready_jobs")
		taken := s.claimJobs("w", "{x}", 2)
		_, err := old.conn.Exec(t.Context(), "create temp table mine on commit drop as select id from posthorn.claim_jobs('default', 'v', '{x}', 5)")
		if err != nil && !hasCode(err, "40001") {
			t.Errorf("%s: %v", level, err)
		}
		if err == nil {
			for _, id := range column[int64](old, "select id from mine") {
				if slices.Contains(taken, id) {
					t.Errorf("%s: job %d was taken twice", level, id)
				}
			}
		}
		old.exec("rollback")
	}
}

// Upkeep that has locked some tables of jobs does not wait for each of the others: calls that use those wait for the first.
func TestUpkeepOfJobTablesWaitsForOneLock(t *testing.T) {
	t.Parallel()
	s := database(t)
	const postponed = "select count(*) from posthorn.maintain_job_tables() where action = 'postponed'"
	other := s.another()
	other.exec("begin")
	other.exec("lock table posthorn.job_log_entries in row exclusive mode")
	s.turnClock(150 * 24 * time.Hour)
	equal(t, "months postponed", value[int](s, postponed), 1)
	other.exec("rollback")
	equal(t, "months postponed afterwards", value[int](s, postponed), 0)
}

// Finished jobs and their log go by whole months when they are past retention. A
// job that is open then stays, and goes when it is past retention itself.
//
// seed 004.37
func TestRetentionOfJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '3 months' where key = 'job_retention_period'")
	s.exec("select posthorn.maintain_job_tables()")
	done, open := s.job("{x}"), s.job("{y}")
	s.claimJobs("w", "{x,y}", 2)
	s.exec("select posthorn.save_step(j, 'w', 'a step') from unnest(array[$1::bigint, $2]) j", done, open)
	s.exec("select posthorn.complete_job($1, 'w')", done)
	s.exec("select posthorn.release_jobs('w', array[$1::bigint])", open)
	const day = 24 * time.Hour
	s.turnClock(80 * day)
	s.exec("select posthorn.maintain_job_tables()")
	equal(t, "within retention", s.jobStatus(done), "COMPLETED")
	s.turnClock(130 * day)
	s.exec("select posthorn.maintain_job_tables()")
	s.refused("PH001", "select posthorn.get_job($1)", done)
	equal(t, "log", s.jobLog(done), "")
	equal(t, "jobs with steps", column[int64](s, "select job from posthorn.saved_steps"), []int64{open})
	equal(t, "open", s.claimJobs("w", "{y}", 1), []int64{open})
	s.exec("select posthorn.complete_job($1, 'w')", open)
	s.turnClock(310 * day)
	s.exec("select posthorn.sweep_jobs()")
	s.refused("PH001", "select posthorn.get_job($1)", open)
	equal(t, "rows left", value[int](s, `select (select count(*) from posthorn.enqueued_jobs)
		+ (select count(*) from posthorn.finished_jobs) + (select count(*) from posthorn.saved_steps)
		+ (select count(*) from posthorn.job_log_entries)`), 0)
}

// Rows of the job log are never changed.
//
// seed 004.34
func TestJobLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	for _, change := range []string{
		"update posthorn.job_log set action = 'COMPLETED'", "delete from posthorn.job_log", "truncate posthorn.job_log_entries", "truncate posthorn.finished_jobs",
	} {
		s.refused("PH005", change)
	}
}

// Each role can do its work, and no more.
func TestRolesOfJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	publisher := []string{
		"enqueue('default', 'a', tags => '{x}')", "enqueue('default', 'a', '{}'::jsonb, tags => '{x}')", "enqueue('default', 'a', '{}'::text, tags => '{x}')",
		`enqueue_many('default', '[{"title": "a", "tags": ["x"]}]')`, "enqueue_batch('default', '{a}', array['{}'::json])", "job_status(1)", "cancel_job(1)",
	}
	consumer := []string{
		"claim_jobs('default', 'w', '{x}', 1)", "await_news(null, null, null, '0')", "watch_in_turn('alone', true, true)", "get_job(1)", "job_waits(1)", "held_jobs('w', '{2}', '{1}')", "list_jobs('default')", "count_jobs('default')", "job_history(2)", "start_job(2, 'w')",
		"heartbeat_job(2, 'w')", "heartbeat_jobs('w', '{2}')", "complete_job(2, 'w')", "claim_jobs('default', 'w', '{x}', 2)",
		"fail_job(3, 'w', 'no', retry_in => '0')", "release_jobs('w', '{4}')", "claim_jobs('default', 'w', '{x}', 2)", "complete_jobs('w', '{4}')",
	}
	admin := []string{
		"set_job_limit('default', 'x', 1)", "pause_job_tag('default', 'x')", "resume_job_tag('default', 'x')", "list_job_limits('default')",
		"maintain_job_tables()", "claim_jobs('default', 'w', '{x}', 1)", "reset_job(3)",
	}
	may := func(role string, calls []string) {
		t.Helper()
		s.exec("reset role; set role " + role)
		for _, call := range calls {
			s.exec("select posthorn." + call)
		}
	}
	mayNot := func(role string, calls ...string) {
		t.Helper()
		s.exec("reset role; set role " + role)
		for _, call := range calls {
			s.refused("42501", "select posthorn."+call)
		}
		for _, table := range []string{"enqueued_jobs", "ready_jobs", "running_jobs", "job_limits", "job_keys"} {
			s.refused("42501", "delete from posthorn."+table)
		}
	}
	may("posthorn_publisher", publisher)
	mayNot("posthorn_publisher", append(admin, "claim_jobs('default', 'w', '{x}', 1)", "complete_job(2, 'w')", "list_jobs('default')", "get_job(1)", "job_waits(1)", "offer_jobs(null, now())")...)
	may("posthorn_consumer", consumer)
	mayNot("posthorn_consumer", append(admin[:4:4], "reset_job(2)", "cancel_job(2)", "enqueue('default', 'a', '{}'::json)", "expire_jobs()", "finish_jobs(null, 'FAILED', null, now())")...)
	may("posthorn_admin", admin)
	mayNot("posthorn_admin", "finish_jobs(null, 'FAILED', null, now())", "offer_jobs(null, now())", "withdraw_job(null)")
}

// Invalid arguments are refused with a hint; unusual ones are stored unchanged.
func TestBadArgumentsOfJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, call := range []string{
		"enqueue('default', '')", "enqueue('default', null)", "enqueue('default', E'a\\nb')", "enqueue('default', repeat('a', 1001))",
		"enqueue('default', 'a', tags => '{\"\"}')", "enqueue('default', 'a', tags => array[null])", "enqueue('default', 'a', tags => array[repeat('a', 256)])",
		"enqueue('default', 'a', tags => array(select i::text from generate_series(1, 101) i))", "enqueue('default', 'a', '{')",
		"enqueue('default', 'a', description => repeat('a', 100001))", "enqueue('default', 'a', priority => -2147483648)", "enqueue('default', 'a', priority => null)",
		"enqueue('default', 'a', run_at => 'infinity')", "enqueue('default', 'a', max_retries => -1)", "enqueue('default', 'a', max_retries => null)",
		"enqueue('default', 'a', unique_key => '')", "enqueue('default', 'a', unique_for => '1 hour')", "enqueue('default', 'a', unique_key => 'k', unique_for => '-1 hour')",
		"enqueue('default', 'a', retry_delays => '{-1 second}')", "enqueue('default', 'a', retry_delays => array[null::interval])",
		"enqueue_many('default', '{}')", "enqueue_many('default', '[1]')", `enqueue_many('default', '[{"titel": "a"}]')`, `enqueue_many('default', '[{"title": "a", "tags": "x"}]')`,
		`enqueue_many('default', '[{"title": "a", "priority": 1e99}]')`, "enqueue_batch('default', '{a,b}', array['{}'::json])",
		"enqueue_batch('default', '{a}', array['{}'::json], array['{x'])", "enqueue_batch('default', '{a}', array['{}'::json], array['x'])",
		"claim_jobs('default', '', '{x}')", "claim_jobs('default', null, '{x}')", "claim_jobs('default', 'w', '{\"\"}')", "claim_jobs('default', 'w', '{x}', lease_for => '0')",
		"heartbeat_job(1, 'w', lease_for => '2 days')", "heartbeat_jobs('w', '{1}', '{1,2}')", "complete_jobs('w', '{1}', '{1,2}')", "release_jobs('w', '{1}', '{1,2}')",
		"fail_job(1, 'w', retry_in => '-1 second')", "list_jobs('default', 'DONE')", "set_job_limit('default', 'x', -1)", "set_job_limit('default', 'x', max_started => 1)",
		"set_job_limit('default', 'x', period => '1 minute')", "set_job_limit('default', 'x', max_started => 1, period => '1 millisecond')",
	} {
		if err := s.refused("PH004", "select posthorn."+call); err.Hint == "" {
			t.Errorf("%s: no hint: %s", call, err.Message)
		}
	}
	const strange = `o'brien"; drop schema posthorn cascade; --\{}`
	id := value[int64](s, "select posthorn.enqueue('default', $1::text, '{}'::json, tags => array[$1::text], unique_key => $1)", strange)
	s.exec("select posthorn.set_job_limit('default', $1, 1)", strange)
	s.exec("select posthorn.pause_job_tag('default', $1), posthorn.resume_job_tag('default', $1)", strange)
	equal(t, "taken", column[int64](s, "select id from posthorn.claim_jobs('default', $1, array[$1::text])", strange), []int64{id})
	s.exec("select posthorn.complete_job($1, $2)", id, strange)
	equal(t, "title", value[string](s, "select title from posthorn.jobs where id = $1", id), strange)
}

// Workers pass tags over HTTP separated by commas.
func TestTagsOfJobsHaveNoCommas(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, enqueue := range []string{
		"select posthorn.enqueue('default', 'a', tags => '{\"x,y\"}')",
		"select posthorn.enqueue('default', 'a', tags => '{z,\"x,y\"}')",
		"select posthorn.enqueue_many('default', '[{\"title\": \"a\", \"tags\": [\"x,y\"]}]')",
		"select posthorn.enqueue_batch('default', '{a}', array['{}'::json], array['{\"x,y\"}'])",
	} {
		s.refused("PH004", enqueue)
	}
}

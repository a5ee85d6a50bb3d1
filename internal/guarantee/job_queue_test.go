package guarantee

import (
	"testing"
	"time"
)

// Jobs of a batch have the priorities, times and retries that were given for each.
func TestBatchOfJobsIsLikeSingleOnes(t *testing.T) {
	t.Parallel()
	s := database(t)
	ids := column[int64](s, `select posthorn.enqueue_batch('default', '{low,high,later}', array['{}', '{}', '{}']::json[], array['{x}', '{x}', '{x}'],
		priorities => '{-1,5,9}', run_at => array[null, null, posthorn.now() + interval '1 hour'], max_retries => '{1,1,7}')`)
	equal(t, "order", s.claimJobs("w", "{x}", 10), []int64{ids[1], ids[0]})
	s.turnClock(61 * time.Minute)
	equal(t, "later", s.claimJobs("w2", "{x}", 1), []int64{ids[2]})
	equal(t, "retries", value[int](s, "select max_retries from posthorn.jobs where id = $1", ids[2]), 7)
}

// The jobs of one tag are taken in their order: by priority, then the longest overdue.
func TestJobsOfOneTagAreTakenInOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`select posthorn.enqueue('default', 'a', tags => '{x}', priority => i % 3, run_at => posthorn.now() - (i * 7 % 10) * interval '1 hour')
		from generate_series(1, 60) i`)
	want := column[int64](s, "select id from posthorn.jobs order by priority desc, run_at, id")
	var got []int64
	for len(got) < 30 {
		got = append(got, s.claimJobs("w", "{x}", 1)...)
	}
	got = append(got, s.claimJobs("w", "{x}", 30)...)
	equal(t, "order", got, want)
}

// The delays of a job are used one after another, and the last one for all further
// attempts.
func TestDelaysOfAJob(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "retry_delays => '{1 minute,2 minutes,3 minutes}'", "max_retries => 5")
	for i, want := range []string{"00:01:00", "00:02:00", "00:03:00", "00:03:00"} {
		equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
		equal(t, "delay", value[string](s, "select (next_retry_at - created_at)::text from posthorn.fail_job($1, 'w', 'no')", id), want)
		s.turnClock(time.Duration(i+1) * time.Hour)
	}
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	equal(t, "after as many failures as allowed", s.jobStatus(id), "FAILED")
}

// A job that may be retried more than three times survives as many silent workers.
func TestSilencesAreAllowedAsOftenAsRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "max_retries => 5")
	for i := 1; i <= 5; i++ {
		equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
		s.turnClock(time.Duration(i) * 2 * time.Minute)
	}
	equal(t, "a sixth time", s.claimJobs("w", "{x}", 1), []int64{})
	equal(t, "status", s.jobStatus(id), "FAILED")
}

// Upkeep makes the jobs ready that are due, and no others.
func TestUpkeepPromotesDueJobsOnly(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.job("{x}", "run_at => posthorn.now() + interval '1 hour'")
	s.job("{x}", "run_at => posthorn.now() + interval '1 hour 10 seconds'")
	s.turnClock(time.Hour + time.Second)
	s.exec("select posthorn.tend()")
	equal(t, "ready", column[int64](s, "select job from posthorn.ready_jobs"), []int64{first})
}

// A heartbeat moves the deadline of a job to now plus the length of the claim.
func TestHeartbeatKeepsAJob(t *testing.T) {
	t.Parallel()
	s := database(t)
	for name, beat := range map[string]string{
		"one":  "select posthorn.heartbeat_job($1, 'w')",
		"many": "select posthorn.heartbeat_jobs('w', array[$1::bigint])",
	} {
		s.turnClock(0)
		tag := "{" + name + "}"
		id := s.job(tag)
		equal(t, "taken", s.claimJobs("w", tag, 1), []int64{id})
		s.turnClock(50 * time.Second)
		s.exec(beat, id)
		s.turnClock(100 * time.Second)
		equal(t, name+": taken from its worker", s.claimJobs("other", tag, 1), []int64{})
		s.turnClock(111 * time.Second)
		equal(t, name+": taken after a minute of silence", s.claimJobs("other", tag, 1), []int64{id})
		s.exec("select posthorn.complete_job($1, 'other')", id)
	}
}

// held_jobs tells a worker that an attempt is over, although the worker has the job
// again.
func TestHeldJobsAreThoseOfTheAttempt(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.reset_job($1)", id)
	equal(t, "taken again", s.claimJobs("w", "{x}", 1), []int64{id})
	equal(t, "held at attempt 1", column[int64](s, "select posthorn.held_jobs('w', array[$1::bigint], '{1}')", id), []int64{})
	equal(t, "held at attempt 2", column[int64](s, "select posthorn.held_jobs('w', array[$1::bigint], '{2}')", id), []int64{id})
}

// A deleted job is found under none of its tags.
func TestDeletedJobLeavesAllItsTags(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.delete_job($1)", s.job("{x,y,z}"))
	for _, tag := range []string{"{x}", "{y}", "{z}"} {
		equal(t, "taken of "+tag, s.claimJobs("w", tag, 1), []int64{})
	}
	equal(t, "rows left", value[int](s, "select count(*) from posthorn.ready_jobs"), 0)
}

// A change of its priority leaves a job that failed at the time of its next attempt.
func TestChangeOfPriorityKeepsTheTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "retry_delays => '{1 hour}'")
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	s.exec("select posthorn.change_job($1, priority => 5)", id)
	equal(t, "taken too early", s.claimJobs("w", "{x}", 1), []int64{})
	s.turnClock(61 * time.Minute)
	equal(t, "taken in time", s.claimJobs("w", "{x}", 1), []int64{id})
}

// Jobs that a limit holds back come back in their order.
func TestHeldBackJobsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.pause_job_tag('default', 'x')")
	low, high, mid := s.job("{y,x}"), s.job("{y,x}", "priority => 9"), s.job("{y,x}", "priority => 5")
	// Under their own tag one of them would be held back, and the others not touched.
	equal(t, "taken of a paused tag", s.claimJobs("w", "{y}", 10), []int64{})
	equal(t, "held back", value[int](s, "select count(*) from posthorn.parked_jobs"), 3)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	s.exec("select posthorn.resume_job_tag('default', 'x')")
	for _, want := range []int64{high, mid, low} {
		equal(t, "next", s.claimJobs("w", "{y}", 1), []int64{want})
		s.exec("select posthorn.complete_job($1, 'w')", want)
	}
}

// A month of jobs is dropped without those that wait, are held back or are being worked
// on.
func TestRetentionKeepsOpenJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '3 months' where key = 'job_retention_period'")
	s.exec("select posthorn.maintain_job_tables()")
	s.exec("select posthorn.pause_job_tag('default', 'held')")
	ready, held := s.job("{x}"), s.job("{held}")
	waits := s.job("{x}", "run_at => posthorn.now() + interval '1 year'")
	runs := s.job("{y}")
	equal(t, "taken of a paused tag", s.claimJobs("w", "{held}", 1), []int64{})
	equal(t, "taken", column[int64](s, "select id from posthorn.claim_jobs('default', 'w', '{y}', 1, '1 day')"), []int64{runs})
	s.turnClock(200 * 24 * time.Hour)
	s.exec("update posthorn.running_jobs set lease_until = posthorn.now() + interval '1 hour'")
	report := column[string](s, "select action || ' ' || partition || ': ' || detail from posthorn.maintain_job_tables() where action = 'dropped' and partition like 'enqueued%'")
	if len(report) == 0 {
		t.Fatal("no month was dropped: this tests nothing")
	}
	for name, id := range map[string]int64{"ready": ready, "held": held, "waits": waits} {
		equal(t, name, s.jobStatus(id), "PENDING")
	}
	equal(t, "runs", s.jobStatus(runs), "PROCESSING")
}

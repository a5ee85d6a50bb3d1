package guarantee

import (
	"testing"
	"time"
)

// While a transaction saves a step, nothing ends the attempt before it: the step is saved, and the next attempt leaves
// it out. Heartbeats pass.
func TestSavedStepHoldsItsAttempt(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	beating, resetting := s.another(), s.another()
	s.exec("begin")
	s.exec("select posthorn.save_step($1, 'w', 'charge', '7', attempt => 1)", job)
	beating.exec("set lock_timeout = '10s'")
	beating.exec("select posthorn.heartbeat_job($1, 'w')", job)
	outcome := resetting.background("select posthorn.reset_job($1)", job)
	s.awaitBlocked(resetting)
	s.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "steps of the next attempt", value[string](s, "select steps->>'charge' from posthorn.claim_jobs('default', 'w', '{x}', 1)"), "7")
	s.refused("PH003", "select posthorn.save_step($1, 'w', 'late', '8', attempt => 1)", job)
	s.refused("PH003", "select posthorn.sleep_job($1, 'w', 'late', '1 minute', attempt => 1)", job)
}

// A job has a thousand steps at most. Those that are saved can be asked for again.
func TestJobHasAThousandSteps(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.save_step($1, 'w', 'step ' || i, to_json(i)) from generate_series(1, 1000) i", job)
	s.refused("PH004", "select posthorn.save_step($1, 'w', 'step 1001', '0')", job)
	equal(t, "a step that is saved", value[int](s, "select posthorn.save_step($1, 'w', 'step 1000', '0')::text::int", job), 1000)
	s.refused("PH004", "select posthorn.save_step($1, 'w', '', '0')", job)
	s.refused("PH002", "select posthorn.sleep_job($1, 'w', 'step 1', '1 minute')", job)
	s.refused("PH004", "select posthorn.sleep_job($1, 'w', 'nap', '-1 minute')", job)
}

// The results of all steps of a job have a limit, too: a claim brings them all.
func TestStepsOfAJobHaveALimitTogether(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	const save = `select posthorn.save_step($1, 'w', 'step ' || i, to_json((select string_agg(md5((i * 10000 + j)::text), '') from generate_series(1, 2000) j)))
		from generate_series($2::int, $3) i`
	s.exec(save, job, 1, 60)
	s.refused("PH004", save, job, 61, 90)
}

// A worker that did not get the answer to a sleep asks again, and gets it.
func TestSleepIsRepeated(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	const sleep = "select posthorn.sleep_job($1, $2, 'nap', '1 day', attempt => $3)"
	until := value[time.Time](s, sleep, job, "w", 1)
	equal(t, "repeated", value[time.Time](s, sleep, job, "w", 1), until)
	s.refused("PH003", sleep, job, "v", 1)
	s.refused("PH003", sleep, job, "w", 2)
	s.refused("PH003", "select posthorn.sleep_job($1, 'w', 'other', '1 day', attempt => 1)", job)
	s.turnClock(25 * time.Hour)
	s.exec("select posthorn.promote_jobs()")
	s.claimJobs("w", "{x}", 1)
	equal(t, "over", value[bool](s, "select posthorn.sleep_job($1, 'w', 'nap', '1 day', attempt => 2) is null", job), true)
	s.refused("PH002", "select posthorn.save_step($1, 'w', 'nap', '1')", job)
}

// A job that sleeps is woken by a reset, and by another due time.
func TestSleepingJobIsWoken(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]string{
		"reset":  "select posthorn.reset_job($1)",
		"change": "select posthorn.change_job($1, run_at => posthorn.now())",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.job("{x}")
			s.claimJobs("w", "{x}", 1)
			s.exec("select posthorn.sleep_job($1, 'w', 'nap', '1 day')", job)
			s.exec(wake, job)
			s.exec("select posthorn.promote_jobs()")
			equal(t, "claimed", s.claimJobs("w", "{x}", 1), []int64{job})
			equal(t, "over", value[bool](s, "select posthorn.sleep_job($1, 'w', 'nap', '1 day') is null", job), true)
		})
	}
}

// A flow may go on for years. So workers that went silent do not count against a job once it has gone on, and behind a
// sleep neither do its failures.
func TestFlowThatGoesOnDoesNotFail(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}", "max_retries => 2")
	for i := range 6 {
		equal(t, "claimed", s.claimJobs("w", "{x}", 1), []int64{job})
		s.exec("select posthorn.save_step($1, 'w', 'step ' || $2::int)", job, i)
		s.exec("select posthorn.expire_jobs(posthorn.now() + interval '1 hour')")
	}
	for i := range 3 {
		s.claimJobs("w", "{x}", 1)
		s.exec("select posthorn.fail_job($1, 'w', 'no', retry_in => '0')", job)
		equal(t, "status", s.jobStatus(job), "PENDING")
		s.claimJobs("w", "{x}", 1)
		s.exec("select posthorn.sleep_job($1, 'w', 'nap ' || $2::int, '1 day')", job, i)
		s.turnClock(time.Duration(i+1) * 25 * time.Hour)
		s.exec("select posthorn.promote_jobs()")
	}
	for range 3 {
		s.claimJobs("w", "{x}", 1)
		s.exec("select posthorn.expire_jobs(posthorn.now() + interval '1 hour')")
	}
	equal(t, "status after three attempts that saved nothing", s.jobStatus(job), "FAILED")
}

// The steps of a job are deleted with it.
func TestStepsAreDeletedWithTheirJob(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.save_step($1, 'w', 'a')", job)
	s.exec("select posthorn.release_jobs('w', array[$1::bigint])", job)
	s.exec("select posthorn.delete_job($1)", job)
	equal(t, "steps", value[int](s, "select count(*) from posthorn.saved_steps"), 0)
	s.refused("PH001", "select posthorn.job_steps($1)", job)
}

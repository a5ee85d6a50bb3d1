package guarantee

import "testing"

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

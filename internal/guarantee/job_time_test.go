package guarantee

import (
	"testing"
	"time"
)

// A reset gives a job all its chances again, also while a worker has it.
func TestResetForgetsSilence(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}")
	for i := 1; i <= 3; i++ {
		equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
		if i < 3 {
			s.turnClock(time.Duration(i) * 2 * time.Minute)
		}
	}
	s.exec("select posthorn.reset_job($1, 'mended')", id)
	equal(t, "taken after the reset", s.claimJobs("w", "{x}", 1), []int64{id})
	s.turnClock(6 * time.Minute)
	equal(t, "taken after one more silence", s.claimJobs("w", "{x}", 1), []int64{id})
}

// Where dead rows pile up, looks for jobs begin behind them. A job of a higher priority is found at once all the same. A
// job that comes back to a place before is found when upkeep has looked there.
func TestJobsBeforeAPlaceAreFound(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, way := range [][2]string{{"{x}", "null"}, {"{x,y}", "null"}, {"{x}", "'k'"}} { // one tag, several, and fair keys
		tags, fairKey := way[0], "fair_key => "+way[1]
		first, later := s.job("{x}", fairKey), s.job("{x}", fairKey)
		s.exec(`insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until)
			select namespace_id, tag, rank, turn, job, 1000000000, clock_timestamp() + interval '1 hour' from posthorn.ready_jobs where job = $1`, later)
		urgent := s.job("{x}", "priority => 9", fairKey)
		equal(t, "first", s.claimJobs("w", tags, 1), []int64{urgent})
		s.exec("begin")
		equal(t, "while there is a place", s.claimJobs("w", tags, 2), []int64{later})
		s.exec("rollback")
		s.lookBeforePlaces()
		equal(t, "when upkeep has looked", s.claimJobs("w", tags, 2), []int64{first, later})
	}
}

// lookBeforePlaces lets upkeep look for rows before all places.
func (s *session) lookBeforePlaces() {
	s.t.Helper()
	s.exec("select setval('posthorn.look_again_from', 1)")
	s.exec("select posthorn.tend_part('look_again')")
}

// Jobs come when they are due although the clock was set back since the session has looked
// for such jobs.
func TestJobsComeThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.turnClock(time.Hour)
	equal(t, "in the future", s.claimJobs("w", "{x}", 1), []int64{})
	s.turnClock(0)
	id := s.job("{x}", "run_at => posthorn.now() + interval '1 second'")
	s.turnClock(2 * time.Second)
	equal(t, "when it is due", s.claimJobs("w", "{x}", 1), []int64{id})
}

// A job that waits for its next attempt is tried at once after a reset, and its failures stay
// counted. A job that is due, or was never tried, is not reset.
func TestResetOfAJobThatWaitsForItsNextAttempt(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"fail_job($1, 'w', 'no')", "snooze_job($1, 'w', '1 hour')"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			id, later := s.job("{x}"), s.job("{x}", "run_at => posthorn.now() + interval '1 hour'")
			equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
			s.exec("select posthorn."+end, id)
			failures := value[int](s, "select retry_count from posthorn.jobs where id = $1", id)
			equal(t, "before its time", s.claimJobs("w", "{x}", 1), []int64{})
			s.exec("select posthorn.reset_job($1, 'the server is back')", id)
			equal(t, "waits until", value[*time.Time](s, "select next_retry_at from posthorn.jobs where id = $1", id), nil)
			s.refused("PH002", "select posthorn.reset_job($1)", id)
			s.refused("PH002", "select posthorn.reset_job($1)", later)
			equal(t, "at once", s.claimJobs("w", "{x}", 5), []int64{id})
			equal(t, "failures", value[int](s, "select retry_count from posthorn.jobs where id = $1", id), failures)
		})
	}
}

// logRunsBack tells of an entry of the job log that has an earlier time than the one before.
const logRunsBack = `select exists (select from (
	select created_at < lag(created_at) over (partition by event_id order by id) as back from posthorn.job_log) x where back)`

// The times in the log of a job do not run back, although an end waits for the transaction
// that records its start.
func TestTimesOfTheJobLogDoNotRunBack(t *testing.T) {
	t.Parallel()
	for _, end := range []string{
		"complete_job($1::bigint, 'w')", "complete_jobs('w', array[$1::bigint])", "fail_job($1::bigint, 'w')", "snooze_job($1::bigint, 'w', '0')",
		"release_jobs('w', array[$1::bigint])", "cancel_job($1::bigint)", "reset_job($1::bigint)",
	} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			id := s.job("{x}")
			s.claimJobs("w", "{x}", 1)
			starting, ending := s.another(), s.another()
			starting.exec("begin")
			starting.exec("select posthorn.heartbeat_job($1, 'w')", id)
			outcome := ending.background("select posthorn."+end, id)
			s.awaitBlocked(ending)
			starting.exec("select posthorn.start_job($1, 'w')", id)
			starting.exec("commit")
			if err := outcome(); err != nil {
				t.Fatal(err)
			}
			equal(t, "runs back", value[bool](s, logRunsBack), false)
		})
	}
}

// A claim that waits takes a job that fails meanwhile, and the log tells it in that order.
func TestTimesOfAClaimThatWaits(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 2), posthorn.set_job_limit('default', 'y', 2)")
	first, _, other := s.job("{x}", "retry_delays => '{0}'"), s.job("{x}"), s.job("{y}")
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{first})
	beside, claiming := s.another(), s.another()
	beside.exec("begin")
	equal(t, "taken beside", beside.claimJobs("u", "{y}", 1), []int64{other})
	outcome := claiming.background("select posthorn.claim_jobs('default', 'v', '{x}', 2)")
	s.awaitBlocked(claiming)
	s.exec("select posthorn.fail_job($1, 'w', 'no')", first)
	beside.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "story", s.jobLog(first), "PICKED FAILED PICKED")
	equal(t, "runs back", value[bool](s, logRunsBack), false)
}

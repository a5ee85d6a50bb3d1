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

// A hint where to look for jobs runs out: then jobs before that place are found.
func TestHintWhereJobsAreRunsOut(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, tags := range []string{"{x}", "{x,y}"} { // one tag and several are looked for in different ways
		later := s.job("{x}")
		s.exec("delete from posthorn.job_hints")
		s.exec(`insert into posthorn.job_hints (namespace_id, tag, rank, due_at, job, until)
			select namespace_id, tag, rank, due_at, job, clock_timestamp() + interval '1 hour' from posthorn.ready_jobs`)
		urgent := s.job("{x}", "priority => 9")
		s.exec("begin")
		equal(t, "while there is a hint", s.claimJobs("w", tags, 1), []int64{later})
		s.exec("rollback")
		s.exec("update posthorn.job_hints set until = clock_timestamp()")
		equal(t, "first", s.claimJobs("w", tags, 1), []int64{urgent})
		equal(t, "second", s.claimJobs("w", tags, 1), []int64{later})
	}
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

package guarantee

import (
	"strings"
	"testing"
	"time"
)

// A job that is put off again and again does not use up its retries, and each snooze
// is in the log.
func TestSnoozeIsNoFailure(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "max_retries => 1")
	for attempt := 1; attempt <= 5; attempt++ {
		equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
		s.exec("select posthorn.snooze_job($1, 'w', '1 hour', $2, 'too early')", id, attempt)
		equal(t, "status", s.jobStatus(id), "PENDING")
		equal(t, "taken too early", s.claimJobs("w", "{x}", 1), []int64{})
		s.turnClock(time.Duration(attempt) * 2 * time.Hour)
	}
	equal(t, "log", s.jobLog(id), strings.Repeat("PICKED SNOOZED ", 4)+"PICKED SNOOZED")
	equal(t, "retries used up", value[int](s, "select retry_count from posthorn.jobs where id = $1", id), 0)
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.complete_job($1, 'w', 6)", id)
	equal(t, "status", s.jobStatus(id), "COMPLETED")
}

// A worker that has lost its job cannot put it off. A repeated snooze is answered with
// the recorded entry.
func TestLateSnoozeIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}")
	s.claimJobs("late", "{x}", 1)
	s.turnClock(2 * time.Minute)
	equal(t, "taken over", s.claimJobs("w", "{x}", 1), []int64{id})
	s.refused("PH003", "select posthorn.snooze_job($1, 'late', '1 hour')", id)
	entry := value[int64](s, "select log_id from posthorn.snooze_job($1, 'w', '1 hour')", id)
	equal(t, "entry of the repeated call", value[int64](s, "select log_id from posthorn.snooze_job($1, 'w', '1 hour')", id), entry)
	s.refused("PH004", "select posthorn.snooze_job($1, 'w', '-1 hour')", id)
}

// A pending job is found where its new priority and due time put it, whether it was
// ready, due later, or held back by its tag; it keeps its unique key.
func TestChangedJobMoves(t *testing.T) {
	t.Parallel()
	s := database(t)
	first, second := s.job("{x}"), s.job("{x,y}", "unique_key => 'k'")
	s.exec(`select posthorn.change_job($1, priority => 5, payload => '{"n": 2}')`, second)
	later := s.job("{x}", "run_at => posthorn.now() + interval '1 hour'")
	s.exec("select posthorn.change_job($1, run_at => posthorn.now(), priority => 9)", later)
	equal(t, "job of the key", s.job("{x}", "unique_key => 'k'"), second)
	s.exec("select posthorn.pause_job_tag('default', 'x')")
	equal(t, "taken of a paused tag", s.claimJobs("w", "{x}", 10), []int64{})
	s.exec("select posthorn.change_job($1, priority => 7)", first)
	s.exec("select posthorn.resume_job_tag('default', 'x')")
	equal(t, "order", s.claimJobs("w", "{x}", 10), []int64{later, first, second})
	equal(t, "payload", value[string](s, "select payload::text from posthorn.jobs where id = $1", second), `{"n": 2}`)
	equal(t, "log", s.jobLog(second), "CHANGED PICKED")
	s.refused("PH002", "select posthorn.change_job($1, priority => 1)", second)
	put := s.job("{z}")
	s.exec("select posthorn.change_job($1, run_at => posthorn.now() + interval '1 hour')", put)
	equal(t, "taken before its new time", s.claimJobs("w", "{z}", 1), []int64{})
	s.turnClock(2 * time.Hour)
	equal(t, "taken at its new time", s.claimJobs("w", "{z}", 1), []int64{put})
}

// A job that failed once and was changed keeps the count of its failures.
func TestChangeKeepsRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x}", "max_retries => 2")
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	s.exec("select posthorn.change_job($1, run_at => posthorn.now())", id)
	equal(t, "taken at its new time", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", id)
	equal(t, "status", s.jobStatus(id), "FAILED")
}

// A deleted job is gone, and its key is free. A job that a worker has is not deleted.
func TestDeletedJobIsGone(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := s.job("{x,y}", "unique_key => 'k'")
	s.exec("select posthorn.delete_job($1)", id)
	equal(t, "taken", s.claimJobs("w", "{x,y}", 10), []int64{})
	s.refused("PH001", "select posthorn.get_job($1)", id)
	equal(t, "rows left", value[int](s, "select count(*) from posthorn.enqueued_jobs"), 0)
	next := s.job("{x}", "unique_key => 'k'")
	if next == id {
		t.Error("the key is that of the deleted job")
	}
	s.claimJobs("w", "{x}", 1)
	s.refused("PH002", "select posthorn.delete_job($1)", next)
}

// Of a claim and a deletion at the same time one wins, and the other one sees it.
func TestDeletionWaitsForTheClaim(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"commit": "PROCESSING", "rollback": ""} {
		s := database(t)
		id := s.job("{x}")
		claimer, deleter := s.another(), s.another()
		claimer.exec("begin")
		equal(t, "taken", claimer.claimJobs("w", "{x}", 1), []int64{id})
		deleted := deleter.background("select posthorn.delete_job($1)", id)
		s.awaitBlocked(deleter)
		claimer.exec(end)
		if err := deleted(); (err == nil) != (want == "") {
			t.Errorf("after %s the deletion ended with %v", end, err)
		}
		if want != "" {
			equal(t, "status", s.jobStatus(id), want)
		}
	}
}

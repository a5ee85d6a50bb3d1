package guarantee

import (
	"testing"
	"time"
)

func (s *session) jobNews() int64 {
	s.t.Helper()
	return value[int64](s, "select pg_sequence_last_value('posthorn.job_news')")
}

// The end of a job is news for workers, though the one job that was parked behind it is
// gone: others of its tag have room now.
func TestEndOfAJobIsNewsThoughNoneIsParked(t *testing.T) {
	t.Parallel()
	for _, withdraw := range []string{"cancel_job($1)", "delete_job($1)"} {
		t.Run(withdraw, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("select posthorn.set_job_limit('default', 'x', 1)")
			ids := []int64{s.job("{x}"), s.job("{x}"), s.job("{x}")}
			equal(t, "taken", s.claimJobs("w", "{x}", 10), ids[:1])
			equal(t, "parked", column[int64](s, "select job from posthorn.parked_jobs"), ids[1:2])
			s.exec("select posthorn."+withdraw, ids[1])
			before := s.jobNews()
			s.exec("select posthorn.complete_job($1, 'w')", ids[0])
			if s.jobNews() == before {
				t.Error("the end of a job was no news")
			}
			equal(t, "taken next", s.claimJobs("w", "{x}", 10), ids[2:])
		})
	}
}

// The end of a job is news, though the claim that parks the next one has not committed yet.
func TestEndOfAJobIsNewsWhileTheNextIsBeingParked(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	first := s.job("{x}")
	equal(t, "taken", s.claimJobs("w", "{x}", 10), []int64{first})
	second := s.job("{x}")
	claiming := s.another()
	claiming.exec("begin")
	equal(t, "taken by another", claiming.claimJobs("v", "{x}", 10), []int64{})
	before := s.jobNews()
	s.exec("select posthorn.complete_job($1, 'w')", first)
	if s.jobNews() == before {
		t.Error("the end of a job was no news")
	}
	claiming.exec("commit")
	equal(t, "taken next", s.claimJobs("w", "{x}", 10), []int64{second})
}

// A job that a claim found and did not hand out is pending, and keeps its unique key until it
// is handed out.
func TestHeldBackJobKeepsItsUniqueKey(t *testing.T) {
	t.Parallel()
	const key = "unique_key => 'k'"
	for name, c := range map[string]struct {
		tags string
		find func(t *testing.T, s *session)
	}{
		"full tag": {"{x}", func(t *testing.T, s *session) {
			s.exec("select posthorn.set_job_limit('default', 'x', 0)")
			equal(t, "taken", s.claimJobs("w", "{x}", 5), []int64{})
			equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 1)
		}},
		"paused tag, of two": {"{y,x}", func(t *testing.T, s *session) {
			s.exec("select posthorn.pause_job_tag('default', 'x')")
			equal(t, "taken", s.claimJobs("w", "{y}", 5), []int64{})
			equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 1)
		}},
		"lock of another": {"{x}", func(t *testing.T, s *session) {
			s.exec("select posthorn.set_job_limit('default', 'x', 5)")
			other := s.another()
			other.exec("begin")
			other.exec("select posthorn.set_job_limit('default', 'x', 6)")
			s.exec("begin")
			s.job("{z}")
			equal(t, "taken", s.claimJobs("w", "{x}", 5), []int64{})
			s.exec("commit")
			other.exec("commit")
		}},
		"one too many": {"{y}", func(t *testing.T, s *session) {
			s.exec("select posthorn.pause_job_tag('default', 'x')")
			s.job("{x}", "priority => 9")
			s.job("{y}", "priority => 8")
			s.job("{y}", "priority => 7")
			equal(t, "taken", len(s.claimJobs("w", "{x,y}", 2)), 2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			id := s.job(c.tags, key)
			c.find(t, s)
			equal(t, "job of the key", s.job(c.tags, key), id)
			s.exec("select posthorn.resume_job_tag('default', 'x'), posthorn.set_job_limit('default', 'x')")
			equal(t, "taken", append(s.claimJobs("w", c.tags, 1), s.claimJobs("w", c.tags, 1)...), []int64{id})
			if s.job(c.tags, key) == id {
				t.Error("a job that is being done stands for one that is yet to be done")
			}
		})
	}
}

// A transaction whose snapshot is older than the limit of a tag ends a job without its place
// under the tag. The place is free after upkeep, and no job fails because of it.
func TestPlaceOfAJobThatEndsInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"complete_job($1, 'w')", "fail_job($1, 'w', retry_in => '0')"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			first, second := s.job("{x}"), s.job("{x}", "priority => -1")
			equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{first})
			old := s.another()
			old.exec("begin isolation level repeatable read")
			old.exec("select from posthorn.running_tags")
			s.exec("select posthorn.set_job_limit('default', 'x', 2)")
			old.exec("select posthorn."+end, first)
			old.exec("commit")
			equal(t, "left places", value[int](s, "select count(*) from posthorn.running_tags"), 1)
			running := s.claimJobs("w", "{x}", 1)
			if end[0] == 'f' {
				equal(t, "taken again", running, []int64{first})
			} else {
				equal(t, "taken next", running, []int64{second})
			}
			s.exec("select posthorn.set_job_limit('default', 'x', 1)")
			s.exec("select posthorn.sweep_jobs()")
			equal(t, "places in use", column[int64](s, "select job from posthorn.running_tags"), running)
			equal(t, "beside it", s.claimJobs("w", "{x}", 5), []int64{})
			s.exec("select posthorn.complete_job($1, 'w')", running[0])
			s.job("{x}")
			equal(t, "in the end", len(s.claimJobs("w", "{x}", 5)), 1)
		})
	}
}

// A worker that asks for jobs of a full tag does not wait for claims that count jobs.
func TestIdleClaimOfAFullTagDoesNotWait(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 9)")
	first := s.claimJobs("w", "{x}", 5)
	equal(t, "taken", len(first), 1)
	other, own := s.another(), s.another()
	other.exec("begin")
	other.exec("select posthorn.set_job_limit('default', 'y', 3)")
	own.exec("set lock_timeout = '1ms'")
	equal(t, "taken by another", own.claimJobs("v", "{x}", 5), []int64{})
	equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 1)
	s.exec("select posthorn.complete_job($1, 'w')", first[0])
	own.refused("55P03", "select posthorn.claim_jobs('default', 'v', '{x}')") // there may be jobs now
	other.exec("commit")
	equal(t, "afterwards", len(own.claimJobs("v", "{x}", 5)), 1)
}

// A claim that hands out nothing leaves its transaction as durable as it was: the caller's
// own rows do not belong to a job that would be handed out again.
func TestClaimWithoutJobsLeavesItsTransactionDurable(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("set synchronous_commit = on")
	s.exec("select posthorn.set_job_limit('default', 'x', 0)")
	s.job("{x}")
	s.job("{later}", "run_at => posthorn.now() + interval '1 hour'")
	s.turnClock(2 * time.Hour)
	for _, tag := range []string{"x", "y"} {
		s.exec("begin")
		equal(t, "taken", s.claimJobs("w", "{"+tag+"}", 5), []int64{})
		equal(t, "synchronous_commit", value[string](s, "select current_setting('synchronous_commit')"), "on")
		s.exec("rollback")
	}
	s.exec("begin")
	equal(t, "taken", len(s.claimJobs("w", "{later}", 5)), 1)
	equal(t, "synchronous_commit with a job", value[string](s, "select current_setting('synchronous_commit')"), "off")
	s.exec("commit")
}

// The number of jobs that a limited tag holds back is that of its due jobs that no worker
// has: it is the same whether the tag happens to have room or not.
func TestHeldBackJobsOfATagAreCounted(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 2)")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 20)")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}', run_at => posthorn.now() + interval '1 hour')")
	heldBack := func() int64 { return value[int64](s, "select parked from posthorn.list_job_limits('default')") }
	equal(t, "at first", heldBack(), int64(20))
	taken := s.claimJobs("w", "{x}", 10)
	equal(t, "while the tag is full", heldBack(), int64(18))
	s.exec("select posthorn.complete_job($1, 'w')", taken[0])
	equal(t, "when it has room", heldBack(), int64(18))
	s.exec("insert into posthorn.ready_jobs select namespace_id, rank, turn, -i, month, attempt, weight, plain, fair, spread, tag, fair_key from posthorn.ready_jobs, generate_series(1, 1000) i where tag = 'x' and job > 0")
	equal(t, "at most", heldBack(), int64(10000))
}

package guarantee

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

// However many workers claim and complete concurrently, never more jobs of a tag run
// than its limit, and in the end all have run.
func TestNoMoreJobsRunThanATagAllows(t *testing.T) {
	t.Parallel()
	s := database(t)
	const n, most = 120, 3
	s.exec("select posthorn.set_job_limit('default', 'tight', $1)", most)
	s.exec(`select posthorn.enqueue('default', 'a', tags => case when i % 2 = 0 then '{tight}' else '{tight,free}' end::text[])
		from generate_series(1, $1::int) i`, n)
	s.workWithin(n, 8, []string{"{tight}", "{free,tight}"},
		"select count(*) || ' jobs' from posthorn.running_jobs having count(*) > "+fmt.Sprint(most))
}

// workWithin lets several workers claim n jobs, by tags that they take from a list in turn, and complete them. It
// reports what over selects meanwhile, which is more than may run at once, and jobs that are held back in the end.
func (s *session) workWithin(n int64, workers int, tags []string, over string) {
	s.t.Helper()
	var done atomic.Int64
	var found sync.Map
	var all sync.WaitGroup
	for i := range workers {
		own, worker := s.another(), fmt.Sprint("w", i)
		all.Go(func() {
			for done.Load() < n {
				taken := own.claimJobs(worker, tags[i%len(tags)], 1+i%3)
				for _, what := range column[string](own, over) {
					found.Store(what, true)
				}
				for _, id := range taken {
					own.exec("select posthorn.complete_job($1, $2)", id, worker)
					done.Add(1)
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	await.Closed(s.t, "all jobs done, also those that were held back", finished)
	found.Range(func(what, _ any) bool { s.t.Errorf("more ran at once than may: %v", what); return true })
	equal(s.t, "held back", value[int](s, "select count(*) from posthorn.parked_jobs"), 0)
}

// When the reason that held jobs back is gone, the jobs are handed out in their
// order.
func TestJobsThatWereHeldBackCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ hold, free string }{
		"pause":           {"pause_job_tag('default', 'x')", "resume_job_tag('default', 'x')"},
		"removed limit":   {"set_job_limit('default', 'x', 0)", "set_job_limit('default', 'x')"},
		"raised limit":    {"set_job_limit('default', 'x', 0)", "set_job_limit('default', 'x', 100)"},
		"removed period":  {"set_job_limit('default', 'x', max_started => 0, period => '1 year')", "set_job_limit('default', 'x')"},
		"paused, limited": {"set_job_limit('default', 'x', 5), posthorn.pause_job_tag('default', 'x')", "resume_job_tag('default', 'x')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			want := []int64{s.job("{y,x}", "priority => 2"), s.job("{x}", "priority => 1"), s.job("{x,y}"), s.job("{x}")}
			s.exec("select posthorn." + c.hold)
			equal(t, "while they are held back", s.claimJobs("w", "{x,y}", 10), []int64{})
			s.exec("select posthorn." + c.free)
			var got []int64
			for range 10 {
				got = append(got, s.claimJobs("w", "{x,y}", 1)...)
			}
			equal(t, "afterwards", got, want)
		})
	}
}

// Each end of a running job lets another job run.
func TestEachEndOfAJobLetsAnotherRun(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}', max_retries => 1) from generate_series(1, 9)")
	clock := time.Duration(0)
	const silence = "" // the worker sends no heartbeats; the third one ends the job for good
	for _, end := range []string{
		"complete_job($1::bigint, 'w')", "fail_job($1::bigint, 'w')", "cancel_job($1::bigint)", "complete_jobs('w', array[$1::bigint])",
		"fail_job($1::bigint, 'w', permanent => true)", silence, silence, silence, "snooze_job($1::bigint, 'w', '1 hour')",
		"release_jobs('w', array[$1::bigint])", "reset_job($1::bigint)",
	} {
		taken := s.claimJobs("w", "{x}", 5)
		if len(taken) != 1 {
			t.Fatalf("before %q: took %v", end, taken)
		}
		equal(t, "a second one", s.claimJobs("v", "{x}", 5), []int64{})
		if end == silence {
			clock += 2 * time.Minute
			s.turnClock(clock)
			continue
		}
		s.exec("select posthorn."+end, taken[0])
	}
	equal(t, "in the end", len(s.claimJobs("w", "{x}", 5)), 1)
	equal(t, "ended by silence", value[int](s, "select count(*) from posthorn.job_log where action = 'FAILED' and error_message like '%silent%'"), 1)
}

// A claim of many jobs leaves those for which there is no room, but parks one. All count as
// held back, and the end of a job is news for workers.
func TestClaimLeavesJobsThatHaveNoRoom(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 2)")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 50)")
	for range 3 {
		taken := s.claimJobs("w", "{x}", 1000)
		equal(t, "taken", len(taken), 2)
		equal(t, "taken by another", s.claimJobs("v", "{x}", 1000), []int64{})
		equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 1)
		equal(t, "held back", value[int](s, "select parked from posthorn.list_job_limits('default')"),
			value[int](s, "select count(*) from posthorn.jobs where status = 'PENDING'"))
		before := s.jobNews()
		equal(t, "completed", column[int64](s, "select x from posthorn.complete_jobs('w', $1) x order by x", taken), taken)
		if s.jobNews() == before {
			t.Error("the end of jobs was no news")
		}
	}
}

// Where several tags are full, one job is parked under each, so that claims do not search
// for more jobs of any of them.
func TestClaimLeavesJobsWhoseTagsHaveNoRoom(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, tag := range limitedTags {
		s.exec("select posthorn.set_job_limit('default', $1, 1)", tag)
	}
	s.exec("select posthorn.enqueue('default', 'a', tags => '{a,b,c,d,e}') from generate_series(1, 100)")
	equal(t, "taken", len(s.claimJobs("w", "{a,b,c,d,e}", 1000)), 1)
	equal(t, "taken by another", s.claimJobs("v", "{a,b,c,d,e}", 1000), []int64{})
	equal(t, "tags of parked jobs", value[[]string](s, "select array_agg(distinct tag::text) from posthorn.parked_jobs"), limitedTags)
	equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 9)
}

// The place of a job that is parked stays free for others while it is being changed,
// cancelled or deleted, and while it waits in the queue; also where jobs take turns.
func TestRoomOfAJobThatIsWithdrawnIsUsed(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"cancel_job($1)", "delete_job($1)", "change_job($1, run_at => posthorn.now() + interval '1 day')"} {
		for _, key := range []string{"null", "'a'"} {
			t.Run(change+" with key "+key, func(t *testing.T) {
				t.Parallel()
				s := database(t)
				s.exec("select posthorn.set_job_limit('default', 'x', 1)")
				key := "fair_key => " + key
				first, second, third := s.job("{x}", key), s.job("{x}", key), s.job("{z,x}", key)
				equal(t, "taken", s.claimJobs("w", "{x}", 2), []int64{first})
				equal(t, "by workers for its other tag", s.claimJobs("w", "{z}", 5), []int64{})
				equal(t, "held back", value[int](s, "select count(distinct job) from posthorn.parked_jobs"), 2)
				s.exec("select posthorn.complete_job($1, 'w')", first)
				equal(t, "by workers for other tags", s.claimJobs("w", "{y}", 5), []int64{})
				s.exec("select posthorn."+change, second)
				equal(t, "the next", s.claimJobs("w", "{x}", 5), []int64{third})
			})
		}
	}
}

// Room under one tag that goes to a job which another tag holds back is for the next job.
func TestRoomOfAJobThatAnotherTagHoldsBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	first, _, third := s.job("{x}"), s.job("{x,y}"), s.job("{x}")
	equal(t, "taken", s.claimJobs("w", "{x}", 5), []int64{first})
	s.exec("select posthorn.pause_job_tag('default', 'y')")
	s.exec("select posthorn.complete_job($1, 'w')", first)
	equal(t, "taken next", append(s.claimJobs("w", "{x}", 5), s.claimJobs("w", "{x}", 5)...), []int64{third})
}

// Jobs that run when their tag gets a limit count, until each of them ends.
func TestJobsThatRunWhenTheirTagIsLimitedCount(t *testing.T) {
	t.Parallel()
	s := database(t)
	ids := []int64{s.job("{x}"), s.job("{x}"), s.job("{x}"), s.job("{x}")}
	equal(t, "taken", s.claimJobs("w", "{x}", 2), ids[:2])
	ending := s.another()
	ending.exec("begin")
	ending.exec("select posthorn.complete_job($1, 'w')", ids[1])
	s.exec("select posthorn.set_job_limit('default', 'x', 1)") // does not wait for the transaction
	ending.exec("commit")
	equal(t, "beside the other", s.claimJobs("w", "{x}", 5), []int64{})
	s.exec("select posthorn.set_job_limit('default', 'x')")
	s.exec("select posthorn.complete_job($1, 'w')", ids[0])
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	equal(t, "afterwards", s.claimJobs("w", "{x}", 5), ids[2:3])
}

// A job that ends after the limit of its tag was removed leaves no place that a later limit
// would count.
func TestJobEndsAfterItsLimitWasRemoved(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	id := s.job("{x}")
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{id})
	s.exec("select posthorn.set_job_limit('default', 'x')")
	equal(t, "limits", value[int](s, "select count(*) from posthorn.job_limits"), 0)
	s.exec("select posthorn.complete_job($1, 'w')", id)
	equal(t, "places", value[int](s, "select count(*) from posthorn.running_tags"), 0)
}

// An end of a job that begins while its tag gets a limit frees the place that the limit
// gave it.
func TestJobEndsWhileItsTagIsLimited(t *testing.T) {
	t.Parallel()
	s := database(t)
	first, second := s.job("{x}"), s.job("{x}")
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{first})
	setting, ending := s.another(), s.another()
	setting.exec("begin")
	setting.exec("select posthorn.set_job_limit('default', 'x', 1)")
	outcome := ending.background("select posthorn.complete_job($1, 'w')", first)
	s.awaitBlocked(ending)
	setting.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "the next", s.claimJobs("w", "{x}", 5), []int64{second})
}

// A transaction that ends a job keeps no other job of its tag waiting, and no end of a job
// waits for a transaction that claims: only claims of limited tags exclude each other.
func TestEndsOfJobsTakeNoLock(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 2)")
	ids := []int64{s.job("{x}"), s.job("{x}"), s.job("{x}"), s.job("{x}")}
	ending, claiming := s.another(), s.another()
	equal(t, "taken", s.claimJobs("w", "{x}", 5), ids[:2])
	ending.exec("begin")
	ending.exec("select posthorn.complete_job($1, 'w')", ids[0])
	claiming.exec("begin")
	equal(t, "while a job ends", claiming.claimJobs("v", "{x}", 5), []int64{})
	s.exec("set lock_timeout = '1ms'")
	s.exec("select posthorn.complete_job($1, 'w')", ids[1])
	ending.exec("commit")
	claiming.exec("commit")
	equal(t, "afterwards", s.claimJobs("w", "{x}", 5), ids[2:])
}

// A claim in a transaction that has done something before does not wait for the lock of
// limits: it takes jobs of other tags, and leaves the limited ones.
func TestClaimThatMustNotWaitLeavesLimitedJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 2)")
	limited, free := s.job("{x}"), s.job("{y}")
	other, own := s.another(), s.another()
	other.exec("begin")
	other.exec("select posthorn.set_job_limit('default', 'x', 3)")
	own.exec("begin")
	own.job("{z}")
	equal(t, "taken", own.claimJobs("w", "{x,y}", 5), []int64{free})
	own.exec("commit")
	other.exec("commit")
	equal(t, "afterwards", s.claimJobs("w", "{x,y}", 5), []int64{limited})
}

// Counting needs the newest rows, so a claim of limited jobs in an old snapshot is refused.
func TestClaimOfLimitedJobsInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	s.job("{x}")
	free := s.job("{y}")
	for _, level := range []string{"repeatable read", "serializable"} {
		s.exec("begin isolation level " + level)
		equal(t, "of a tag without a limit", s.claimJobs("w", "{y}", 5), []int64{free})
		if err := s.refused("PH005", "select posthorn.claim_jobs('default', 'w', '{x}')"); err.Hint == "" {
			t.Error("no hint")
		}
		s.exec("rollback")
	}
}

// As many jobs start in a period as the limit allows, and the others in the next
// periods.
func TestNoMoreJobsStartThanATagAllows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', max_started => 2, period => '1 hour')")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 4)")
	for round, want := range []int{2, 2, 2, 1} {
		s.turnClock(time.Duration(round) * 61 * time.Minute)
		taken := s.claimJobs("w", "{x}", 10)
		equal(t, "taken", len(taken), want)
		if round < 3 {
			s.job("{x}") // no job was parked yet when it comes
		}
		equal(t, "more", len(s.claimJobs("w", "{x}", 10)), 0)
		s.exec("select posthorn.complete_jobs('w', $1)", taken)
		equal(t, "more when they are done", len(s.claimJobs("w", "{x}", 10)), 0)
	}
}

// A job that the limit of a period holds back comes as soon as the first start is a period
// ago.
func TestJobComesWhenThePeriodIsOver(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', max_started => 2, period => '1 hour')")
	ids := []int64{s.job("{x}"), s.job("{x}"), s.job("{x}"), s.job("{x}")}
	take := func(what string, want []int64) {
		t.Helper()
		equal(t, what, s.claimJobs("w", "{x}", len(want)), want)
		s.exec("select posthorn.complete_jobs('w', $1)", want)
	}
	take("first", ids[:1])
	s.turnClock(50 * time.Minute)
	take("later", ids[1:2])
	equal(t, "held back", s.claimJobs("w", "{x}", 5), []int64{})
	s.turnClock(61 * time.Minute)
	take("an hour after the first start", ids[2:3])
	equal(t, "held back", s.claimJobs("w", "{x}", 5), []int64{})
	s.turnClock(111 * time.Minute)
	take("an hour after the second", ids[3:])
}

// A paused tag with many jobs of high priority does not block other jobs.
func TestHeldBackJobsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.pause_job_tag('default', 'slow')")
	s.exec("select posthorn.enqueue('default', 'a', tags => '{slow,both}', priority => 5) from generate_series(1, 3000)")
	id := s.job("{both}")
	s.await("select exists (select from posthorn.claim_jobs('default', 'w', '{slow,both}', 1))")
	equal(t, "taken", value[int64](s, "select job from posthorn.running_jobs"), id)
}

// The limits of both tags of a job apply, whichever tag is asked for.
func TestLimitsOfAllTagsHold(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'a', 1), posthorn.set_job_limit('default', 'b', 1)")
	first, second, third := s.job("{a,b}"), s.job("{a}"), s.job("{b}")
	equal(t, "taken by b", s.claimJobs("w", "{b}", 10), []int64{first})
	equal(t, "taken by a", s.claimJobs("w", "{a}", 10), []int64{})
	s.exec("select posthorn.complete_job($1, 'w')", first)
	equal(t, "afterwards", s.claimJobs("w", "{a,b}", 10), []int64{second, third})
}

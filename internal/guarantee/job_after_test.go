package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// after is an argument of enqueue.
func after(ids ...int64) string {
	return "after => '{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]") + "}'"
}

// doJob takes a job, which must be the next one of its tag, and completes it.
func (s *session) doJob(tags string, id int64) {
	s.t.Helper()
	equal(s.t, "taken", s.claimJobs("w", tags, 1), []int64{id})
	s.exec("select posthorn.complete_job($1, 'w')", id)
}

// A job is handed out when all jobs before it are completed, and not before.
func TestJobWaitsForTheJobsBeforeIt(t *testing.T) {
	t.Parallel()
	s := database(t)
	a, b := s.job("{x}"), s.job("{x}")
	c := s.job("{y}", after(b, a, b))
	d := s.job("{y}", after(c), "priority => 5")
	e := s.job("{y}")
	equal(t, "status", s.jobStatus(c), "PENDING")
	equal(t, "it waits for", value[[]int64](s, "select waits_for from posthorn.jobs where id = $1", c), []int64{a, b})
	equal(t, "taken of the others", s.claimJobs("w", "{y}", 10), []int64{e})
	s.doJob("{x}", a)
	equal(t, "taken after one of two", s.claimJobs("w", "{y}", 10), []int64{})
	s.doJob("{x}", b)
	s.doJob("{y}", c)
	s.doJob("{y}", d)
	for _, table := range []string{"blocked_jobs", "awaited_jobs"} {
		equal(t, "rows of "+table, value[int](s, "select count(*) from posthorn."+table), 0)
	}
	s.claimJobs("w", "{y}", 1)
	equal(t, "rows of job_endings", value[int](s, "select count(*) from posthorn.job_endings"), 0)
}

// Jobs that are completed when the job is enqueued count as done; those that cannot be before it are refused.
func TestJobsThatMayBeBeforeAnother(t *testing.T) {
	t.Parallel()
	s := database(t)
	done, failed, cancelled, open := s.job("{x}"), s.job("{f}"), s.job("{c}"), s.job("{o}")
	s.doJob("{x}", done)
	s.claimJobs("w", "{f}", 1)
	s.exec("select posthorn.fail_job($1, 'w', 'broken', permanent => true)", failed)
	s.exec("select posthorn.cancel_job($1)", cancelled)
	s.exec("select posthorn.define_namespace('other')")
	stranger := value[int64](s, "select posthorn.enqueue('other', 'a')")
	s.doJob("{y}", s.job("{y}", after(done)))
	s.doJob("{y}", s.job("{y}", "after => '{}'"))
	equal(t, "jobs that it waits for", value[[]int64](s, "select waits_for from posthorn.jobs where id = $1", s.job("{y}", after(done, failed, open))), []int64{failed, open})
	const enqueue = "select posthorn.enqueue('default', 'a', after => $1)"
	s.refused("PH002", enqueue, []int64{cancelled})
	s.refused("PH001", enqueue, []int64{stranger})
	s.refused("PH001", enqueue, []int64{-1})
	s.refused("PH001", "select posthorn.enqueue('default', 'a', after => array[null::bigint])")
	s.refused("PH001", enqueue, []int64{stranger + 1000})
	s.refused("PH004", "select posthorn.enqueue('default', 'a', after => array(select g from generate_series(1, 10001) g))")
	// A job cannot wait for itself, or for one that comes later: there are no circles.
	next := value[int64](s, "select nextval('posthorn.job_id')") + 1
	s.refused("PH001", enqueue, []int64{next})
	s.refused("PH001", `select posthorn.enqueue_many('default', jsonb_build_array(jsonb_build_object('title', 'a', 'after', jsonb_build_array($1::bigint + 2)),
		jsonb_build_object('title', 'b')))`, next)
	s.refused("PH004", `select posthorn.enqueue_many('default', '[{"title": "a", "after": "1"}]')`)
	s.refused("PH004", `select posthorn.enqueue_many('default', '[{"title": "a", "after": [1.5]}]')`)
	many := column[int64](s, `select posthorn.enqueue_many('default', '[{"title": "a", "tags": ["m"], "after": [`+fmt.Sprint(open)+`]}, {"title": "a", "tags": ["m"], "after": null}]')`)
	equal(t, "taken", s.claimJobs("w", "{m}", 5), many[1:])
}

// A job that waits for others has its due time, its key, its limits and its place all the same.
func TestBlockedJobKeepsItsProperties(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.job("{x}")
	later := s.job("{y}", after(first), "run_at => posthorn.now() + interval '1 hour'")
	keyed := s.job("{y}", after(first), "unique_key => 'k'")
	s.exec("select posthorn.set_job_limit('default', 'y', 1)")
	equal(t, "a second job with the key", s.job("{y}", "unique_key => 'k'"), keyed)
	low, high := s.job("{y}", after(first)), s.job("{y}", after(first))
	s.exec("select posthorn.change_job($1, priority => 7)", high)
	equal(t, "taken while they wait", s.claimJobs("w", "{y}", 5), []int64{})
	equal(t, "blocked", value[int](s, "select jobs::int from posthorn.job_counts('default') where state = 'behind other jobs'"), 4)
	s.doJob("{x}", first)
	s.doJob("{y}", high)
	s.doJob("{y}", keyed)
	if again := s.job("{z}", "unique_key => 'k'"); again == keyed {
		t.Error("the key was not freed")
	}
	s.doJob("{y}", low)
	s.turnClock(2 * time.Hour)
	s.doJob("{y}", later)
}

// A job that fails for good keeps those behind it waiting, which says so. When it is reset and completes, they go on.
func TestFailedJobKeepsOthersWaiting(t *testing.T) {
	t.Parallel()
	s := database(t)
	a, b := s.job("{x}"), s.job("{o}")
	c := s.job("{y}", after(a, b))
	d := s.job("{z}", after(c))
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.fail_job($1, 'w', 'broken', permanent => true)", a)
	s.doJob("{o}", b)
	equal(t, "taken", s.claimJobs("w", "{y,z}", 5), []int64{})
	const waits = "select side || ' ' || id || ' ' || status from posthorn.job_waits($1)"
	equal(t, "waits", column[string](s, waits, c), []string{fmt.Sprintf("before %d FAILED", a), fmt.Sprintf("after %d PENDING", d)})
	s.refused("PH002", "select posthorn.reset_job($1)", c)
	s.exec("select posthorn.reset_job($1)", a)
	equal(t, "waits after the reset", column[string](s, waits, c), []string{fmt.Sprintf("before %d PENDING", a), fmt.Sprintf("after %d PENDING", d)})
	s.doJob("{x}", a)
	s.refused("PH002", "select posthorn.reset_job($1)", a)
	s.doJob("{y}", c)
	s.doJob("{z}", d)
}

// The end of a cancelled job cancels, fails or keeps the jobs that wait for it, and those behind them.
func TestCancelledJobAndThoseBehindIt(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]string{"keep": "PENDING", "cancel": "CANCELLED", "fail": "FAILED"} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			a, other := s.job("{x}"), s.job("{o}")
			b := s.job("{y}", after(a, other), "unique_key => 'k'")
			c := s.job("{y}", after(b))
			beside := s.job("{y}", after(other))
			s.exec("select posthorn.cancel_job($1, 'not needed')", a)
			equal(t, "kept", s.jobStatus(b), "PENDING")
			s.exec("select posthorn.cancel_job($1, jobs_after => $2)", a, choice)
			equal(t, "the job behind", s.jobStatus(b), want)
			equal(t, "the job behind that", s.jobStatus(c), want)
			s.doJob("{o}", other)
			s.doJob("{y}", beside)
			equal(t, "taken", s.claimJobs("w", "{y}", 5), []int64{})
			if choice == "keep" {
				s.exec("select posthorn.cancel_job($1, jobs_after => 'cancel')", b)
				equal(t, "status", s.jobStatus(c), "CANCELLED")
			} else {
				equal(t, "log", s.jobLog(c), want)
			}
			equal(t, "keys", value[int](s, "select count(*) from posthorn.job_keys"), 0)
			equal(t, "waits", value[int](s, "select count(*) from posthorn.awaited_jobs"), 0)
			equal(t, "blocked", value[int](s, "select count(*) from posthorn.blocked_jobs"), 0)
			if choice == "fail" { // they can be started all the same, one after the other
				s.exec("select posthorn.reset_job($1)", c)
				s.refused("PH002", "select posthorn.reset_job($1)", c) // it waits for b
				s.exec("select posthorn.reset_job($1)", b)
				s.doJob("{y}", b)
				s.doJob("{y}", c)
			}
		})
	}
	s := database(t)
	s.refused("PH004", "select posthorn.cancel_job($1, jobs_after => 'drop')", s.job("{x}"))
}

// Blocked jobs are deleted and cancelled like others; jobs for which others wait are not deleted.
func TestBlockedJobIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := database(t)
	a := s.job("{x}")
	b, c, d := s.job("{y}", after(a)), s.job("{y}", after(a)), s.job("{y}", after(a))
	s.refused("PH002", "select posthorn.delete_job($1)", a)
	s.exec("select posthorn.delete_job($1)", b)
	s.exec("select posthorn.cancel_job($1)", c)
	s.exec("select posthorn.change_job($1, payload => '7')", d)
	equal(t, "waits", column[int64](s, "select job from posthorn.awaited_jobs"), []int64{d})
	equal(t, "pending jobs of the tag", column[int64](s, "select id from posthorn.list_jobs('default', 'PENDING', '{y}')"), []int64{d})
	equal(t, "pending jobs that are counted", value[int](s, "select jobs::int from posthorn.count_jobs_to_steer('default', 'PENDING', '{y}')"), 1)
	s.doJob("{x}", a)
	s.doJob("{y}", d)
}

// Retention keeps blocked jobs, and the jobs for which they wait, however long ago those have failed.
func TestRetentionKeepsBlockedJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	failed, gone := s.job("{x}"), s.job("{g}")
	s.doJob("{g}", gone)
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.fail_job($1, 'w', 'broken', permanent => true)", failed)
	blocked := s.job("{y}", after(failed))
	s.turnClock(400 * 24 * time.Hour)
	s.exec("select posthorn.maintain_job_tables()")
	s.exec("select posthorn.sweep_jobs()")
	equal(t, "jobs", column[int64](s, "select id from posthorn.jobs order by id"), []int64{failed, blocked})
	s.exec("select posthorn.reset_job($1)", failed)
	s.doJob("{x}", failed)
	s.doJob("{y}", blocked)
}

// A claim does not wait for the lock of a job that ends with a deleted one. However often claims put it off, upkeep ends it.
func TestUpkeepEndsJobsThatClaimsPutOff(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return timestamptz '2030-06-15'")
	first := s.job("{x}")
	behind, told := s.another(), s.another()
	behind.exec("begin")
	last := behind.job("{y}", after(first), "unique_key => 'k'")
	s.exec("select posthorn.delete_job($1)", first)
	behind.exec("commit")
	told.exec("begin")
	equal(t, "told of", told.job("{y}", "unique_key => 'k'"), last)
	s.claimJobs("w", "{x}", 1)
	told.exec("rollback")
	equal(t, "status after the claim", s.jobStatus(last), "PENDING")
	s.exec("select posthorn.tend_part('settle_endings')")
	equal(t, "status after upkeep", s.jobStatus(last), "FAILED")
}

// Completions of jobs for which one waits do not wait for each other, and the last one is noticed.
func TestCompletionsBeforeAJobDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := database(t)
	a, b, c := s.job("{x}"), s.job("{x}"), s.job("{x}")
	last := s.job("{y}", after(a, b, c))
	s.claimJobs("w", "{x}", 3)
	one, two := s.another(), s.another()
	for _, o := range []*session{one, two} {
		o.exec("set lock_timeout = '10s'")
		o.exec("begin")
	}
	one.exec("select posthorn.complete_job($1, 'w')", a)
	two.exec("select posthorn.complete_jobs('w', array[$1::bigint])", b)
	s.exec("select posthorn.complete_job($1, 'w')", c)
	equal(t, "taken before they commit", s.claimJobs("w", "{y}", 5), []int64{})
	two.exec("commit")
	equal(t, "taken before all are committed", s.claimJobs("w", "{y}", 5), []int64{})
	one.exec("commit")
	s.turnClock(time.Minute)
	equal(t, "taken", s.claimJobs("w", "{y}", 5), []int64{last})
}

// A claim that may look at all noted ends of jobs again does so before it takes jobs. Claims had begun
// to look behind dead rows, and so behind the end of a job whose transaction committed late.
func TestClaimLooksFromTheBeginningFirst(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.job("{x}")
	last := s.job("{y}", after(first))
	s.claimJobs("w", "{x}", 1)
	s.claimJobs("w", "{y}", 1) // settles what the enqueuing has noted
	other := s.another()
	other.exec("begin; select from posthorn.blocked_jobs for update")
	s.exec("select posthorn.complete_job($1, 'w')", first)
	other.exec("rollback")
	equal(t, "noted", value[int](s, "select count(*) from posthorn.job_endings"), 1)
	s.exec("select setval('posthorn.job_endings_from', 1 + max(n)), setval('posthorn.full_look_from', (1000 * extract(epoch from posthorn.now()))::bigint + 9000) from posthorn.job_endings")
	equal(t, "while claims look behind it", s.claimJobs("w", "{y}", 1), []int64{})
	s.turnClock(10 * time.Second)
	equal(t, "when they look from the beginning again", s.claimJobs("w", "{y}", 1), []int64{last})
}

// Many jobs behind one are unblocked in parts, and all of them once.
func TestManyJobsBehindOne(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.job("{x}")
	const n = 2500
	s.exec("select posthorn.enqueue('default', 'a', tags => '{y}', after => array[$1::bigint]) from generate_series(1, $2::int)", first, n)
	s.doJob("{x}", first)
	equal(t, "unblocked with the end of the job", value[int](s, "select count(*) from posthorn.ready_jobs"), 1000)
	var taken []int64
	for range 10 {
		taken = append(taken, s.claimJobs("w", "{y}", 1000)...)
	}
	slices.Sort(taken)
	equal(t, "different jobs", len(slices.Compact(taken)), n)
}

// A chain of a thousand jobs is done in order.
func TestChainOfAThousandJobs(t *testing.T) {
	t.Parallel()
	s := database(t)
	const n = 1000
	s.exec(`do $$ declare last bigint[]; begin
		for i in 1..1000 loop last := array[posthorn.enqueue('default', 'a', tags => '{x}', priority => i, after => last)]; end loop;
	end $$`)
	var taken []int64
	for range n {
		got := s.claimJobs("w", "{x}", 10)
		if len(got) != 1 {
			t.Fatalf("%d jobs were taken at once, behind %d", len(got), len(taken))
		}
		s.exec("select posthorn.complete_job($1, 'w')", got[0])
		taken = append(taken, got[0])
	}
	equal(t, "in order", slices.IsSorted(taken), true)
	equal(t, "taken", len(taken), n)
}

// While a transaction holds a snapshot, rows that are deleted stay. Claims and completions do not read the traces of
// all jobs that have waited for others meanwhile.
func TestOldWaitsCostNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	holding := s.another()
	holding.exec("begin isolation level repeatable read")
	holding.exec("select 1")
	s.exec("insert into posthorn.job_endings (jobs) select array[-i] from generate_series(1, 100000) i")
	s.exec("delete from posthorn.job_endings")
	s.exec("insert into posthorn.awaited_jobs (before, job, before_month) select -i, -i, now() from generate_series(1, 20000) i")
	s.exec("insert into posthorn.blocked_jobs (job, namespace_id, month) select -i, 1, now() from generate_series(1, 20000) i")
	s.exec("delete from posthorn.awaited_jobs")
	s.exec("delete from posthorn.blocked_jobs")
	// The clock stands still, so that no claim looks from the beginning again.
	s.exec("do $$ begin execute format('create or replace function posthorn.now() returns timestamptz language sql return %L::timestamptz', now()); end $$")
	s.claimJobs("w", "{}", 1) // it sees that the look is slow
	first := s.job("{x}")
	second := s.job("{x}", after(first))
	s.exec("begin")
	before := value[int64](s, totalRead)
	s.doJob("{x}", first)
	s.doJob("{x}", second)
	s.claimJobs("w", "{x}", 1)
	if read := value[int64](s, totalRead) - before; read > 500 {
		t.Errorf("they read %d rows: %s", read, value[string](s, mostRead))
	}
	s.exec("commit")
	holding.exec("commit")
}

// A look that took 200 ms or longer is not repeated within its 10 seconds, also not at the moment when it ended.
func TestSlowLooksAreNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select setval('posthorn.job_endings_from', 5), setval('posthorn.full_look_from', 1000 * 10000 + 10000)")
	s.exec("select posthorn.skip_settled_endings(to_timestamp(10000))")
	equal(t, "the place", value[int64](s, "select last_value from posthorn.job_endings_from"), 5)
	s.exec("select posthorn.skip_settled_endings(to_timestamp(10011))")
	equal(t, "the place later", value[int64](s, "select last_value from posthorn.job_endings_from"), 1)
}

// A job that was enqueued while the job before it was being deleted does not wait for ever: it fails, and says why.
func TestJobBehindADeletedOneFails(t *testing.T) {
	t.Parallel()
	s := database(t)
	before := s.job("{x}")
	publisher := s.another()
	publisher.exec("begin")
	job := value[int64](publisher, "select posthorn.enqueue('default', 'b', tags => '{x}', after => array[$1::bigint])", before)
	s.exec("select posthorn.delete_job($1)", before)
	publisher.exec("commit")
	s.await("select (posthorn.tend() is not null) and posthorn.job_status($1) = 'FAILED'", job)
	equal(t, "why", value[string](s, "select error_message from posthorn.jobs where id = $1", job), fmt.Sprintf("job %d, for which it waited, was deleted", before))
}

// A chain of pending jobs is deleted as a whole.
func TestChainIsDeleted(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	for range 3 {
		job = value[int64](s, "select posthorn.enqueue('default', 'b', tags => '{x}', after => array[$1::bigint])", job)
	}
	equal(t, "deleted", value[int](s, "select jobs from posthorn.steer_jobs('default', 'delete', 'PENDING')"), 4)
}

// Jobs that failed since one before them was cancelled or deleted, and are retried, are handed out in their order: each
// once all jobs before it are completed, but for those that are cancelled or gone.
func TestRetriedChainKeepsItsOrder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *session, first int64, enqueue func(*session)){
		"cancelled": func(s *session, first int64, enqueue func(*session)) {
			enqueue(s)
			s.exec("select posthorn.cancel_job($1, jobs_after => 'fail')", first)
		},
		"deleted": func(s *session, first int64, enqueue func(*session)) {
			publisher := s.another()
			publisher.exec("begin")
			enqueue(publisher)
			s.exec("select posthorn.delete_job($1)", first)
			publisher.exec("commit")
			s.await("select posthorn.settle_endings() = 0")
		},
	} {
		for _, order := range []string{"asc", "desc"} {
			t.Run(name+", retried "+order, func(t *testing.T) {
				t.Parallel()
				s := database(t)
				first, beside := s.job("{x}"), s.job("{o}")
				var chain []int64
				end(s, first, func(s *session) {
					for before := []int64{first, beside}; len(chain) < 10; before = chain[len(chain)-1:] {
						chain = append(chain, s.job("{y}", after(before...), "priority => "+fmt.Sprint(len(chain))))
					}
				})
				equal(t, "failed", column[int64](s, "select id from posthorn.list_jobs('default', 'FAILED')"), chain)
				s.exec("select posthorn.reset_job(id) from posthorn.list_jobs('default', 'FAILED') order by id " + order)
				equal(t, "taken while a job before them waits", s.claimJobs("w", "{y}", 10), []int64{})
				s.doJob("{o}", beside)
				for _, id := range chain {
					equal(t, "taken", s.claimJobs("w", "{y}", 10), []int64{id})
					s.exec("select posthorn.complete_job($1, 'w')", id)
				}
			})
		}
	}
}

// A job that is enqueued while the one before it is being cancelled ends with it, however the transactions interleave,
// by claims alone.
func TestJobThatIsEnqueuedWhileTheOneBeforeItIsCancelled(t *testing.T) {
	t.Parallel()
	// The sessions: e enqueues the second job, c cancels the first one, s looks at the jobs that are noted.
	for name, steps := range map[string]string{
		"enqueuer open":                         `e: begin; E; X; e: commit`,
		"both open, canceller commits first":    `e: begin; E; c: begin; X; c: commit; e: commit`,
		"both open, enqueuer commits first":     `e: begin; c: begin; S; E; X; e: commit; L; c: commit`,
		"canceller open while it is enqueued":   `c: begin; X; E; L; c: commit`,
		"canceller begins, then it is enqueued": `c: begin; S; E; L; X; c: commit`,
		"a worker has the job":                  `W; e: begin; E; X; e: commit`,
		"cancelled twice":                       `e: begin; E; K; X; e: commit`,
		"cancelled twice, the first open":       `e: begin; E; c: begin; K; e: commit; L; c: commit; X`,
		"cancelled twice, the second open":      `e: begin; E; K; c: begin; X; e: commit; L; c: commit`,
		"the cancellation is rolled back":       `e: begin; E; c: begin; X; e: commit; L; c: rollback; X`,
	} {
		for _, isolation := range []string{"read committed", "repeatable read"} {
			for ending, want := range map[string]string{"cancel": "CANCELLED", "fail": "FAILED"} {
				t.Run(name+", "+isolation+", "+ending, func(t *testing.T) {
					t.Parallel()
					s := database(t)
					sessions := map[string]*session{"s": s, "e": s.another(), "c": s.another()}
					sessions["c"].exec("set default_transaction_isolation = '" + isolation + "'")
					first := s.job("{x}")
					for step := range strings.SplitSeq(steps, "; ") {
						step = map[string]string{
							"E": "e: select posthorn.enqueue('default', 'a', tags => '{y}', unique_key => 'k', after => array[$1::bigint])",
							"X": "c: select posthorn.cancel_job($1, jobs_after => '" + ending + "')", "K": "c: select posthorn.cancel_job($1)",
							"W": "s: select posthorn.claim_jobs('default', 'w', '{x}', 1)", "L": "s: select posthorn.settle_endings()",
							"S": "c: select count(*) from posthorn.jobs",
						}[step] + map[bool]string{true: step}[strings.Contains(step, ": ")]
						who, sql, _ := strings.Cut(step, ": ")
						if strings.Contains(sql, "$1") {
							sessions[who].exec(sql, first)
						} else {
							sessions[who].exec(sql)
						}
					}
					s.turnClock(time.Minute)
					for range 2 { // the first claim settles
						equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{})
					}
					equal(t, "status", s.jobStatus(first+1), want)
					equal(t, "rows left", value[int](s, `select (select count(*) from posthorn.job_endings) + (select count(*) from posthorn.awaited_jobs)
						+ (select count(*) from posthorn.blocked_jobs) + (select count(*) from posthorn.job_keys)`), 0)
				})
			}
		}
	}
}

// A job that is enqueued behind one of a chain which is just being cancelled ends with it.
func TestJobThatIsEnqueuedWhileAChainIsCancelled(t *testing.T) {
	t.Parallel()
	s := database(t)
	holds, cancels := s.another(), s.another()
	first := s.job("{x}")
	held, second := s.job("{y}", after(first)), s.job("{y}", after(first))
	holds.exec("begin")
	holds.exec("select from posthorn.blocked_jobs where job = $1 for update", held)
	cancelled := cancels.background("select posthorn.cancel_job($1, jobs_after => 'cancel')", first)
	s.awaitBlocked(cancels) // it has found the jobs behind the first one
	third := s.job("{y}", after(second))
	s.exec("select posthorn.settle_endings()")
	holds.exec("rollback")
	if err := cancelled(); err != nil {
		t.Fatal(err)
	}
	s.turnClock(time.Minute)
	s.claimJobs("w", "{y}", 1)
	for _, id := range []int64{held, second, third} {
		equal(t, "status", s.jobStatus(id), "CANCELLED")
	}
}

// A job that is just being changed ends with the one before it, too.
func TestJobIsChangedWhileTheOneBeforeItIsCancelled(t *testing.T) {
	t.Parallel()
	s := database(t)
	changes, cancels := s.another(), s.another()
	first := s.job("{x}")
	second := s.job("{y}", after(first))
	third := s.job("{y}", after(second))
	changes.exec("begin")
	changes.exec("select posthorn.change_job($1, priority => 3)", second)
	cancelled := cancels.background("select posthorn.cancel_job($1, jobs_after => 'fail')", first)
	s.awaitBlocked(cancels)
	changes.exec("commit")
	if err := cancelled(); err != nil {
		t.Fatal(err)
	}
	equal(t, "status", []string{s.jobStatus(second), s.jobStatus(third)}, []string{"FAILED", "FAILED"})
}

// A claim that ends the jobs behind a cancelled one waits for nobody who has locked them or their keys.
func TestClaimThatEndsJobsWaitsForNobody(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"the job": "select posthorn.change_job($1, priority => 3)",
		"its key": "select posthorn.enqueue('default', 'a', tags => '{y}', unique_key => 'k') where $1 > 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			publisher, holds := s.another(), s.another()
			first := s.job("{x}")
			publisher.exec("begin")
			second := publisher.job("{y}", after(first), "unique_key => 'k'")
			s.exec("select posthorn.cancel_job($1, jobs_after => 'cancel')", first)
			publisher.exec("commit")
			holds.exec("begin")
			holds.exec(lock, second)
			s.exec("set lock_timeout = '5s'")
			equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{})
			equal(t, "status", s.jobStatus(second), "PENDING")
			holds.exec("commit")
			s.turnClock(time.Minute)
			equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{})
			equal(t, "status", s.jobStatus(second), "CANCELLED")
		})
	}
}

// A job that is enqueued while the one before it fails, or loses its workers, waits for it: it is done when that one
// was reset and completed.
func TestJobThatIsEnqueuedWhileTheOneBeforeItFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(s *session, job int64){
		"its worker says so": func(s *session, job int64) {
			s.exec("select posthorn.fail_job($1, 'w', 'broken', permanent => true)", job)
		},
		"its workers fall silent": func(s *session, job int64) {
			s.exec("update posthorn.retried_jobs set expiries = 10 where job = $1", job)
			s.turnClock(time.Hour)
			s.exec("select posthorn.expire_jobs()")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			publisher := s.another()
			first := s.job("{x}")
			s.claimJobs("w", "{x}", 1)
			s.exec("select posthorn.release_jobs('w', array[$1::bigint])", first)
			s.claimJobs("w", "{x}", 1)
			publisher.exec("begin")
			second := publisher.job("{y}", after(first))
			fail(s, first)
			equal(t, "status of the first", s.jobStatus(first), "FAILED")
			publisher.exec("commit")
			equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{})
			s.exec("select posthorn.reset_job($1)", first)
			s.doJob("{x}", first)
			s.doJob("{y}", second)
		})
	}
}

// A change, a cancellation or a deletion of a ready job finds it by its tags: it does not read the other ready jobs.
func TestWithdrawingAJobReadsNoOthers(t *testing.T) {
	t.Parallel()
	s := database(t)
	const pages = "select sum(idx_blks_hit + idx_blks_read)::bigint from pg_statio_user_tables where relname = 'ready_jobs'"
	read := func(call string) int64 {
		job := s.job("{x,z}")
		s.exec("select pg_stat_force_next_flush()")
		before := value[int64](s, pages)
		s.exec("select posthorn."+call, job)
		s.exec("select pg_stat_force_next_flush()")
		return value[int64](s, pages) - before
	}
	s.exec("select posthorn.enqueue('default', 'a', tags => '{y}') from generate_series(1, 20000)")
	for _, call := range []string{"change_job($1, priority => 1)", "cancel_job($1)", "delete_job($1)"} {
		if n := read(call); n > 50 {
			t.Errorf("%s reads %d pages of the index of ready jobs", call, n)
		}
	}
}

// Each place where a job stands is looked at when a claim asks whether a transaction moves the job. One that is completed
// stands in none of them.
func TestJobsAreUndisturbed(t *testing.T) {
	t.Parallel()
	s := database(t)
	undisturbed := func(id int64) bool {
		t.Helper()
		return value[bool](s, "select posthorn.is_undisturbed(o.namespace_id, o.id, o.month) from posthorn.enqueued_jobs o where o.id = $1", id)
	}
	ready, later := s.job("{x,y}"), s.job("{x}", "run_at => now() + '1 day'")
	behind := s.job("{x}", after(ready))
	taken, done, failed := s.job("{t}"), s.job("{d}"), s.job("{f}")
	s.claimJobs("w", "{t}", 1)
	s.doJob("{d}", done)
	s.claimJobs("w", "{f}", 1)
	s.exec("select posthorn.fail_job($1, 'w', permanent => true)", failed)
	for name, id := range map[string]int64{"ready": ready, "later": later, "behind another": behind, "taken": taken, "failed": failed} {
		equal(t, "a job that is "+name+" is undisturbed", undisturbed(id), true)
	}
	equal(t, "a job that is completed is undisturbed", undisturbed(done), false)
}

package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// enqueueFair enqueues n jobs with tag x and a fair key in one statement; more are further arguments of enqueue.
func (s *session) enqueueFair(key string, n int, more ...string) []int64 {
	s.t.Helper()
	return column[int64](s, "select posthorn.enqueue('default', $1, tags => '{x}', fair_key => nullif($1, '-')"+
		strings.Join(append([]string{""}, more...), ", ")+") from generate_series(1, $2)", key, n)
}

// claimKeys takes jobs, and returns their titles, which enqueueFair makes their keys, in order.
func (s *session) claimKeys(tags string, n int) string {
	s.t.Helper()
	return strings.Join(column[string](s, "select title from posthorn.claim_jobs('default', 'w', $1::text::text[], $2, '1 hour')", tags, n), " ")
}

// Behind a thousand jobs of one key, the first job of another is among the next two: however jobs are enqueued and
// claimed, at first and when some have been taken.
func TestJobOfAnotherKeyIsNext(t *testing.T) {
	t.Parallel()
	for _, enqueue := range []string{
		"select posthorn.enqueue('default', $1, tags => '{x}', fair_key => $1) from generate_series(1, $2::int)",
		`select posthorn.enqueue_batch('default', array_agg($1::text), array_agg('{}'::json), array_agg('{x}'::text), fair_keys => array_agg($1::text))
			from generate_series(1, $2::int)`,
		`select posthorn.enqueue_many('default', jsonb_agg(jsonb_build_object('title', $1::text, 'tags', '["x"]'::jsonb, 'fair_key', $1::text)))
			from generate_series(1, $2::int)`,
	} {
		s := database(t)
		s.exec(enqueue, "a", 1000)
		s.exec(enqueue, "b", 1)
		equal(t, "the first", s.claimKeys("{x}", 1)+" "+s.claimKeys("{x}", 1), "a b")
		s.claimKeys("{x}", 498)
		s.exec(enqueue, "b", 3)
		equal(t, "when many have been taken", s.claimKeys("{x}", 6), "a b a b a b")
	}
}

// Keys get shares by their weights.
func TestFairKeysHaveWeights(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("light", 100)
	s.enqueueFair("heavy", 100, "weight => 3")
	taken := s.claimKeys("{x}", 40)
	equal(t, "light jobs among 40", strings.Count(taken, "light"), 10)
	for _, wrong := range []string{"0", "-1", "0.0001", "1001", "'nan'", "'infinity'"} {
		s.refused("PH004", "select posthorn.enqueue('default', 'a', fair_key => 'k', weight => "+wrong+")")
	}
	s.refused("PH004", "select posthorn.enqueue('default', 'a', weight => 1)")
	s.refused("PH004", "select posthorn.enqueue('default', 'a', fair_key => '')")
	s.refused("PH004", "select posthorn.enqueue_batch('default', '{a}', array['{}'::json], weights => '{1}')")
	s.refused("PH004", `select posthorn.enqueue_many('default', '[{"title": "a", "fair_key": "k", "weight": "1"}]')`)
}

// Of a hundred keys, one has 90 % of the jobs. Each of the others waits at most 1.5 times as long as if its share were
// its own: its nth job is done when 100 n jobs are. Beside them are jobs of higher priority, jobs that fail once, and a
// tag with a limit that all jobs have.
func TestEachOfAHundredKeysGetsItsShare(t *testing.T) {
	t.Parallel()
	for name, beside := range map[string]struct {
		tags          string
		limit         int
		prior, failed bool
		batch         int
	}{
		"alone":           {batch: 1},
		"batches":         {batch: 50},
		"priorities":      {batch: 7, prior: true},
		"retries":         {batch: 7, failed: true},
		"a limit":         {batch: 7, limit: 5},
		"a limit of both": {batch: 7, limit: 5, tags: "{x,all}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			tags := "{x}"
			if beside.tags != "" {
				tags = beside.tags
			}
			if beside.limit > 0 {
				s.exec("select posthorn.set_job_limit('default', (($1::text::text[])[cardinality($1::text::text[])]), $2)", tags, beside.limit)
			}
			const perKey = 3
			s.exec(`select posthorn.enqueue('default', 'hog', tags => $1::text::text[], fair_key => 'hog') from generate_series(1, 99 * $2::int * 9)`, tags, perKey)
			s.exec(`select posthorn.enqueue('default', 'key ' || k, tags => $1::text::text[], fair_key => 'key ' || k)
				from generate_series(1, 99) k, generate_series(1, $2::int)`, tags, perKey)
			if beside.prior {
				s.exec("select posthorn.enqueue('default', 'prior', tags => $1::text::text[], priority => 1, fair_key => 'hog') from generate_series(1, 50)", tags)
			}
			done, served := map[string]int{}, 0
			for served < 100*perKey*3/2 {
				var last string
				for _, job := range column[string](s, "select id || ' ' || attempt || ' ' || title from posthorn.claim_jobs('default', 'w', '{x}', $1)", beside.batch) {
					var id, attempt int
					_, title, _ := strings.Cut(job, " ")
					_, title, _ = strings.Cut(title, " ")
					if _, err := fmt.Sscan(job, &id, &attempt); err != nil {
						t.Fatal(err)
					}
					last = title
					if title == "prior" {
						s.exec("select posthorn.complete_job($1, 'w')", id)
						continue
					}
					served++
					if beside.failed && attempt == 1 && id%3 == 0 {
						s.exec("select posthorn.fail_job($1, 'w', 'no', retry_in => '0')", id)
						continue
					}
					s.exec("select posthorn.complete_job($1, 'w')", id)
					done[title]++
					if title != "hog" && !beside.failed && served > 100*done[title]*3/2 {
						t.Fatalf("job %d of %s came as number %d", done[title], title, served)
					}
				}
				if last == "" {
					t.Fatal("no jobs came")
				}
			}
			for k := 1; k <= 99; k++ {
				equal(t, fmt.Sprintf("jobs of key %d", k), done[fmt.Sprint("key ", k)], perKey)
			}
		})
	}
}

// Jobs with and without keys under one tag: neither wait for all of the others, though more come all the time.
func TestJobsWithAndWithoutKeysDoNotStarve(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("-", 3)
	s.enqueueFair("a", 10)
	equal(t, "jobs without keys that were due before", s.claimKeys("{x}", 4), "- - - a")
	s.enqueueFair("-", 2)
	equal(t, "jobs without keys behind many of a key", s.claimKeys("{x}", 3), "a - -")
	taken := ""
	for range 10 {
		s.enqueueFair("-", 20)
		taken += s.claimKeys("{x}", 18)
	}
	if strings.Count(taken, "a") < 4 {
		t.Fatalf("jobs with a key were hardly taken among many without: %q", taken)
	}
	s.claimJobs("w", "{x}", 100)
	for i := range 10 {
		s.enqueueFair(fmt.Sprint("k", i), 30)
	}
	s.enqueueFair("-", 1)
	if taken := s.claimKeys("{x}", 21); !strings.Contains(taken, "-") {
		t.Fatalf("a job without a key was not taken among many with keys: %q", taken)
	}
}

// Where no job has a key, a job stands with the time when it was due, and has no turn.
func TestJobsWithoutKeysHaveNoTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("a", 3)
	s.claimKeys("{x}", 2)
	ids := []int64{s.job("{y}"), s.job("{y,z}"), s.job("{x}", "priority => 1"), s.job("{}")}
	s.exec("select posthorn.enqueue_batch('default', '{a,b}', array['{}'::json, '{}'], '{\"{y}\",\"{y}\"}')")
	equal(t, "jobs with turns", value[int](s, `select count(*) from posthorn.ready_jobs r
		where r.job >= $1 and (r.fair or r.turn <> (select o.run_at from posthorn.enqueued_jobs o where o.id = r.job))`, ids[0]), 0)
	equal(t, "clocks", column[string](s, "select distinct tag || ' ' || rank from posthorn.fair_clocks"), []string{"x 0"})
	s.exec("select posthorn.sweep_jobs()")
	equal(t, "rows of the clock behind a sweep", value[int](s, "select count(*) from posthorn.fair_clocks"), 1)
	s.enqueueFair("b", 1)
	equal(t, "next", s.claimKeys("{x}", 3), "a a b")
}

// A job has a turn under each of its tags by itself, and is taken once.
func TestFairTurnsUnderSeveralTags(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", ", unique_key => gen_random_uuid()::text"} {
		s := database(t)
		enqueue := func(key, tags string, n int) {
			s.exec("select posthorn.enqueue('default', $1, tags => $2::text::text[], fair_key => nullif($1, '-')"+more+") from generate_series(1, $3)", key, tags, n)
		}
		enqueue("-", "{y,plain}", 1)
		enqueue("a", "{x}", 50)
		s.claimKeys("{x}", 40)
		enqueue("b", "{x,y}", 5)
		enqueue("c", "{y}", 5)
		enqueue("c", "{y,x}", 1)
		equal(t, "of the second tag", s.claimKeys("{y}", 3), "- b c")
		equal(t, "of the first tag", s.claimKeys("{x}", 3), "a c a")
		equal(t, "of both tags", len(s.claimJobs("w", "{x,y,plain}", 100)), 9+3+4)
		equal(t, "rows left", value[int](s, "select count(*) from posthorn.ready_jobs"), 0)
		equal(t, "jobs taken twice", value[int](s, "select count(*) from (select event_id from posthorn.job_log group by 1 having count(*) > 1) x"), 0)
	}
}

// A claim of several tags takes jobs of each, wherever their clocks are.
func TestClaimOfSeveralTagsWithFairKeys(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("a", 200)
	s.claimKeys("{x}", 100)
	s.exec("select posthorn.enqueue('default', 'y', tags => '{y}') from generate_series(1, 200)")
	equal(t, "of two tags", strings.Count(s.claimKeys("{x,y}", 40), "y"), 20)
	ones := ""
	for range 60 {
		ones += s.claimKeys("{x,y}", 1)
	}
	if n := strings.Count(ones, "y"); n < 5 || n > 55 {
		t.Errorf("of 60 jobs that were taken one by one, %d have one tag, the others another", n)
	}
	s.exec("select posthorn.enqueue('default', 'prior', tags => '{y}', priority => 1)")
	equal(t, "of higher priority", s.claimKeys("{x,y}", 1), "prior")
}

// Jobs with turns are cancelled, deleted and changed, and leave no row behind.
func TestJobsWithTurnsAreWithdrawn(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'y', 0)")
	s.enqueueFair("k", 1)
	for _, tags := range []string{"{x}", "{x,y}", "{y,x}", "{z,x}"} {
		for _, key := range []string{"null", "'k'"} {
			for _, park := range []bool{false, true} {
				make := func() int64 {
					id := s.job(tags, "fair_key => "+key)
					if park {
						s.exec("begin; select posthorn.claim_jobs('default', 'w', '{x}', 100); select posthorn.release_jobs('w', array(select job from posthorn.running_jobs)); commit")
					}
					return id
				}
				s.exec("select posthorn.cancel_job($1)", make())
				s.exec("select posthorn.delete_job($1)", make())
				id := make()
				s.exec("select posthorn.change_job($1, priority => 3)", id)
				equal(t, "rank", column[int](s, "select distinct rank from posthorn.ready_jobs where job = $1", id), []int{-3})
				s.exec("select posthorn.delete_job($1)", id)
				equal(t, fmt.Sprintf("rows left of tags %s, key %s, parked %t", tags, key, park),
					value[int](s, "select (select count(*) from posthorn.ready_jobs where job > 1) + (select count(*) from posthorn.parked_jobs)"), 0)
			}
		}
	}
}

// Jobs that become due are spread as new ones are.
func TestScheduledJobsTakeTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("late", 3000, "run_at => posthorn.now() + interval '1 minute'")
	s.enqueueFair("-", 1, "run_at => posthorn.now() + interval '1 minute'")
	s.enqueueFair("a", 1)
	s.turnClock(2 * time.Minute)
	for range 4 {
		s.exec("select posthorn.promote_jobs()")
	}
	s.enqueueFair("b", 3)
	equal(t, "first", s.claimKeys("{x}", 9), "late - a b late b late b late")
	s.enqueueFair("b", 2)
	equal(t, "later", s.claimKeys("{x}", 4), "late b late b")
}

// A job that failed comes back in the next round, before the untried jobs of its key, and many that failed do not crowd
// out other keys. A job that was given back comes next.
func TestFailedJobsTakeTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("a", 100)
	failing := s.claimJobs("w", "{x}", 30)
	for _, id := range failing {
		s.exec("select posthorn.fail_job($1, 'w', 'no', retry_in => '0')", id)
	}
	s.enqueueFair("b", 10)
	var attempts []string
	for range 4 {
		attempts = append(attempts, value[string](s, "select title || attempt from posthorn.claim_jobs('default', 'w', '{x}')"))
	}
	slices.Sort(attempts[:3])
	equal(t, "the first round", attempts[:3], []string{"a1", "a2", "b1"})
	rest := s.claimKeys("{x}", 26)
	equal(t, "jobs of the other key among 30", strings.Count(strings.Join(attempts, " ")+rest, "b"), 10)
	given := s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.release_jobs('w', $1::bigint[])", given)
	equal(t, "after it was given back", s.claimJobs("w", "{x}", 1), given)
	s.turnClock(2 * time.Minute)
	equal(t, "when its lease has passed", s.claimJobs("w", "{x}", 1), given)
}

// Jobs that a limit holds back are taken in the order of their turns.
func TestParkedJobsKeepTheirTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'full', 1)")
	for _, key := range []string{"a", "b", "c"} {
		s.exec("select posthorn.enqueue('default', $1, tags => '{x,full}', fair_key => $1) from generate_series(1, 20)", key)
	}
	var order []string
	for range 12 {
		job := column[string](s, "select id || ' ' || title from posthorn.claim_jobs('default', 'w', '{x}', 5)")
		equal(t, "jobs at once", len(job), 1)
		id, key, _ := strings.Cut(job[0], " ")
		order = append(order, key)
		s.exec("select posthorn.complete_job($1::text::bigint, 'w')", id)
	}
	for _, key := range []string{"a", "b", "c"} {
		equal(t, "jobs of "+key, strings.Count(strings.Join(order, " "), key), 4)
	}
	parked := func() int { return value[int](s, "select count(*) from posthorn.parked_jobs") }
	for parked() < 48 { // all others
		s.claimJobs("w", "{x}", 100)
	}
	order = nil
	for range 8 {
		s.exec("select posthorn.enqueue('default', 'd', tags => '{x,full}', fair_key => 'd')")
		for _, job := range column[string](s, "select id || ' ' || title from posthorn.claim_jobs('default', 'w', '{x}', 5)") {
			id, key, _ := strings.Cut(job, " ")
			order = append(order, key)
			s.exec("select posthorn.complete_job($1::text::bigint, 'w')", id)
		}
	}
	equal(t, "jobs", len(order), 8)
	if n := strings.Count(strings.Join(order, " "), "d"); n < 1 || n > 3 {
		t.Errorf("of 8 jobs, %d have one of four keys", n)
	}
}

// A publisher does not wait for another of the same key, whose transaction is open; and a claim waits for neither.
func TestPublishersOfOneKeyDoNotWait(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("set lock_timeout = '1ms'")
	for range 2 {
		open := s.another()
		open.exec("begin")
		open.enqueueFair("a", 10)
		s.enqueueFair("a", 10)
		s.enqueueFair("b", 1)
		equal(t, "taken meanwhile", len(s.claimJobs("w", "{x}", 11)), 11)
		open.exec("commit")
		equal(t, "taken then", s.claimKeys("{x}", 20), "a a a a a a a a a a")
	}
}

// While a transaction holds its snapshot, jobs that were taken leave dead rows. Publishers do not read them, also those of
// a key that has no other rows, and neither do they read the jobs that wait.
func TestFairTurnsAreFoundBesideDeadRows(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, table := range column[string](s, tables) {
		s.exec("alter table " + table + " set (autovacuum_enabled = off)")
	}
	holder := s.another()
	holder.exec("begin isolation level repeatable read")
	holder.exec("select count(*) from posthorn.ready_jobs")
	s.enqueueFair("a", 5000)
	s.enqueueFair("done", 1000)
	for range 6 {
		s.claimKeys("{x}", 700)
	}
	for _, key := range []string{"a", "b", "done", "-"} {
		s.exec("begin")
		before := value[int64](s, totalRead)
		s.enqueueFair(key, 1)
		if read := value[int64](s, totalRead) - before; read > 50 {
			t.Errorf("%d rows were read to enqueue a job of key %s: %s", read, key, value[string](s, mostRead))
		}
		s.exec("rollback")
	}
	s.enqueueFair("b", 1)
	equal(t, "next", s.claimKeys("{x}", 2), "a b")
	holder.exec("commit")
}

// Jobs that a paused tag has held up take turns with those of others when the tag is resumed.
func TestResumedJobsTakeTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.pause_job_tag('default', 'full')")
	const enqueue = "select posthorn.enqueue('default', $1, tags => $2::text::text[], fair_key => $1) from generate_series(1, $3::int)"
	s.exec(enqueue, "hog", "{x,full}", 300)
	s.exec(enqueue, "b", "{x,full}", 10)
	for value[int](s, "select count(*) from posthorn.parked_jobs") < 310 {
		s.claimJobs("w", "{x}", 100)
	}
	s.exec("select posthorn.resume_job_tag('default', 'full')")
	s.claimKeys("{x}", 1)
	s.exec(enqueue, "c", "{x}", 1)
	taken := s.claimKeys("{x}", 20)
	if b := strings.Count(taken, "b"); b < 5 || !strings.Contains(taken, "c") {
		t.Errorf("behind a resumed backlog: %s", taken)
	}
}

// Jobs that wait for others take turns when they become ready, also if no job before them had a fair key.
func TestUnblockedJobsTakeTurns(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.job("{y}")
	after := fmt.Sprintf("after => array[%d::bigint]", first)
	s.enqueueFair("hog", 100, after)
	s.enqueueFair("b", 2, after)
	s.claimJobs("w", "{y}", 1)
	s.exec("select posthorn.complete_job($1, 'w')", first)
	equal(t, "the first", s.claimKeys("{x}", 4), "hog b hog b")
}

// Jobs of one key come in the order in which they were due.
func TestJobsOfOneKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, title := range []string{"3", "1", "2"} {
		s.exec("select posthorn.enqueue('default', $1, tags => '{x}', fair_key => 'a', run_at => posthorn.now() + $2::int * interval '1 minute')", title, title)
	}
	s.turnClock(time.Hour)
	s.exec("select posthorn.promote_jobs()")
	equal(t, "in order", s.claimKeys("{x}", 3), "1 2 3")
}

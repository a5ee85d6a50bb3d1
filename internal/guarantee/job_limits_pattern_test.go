package guarantee

import (
	"testing"
	"time"
)

// A limit of a pattern holds for each tag that begins so, by itself, and for no other.
func TestLimitOfAPatternHoldsForEachTag(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'tenant:*', 2)")
	for range 5 {
		for _, tags := range []string{"{work,tenant:7}", "{work,tenant:8}", "{work,tenant:}", "{work,tenant}", "{work,xtenant:7}", "{work,tenant:*}"} {
			s.job(tags)
		}
	}
	var taken []int64
	for range 10 {
		taken = append(taken, s.claimJobs("w", "{work}", 7)...)
	}
	equal(t, "taken", s.runningOf("tenant:7", "tenant:8", "tenant:", "tenant", "xtenant:7", "tenant:*"), []int{2, 2, 2, 5, 5, 2})
	s.exec("select posthorn.complete_jobs('w', $1)", taken)
	for range 10 {
		s.claimJobs("w", "{work}", 7)
	}
	equal(t, "taken next", s.runningOf("tenant:7", "tenant:8", "tenant:", "tenant:*"), []int{2, 2, 2, 2})
}

// runningOf is how many jobs with each of some tags run.
func (s *session) runningOf(tags ...string) []int {
	s.t.Helper()
	return column[int](s, `select count(r.job)::int from unnest($1::text[]) with ordinality t (tag, n)
		left join posthorn.enqueued_jobs o on t.tag = any (o.tags) left join posthorn.running_jobs r on r.job = o.id
		group by t.n order by t.n`, tags)
}

// The limit of the tag itself counts, or else that of the longest prefix.
func TestTheMostExactLimitCounts(t *testing.T) {
	t.Parallel()
	s := database(t)
	for tag, most := range map[string]int{"*": 1, "a*": 2, "a:*": 3, "a:long:*": 4, "a:long:x": 5, "z**": 6} {
		s.exec("select posthorn.set_job_limit('default', $1, $2)", tag, most)
	}
	tags := []string{"b", "a", "ab", "a:", "a:b", "a:long:", "a:long:xy", "a:long:x", "z*", "zz"}
	s.exec("select posthorn.enqueue('default', 'x', tags => array[t]) from unnest($1::text[]) t, generate_series(1, 8)", tags)
	s.exec("select posthorn.enqueue('default', 'x') from generate_series(1, 8)")
	equal(t, "without tags", len(s.claimJobs("w", "{}", 8)), 8)
	claim := func() {
		for _, tag := range tags {
			s.claimJobs("w", "{"+tag+"}", 8)
			s.claimJobs("w", "{"+tag+"}", 1)
		}
	}
	claim()
	equal(t, "running", s.runningOf(tags...), []int{1, 2, 2, 3, 3, 4, 4, 5, 6, 1})
	s.exec("select posthorn.set_job_limit('default', t) from unnest('{a:long:x,a:*}'::text[]) t")
	s.exec("select posthorn.set_job_limit('default', 'a*', 6)")
	claim()
	equal(t, "without two of them", s.runningOf(tags...), []int{1, 6, 6, 6, 6, 4, 4, 5, 6, 1})
	s.exec("select posthorn.set_job_limit('default', t) from unnest('{*,a*,a:long:*,z**}'::text[]) t")
	claim()
	equal(t, "without limits", s.runningOf(tags...), []int{8, 8, 8, 8, 8, 8, 8, 8, 8, 8})
	claim()
	equal(t, "limits", value[int](s, "select count(*) from posthorn.job_limits"), 0)
}

// When the reason that held jobs of tags of a pattern back is gone, they are handed out in
// their order.
func TestJobsThatAPatternHeldBackCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ hold, free string }{
		"pause":                       {"pause_job_tag('default', 'x:*')", "resume_job_tag('default', 'x:*')"},
		"removed limit":               {"set_job_limit('default', 'x:*', 0)", "set_job_limit('default', 'x:*')"},
		"raised limit":                {"set_job_limit('default', 'x:*', 0)", "set_job_limit('default', 'x:*', 100)"},
		"removed period":              {"set_job_limit('default', 'x:*', max_started => 0, period => '1 year')", "set_job_limit('default', 'x:*')"},
		"limit of the tag":            {"set_job_limit('default', 'x:*', 0)", "set_job_limit('default', 'x:1', 100)"},
		"limit of a longer prefix":    {"set_job_limit('default', 'x*', 0)", "set_job_limit('default', 'x:*', 100)"},
		"removed limit of the tag":    {"set_job_limit('default', 'x:1', 0), posthorn.set_job_limit('default', 'x:*', 9)", "set_job_limit('default', 'x:1')"},
		"removed limit of the longer": {"set_job_limit('default', 'x:*', 0), posthorn.set_job_limit('default', 'x*', 9)", "set_job_limit('default', 'x:*')"},
		"pause beside a limit":        {"set_job_limit('default', 'x:1', 9), posthorn.pause_job_tag('default', 'x:*')", "resume_job_tag('default', 'x:*')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			want := []int64{s.job("{y,x:1}", "priority => 2"), s.job("{x:1}", "priority => 1"), s.job("{x:1,y}"), s.job("{x:1}")}
			s.exec("select posthorn." + c.hold)
			equal(t, "while they are held back", s.claimJobs("w", "{x:1,y}", 10), []int64{})
			s.exec("select posthorn." + c.free)
			var got []int64
			for range 10 {
				got = append(got, s.claimJobs("w", "{x:1,y}", 1)...)
			}
			equal(t, "afterwards", got, want)
		})
	}
}

// A pause of a pattern holds for tags with limits of their own too, and one of a tag leaves
// it the limit of its pattern.
func TestPausesOfPatternsAddUp(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:1', 3), posthorn.set_job_limit('default', 'x:*', 2)")
	s.exec("select posthorn.enqueue('default', 'a', tags => array[t]) from generate_series(1, 9), unnest('{x:1,x:2}'::text[]) t")
	take := func(when string, one, two int) {
		t.Helper()
		for range 3 {
			s.claimJobs("w", "{x:1}", 5)
			s.claimJobs("w", "{x:2}", 5)
		}
		equal(t, when, s.runningOf("x:1", "x:2"), []int{one, two})
		s.exec("select posthorn.complete_jobs('w', array(select job from posthorn.running_jobs))")
	}
	s.exec("select posthorn.pause_job_tag('default', 'x:*')")
	take("pattern paused", 0, 0)
	equal(t, "the tag was paused", value[bool](s, "select posthorn.resume_job_tag('default', 'x:1')"), false)
	s.exec("select posthorn.pause_job_tag('default', 'x:2')")
	equal(t, "the pattern was paused", value[bool](s, "select posthorn.resume_job_tag('default', 'x:*')"), true)
	take("tag paused", 3, 0)
	s.exec("select posthorn.resume_job_tag('default', 'x:2')")
	take("none paused", 3, 2)
}

// Starts count while their tag is paused, since the limit of its pattern holds afterwards.
func TestPausedTagKeepsTheLimitOfItsPattern(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', max_started => 1, period => '1 hour')")
	ids := []int64{s.job("{x:1}"), s.job("{x:1}")}
	equal(t, "taken", s.claimJobs("w", "{x:1}", 5), ids[:1])
	s.exec("select posthorn.complete_job($1, 'w')", ids[0])
	s.exec("select posthorn.pause_job_tag('default', 'x:1')")
	s.exec("select posthorn.sweep_jobs()")
	s.exec("select posthorn.resume_job_tag('default', 'x:1')")
	equal(t, "taken afterwards", s.claimJobs("w", "{x:1}", 5), []int64{})
	s.turnClock(61 * time.Minute)
	equal(t, "an hour later", s.claimJobs("w", "{x:1}", 5), ids[1:])
}

// Each end of a job lets another of its tag run, and as many start in a period as the
// pattern allows each tag.
func TestStartsUnderAPattern(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', max_started => 2, period => '1 hour')")
	s.exec("select posthorn.enqueue('default', 'a', tags => array[t, 'all']) from generate_series(1, 6), unnest('{x:1,x:2}'::text[]) t")
	for round := range 3 {
		s.turnClock(time.Duration(round) * 61 * time.Minute)
		s.exec("select posthorn.sweep_jobs()") // keeps the starts that count
		var taken []int64
		for range 5 {
			taken = append(taken, s.claimJobs("w", "{all}", 3)...)
			s.exec("select posthorn.sweep_jobs()")
		}
		equal(t, "running", s.runningOf("x:1", "x:2"), []int{2, 2})
		equal(t, "openings", value[int](s, "select count(*) from posthorn.job_openings where at > posthorn.now()") <= 2, true)
		s.exec("select posthorn.complete_jobs('w', $1)", taken)
	}
	equal(t, "held back", value[int](s, "select count(*) from posthorn.jobs where status = 'PENDING'"), 0)
	s.exec("select posthorn.set_job_limit('default', 'x:*')")
	s.exec("select posthorn.sweep_jobs()")
	equal(t, "starts without a limit", value[int](s, "select count(*) from posthorn.job_starts"), 0)
}

// Jobs that run when a pattern gets a limit count, each under its tags.
func TestJobsThatRunWhenTheirPatternIsLimitedCount(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.enqueue('default', 'a', tags => array[t, 'all']) from generate_series(1, 2), unnest('{x:1,x:2}'::text[]) t")
	ids := s.claimJobs("w", "{all}", 2)
	equal(t, "taken", s.runningOf("x:1", "x:2"), []int{1, 1})
	s.exec("select posthorn.set_job_limit('default', 'x:*', 1)")
	equal(t, "beside them", s.claimJobs("w", "{all}", 5), []int64{})
	s.exec("select posthorn.complete_jobs('w', $1)", ids)
	equal(t, "afterwards", len(append(s.claimJobs("w", "{all}", 5), s.claimJobs("w", "{all}", 5)...)), 2)
}

// Upkeep lets jobs go on that are parked under a tag of a pattern though there is room, and
// frees the places of jobs that do not run.
func TestUpkeepOfTagsOfPatterns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', 1)")
	ids := []int64{s.job("{x:1}"), s.job("{x:1}")}
	equal(t, "taken", s.claimJobs("w", "{x:1}", 5), ids[:1])
	equal(t, "taken by another", s.claimJobs("v", "{x:1}", 5), []int64{})
	s.exec("delete from posthorn.running_jobs") // as an end in an old snapshot leaves it
	s.exec("select posthorn.sweep_jobs()")
	equal(t, "places", value[int](s, "select count(*) from posthorn.running_tags"), 0)
	s.exec("delete from posthorn.job_openings")
	s.exec("select posthorn.sweep_jobs()")
	equal(t, "afterwards", s.claimJobs("w", "{x:1}", 5), ids[1:])
}

// The list has the pattern with the sums of its tags, without those that have a closer limit.
func TestListOfPatterns(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', 2, 3, '1 hour'), posthorn.set_job_limit('default', 'x:1', 1), posthorn.set_job_limit('default', 'x:9*', 1)")
	s.exec("select posthorn.enqueue('default', 'a', tags => array[t]) from generate_series(1, 5), unnest('{x:1,x:2,x:3,x:91}'::text[]) t")
	for _, tag := range []string{"x:1", "x:2", "x:3", "x:91"} {
		s.claimJobs("w", "{"+tag+"}", 5)
	}
	equal(t, "limits", column[string](s, "select concat_ws(' ', tag, max_running, running, started, parked) from posthorn.list_job_limits('default')"),
		[]string{"x:* 2 4 4 6", "x:1 1 1 0 4", "x:9* 1 1 0 4"})
	equal(t, "full tags", column[string](s, "select tag from posthorn.limited_tags(true) l where posthorn.tag_room(l, posthorn.now()) <= 0 order by 1"),
		[]string{"x:1", "x:2", "x:3", "x:91"})
}

// The tags in use under a pattern are those with jobs that run, are parked, are ready or have started; the tag that is the
// prefix itself is one of them.
func TestTagsInUseUnderAPattern(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', 1, 3, '1 hour'), posthorn.set_job_limit('default', '*', 9)")
	s.job("{x:parked}")
	for _, tag := range []string{"x:", "x:runs", "x:started", "x", "y", "x:parked"} {
		s.job("{" + tag + "}")
		ids := s.claimJobs("w", "{"+tag+"}", 2)
		if tag == "x:started" || tag == "x:parked" { // of which there is another
			s.exec("select posthorn.complete_jobs('w', $1)", ids)
		}
	}
	s.job("{x:ready}")
	s.job("{}")
	inUse := func(pattern, waiting string) []string {
		return column[string](s, "select t.tag from posthorn.job_limits l, posthorn.limits_under(l, "+waiting+") t where l.tag = $1 order by 1", pattern)
	}
	equal(t, "that run or are parked", inUse("x:*", "false"), []string{"x:", "x:parked", "x:runs"})
	equal(t, "all", inUse("x:*", "true"), []string{"x:", "x:parked", "x:ready", "x:runs", "x:started"})
	equal(t, "under the pattern of all tags", inUse("*", "true"), []string{"x", "y"})
}

// However many workers claim and complete concurrently, never more jobs of a tag run than
// its pattern allows, and in the end all have run.
func TestNoMoreJobsRunThanAPatternAllows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', 1), posthorn.set_job_limit('default', 'x:1', 2)")
	const n = 120
	s.exec(`select posthorn.enqueue('default', 'a', tags => array['x:' || i % 5, 'all']) from generate_series(1, $1::int) i`, n)
	s.workWithin(n, 6, []string{"{all}", "{x:1,x:2,x:3}", "{x:0,x:4,all}"},
		`select t from posthorn.running_jobs r join posthorn.enqueued_jobs o on o.id = r.job, unnest(o.tags) t
		where t <> 'all' group by t having count(*) > case t when 'x:1' then 2 else 1 end`)
}

// A claim and an end of a job under a pattern read as many rows with many tags and patterns as
// with few.
func TestManyTagsUnderAPatternStayCheap(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x:*', 1)")
	read := func(sql string, args ...any) int64 {
		s.exec("select setval('posthorn.expire_jobs_from', (extract(epoch from posthorn.now() + interval '5 seconds') * 1000)::bigint)") // see makeCalls
		s.exec("select pg_stat_force_next_flush()")
		s.exec("begin")
		before := value[int64](s, totalRead)
		s.exec(sql, args...)
		rows := value[int64](s, totalRead) - before
		s.exec("commit")
		return rows
	}
	first := []int64{s.job("{x:first}"), s.job("{x:first}")}
	calls := func() []int64 {
		claim := read("select posthorn.claim_jobs('default', 'w', '{x:first}', 5)")
		end := read("select posthorn.complete_jobs('w', array(select job from posthorn.running_jobs where job = any ($1)))", first)
		return []int64{claim, end}
	}
	few := calls()
	s.exec("select posthorn.set_job_limit('default', 'y:' || i || '*', 1), posthorn.set_job_limit('default', 'z:' || i, 1) from generate_series(1, 500) i")
	s.exec("select posthorn.enqueue('default', 'a', tags => array['x:' || i]) from generate_series(1, 1000) i, generate_series(1, 2)")
	s.exec("select posthorn.claim_jobs('default', 'w', array['x:' || i], 2) from generate_series(1, 1000) i")
	equal(t, "running", value[int](s, "select count(*) from posthorn.running_tags"), 1000)
	equal(t, "parked", value[int](s, "select count(*) from posthorn.parked_jobs"), 1000)
	many := calls()
	for i, what := range []string{"claim", "end"} {
		if many[i] > few[i]+20 {
			t.Errorf("%s: %d rows are read with 1,000 tags and 1,000 limits, %d with one", what, many[i], few[i])
		}
	}
}

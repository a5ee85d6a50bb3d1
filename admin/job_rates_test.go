package admin_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// jobs is a row of a chart: jobs by their ends.
type jobs struct{ enqueued, completed, failed float64 }

func jobTotals(t *testing.T, a *admin.Admin, tag string) (sum jobs) {
	t.Helper()
	rates, err := a.JobRates(t.Context(), tag, 24*time.Hour, 96)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rates {
		sum = jobs{sum.enqueued + r.Enqueued, sum.completed + r.Completed, sum.failed + r.Failed}
	}
	for _, n := range []*float64{&sum.enqueued, &sum.completed, &sum.failed} {
		*n = math.Round(*n*1e6) / 1e6
	}
	return sum
}

// execIn runs statements.
func execIn(t *testing.T, ph *posthorn.Client, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := ph.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// work claims and ends jobs of a tag.
func work(namespace, tag string, n int, end string) string {
	return fmt.Sprintf(`select %s from posthorn.claim_jobs('%s', 'w', '{%s}', %d) j`, end, namespace, tag, n)
}

const (
	completeJob = "posthorn.complete_job(j.id, 'w', execution_time_ms => 3000)"
	failJob     = "posthorn.fail_job(j.id, 'w', 'broken', permanent => true)"
)

// The samples count the same jobs as the tables, by namespace and by tag, and each job once: also one that has failed,
// was reset, and stands in a gap that another one has left.
func TestJobRates(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	check := func(tag string, want jobs) {
		t.Helper()
		if got := jobTotals(t, a, tag); got != want {
			t.Errorf("the samples of tag %q have %+v, not %+v", tag, got, want)
		}
	}
	execIn(t, ph, "select posthorn.define_namespace('other')")
	tend(t, ph, 2*time.Minute)
	execIn(t, ph,
		`select posthorn.enqueue('default', 'x', tags => case when i % 2 = 0 then '{even,mail}'::text[] else '{mail}' end) from generate_series(1, 400) i`,
		`select posthorn.enqueue('default', 'x') from generate_series(1, 5) i`,
		`select posthorn.enqueue('other', 'x', tags => '{mail}') from generate_series(1, 50) i`)
	posthorntest.Advance(t, ph, 4*time.Second)
	execIn(t, ph, work("default", "even", 150, completeJob), work("default", "even", 20, failJob), work("other", "mail", 10, completeJob))
	tend(t, ph, time.Minute)
	check("", jobs{405, 150, 20})
	check("mail", jobs{400, 150, 20})
	check("even", jobs{200, 150, 20})
	check("odd", jobs{})
	if other := jobTotals(t, admin.New(ph.Pool(), "other"), "mail"); other != (jobs{50, 10, 0}) {
		t.Errorf("the other namespace has %+v", other)
	}
	tend(t, ph, time.Minute)
	check("", jobs{405, 150, 20})
	execIn(t, ph, work("default", "even", 3, completeJob)) // into the last block
	tend(t, ph, time.Minute)
	check("", jobs{405, 153, 20})

	execIn(t, ph, "select posthorn.reset_job(id) from posthorn.jobs where status = 'FAILED'")
	execIn(t, ph, "vacuum posthorn.finished_jobs")
	// The parts look as if they had many blocks behind the gaps.
	execIn(t, ph, "update posthorn.job_sample_places set place = 100000 where part <> 'posthorn.enqueued_jobs'::regclass")
	execIn(t, ph, work("default", "even", 7, completeJob))
	tend(t, ph, time.Minute)
	check("", jobs{405, 160, 20})
	execIn(t, ph, work("default", "mail", 500, completeJob))
	tend(t, ph, time.Minute)
	tend(t, ph, time.Minute)
	var completed float64
	if err := ph.Pool().QueryRow(t.Context(), "select count(*) from posthorn.finished_jobs f join posthorn.namespaces n on n.id = f.namespace_id and n.namespace = 'default'").Scan(&completed); err != nil || completed != 400 {
		t.Fatalf("%v jobs are completed, %v", completed, err)
	}
	check("", jobs{405, 400, 20})

	rates, err := a.JobRates(t.Context(), "even", time.Hour, 60)
	if err != nil {
		t.Fatal(err)
	}
	within := func(seconds *float64, want float64) bool {
		return seconds != nil && *seconds >= want/2 && *seconds <= 2*want // the clock goes on
	}
	if !slices.ContainsFunc(rates, func(r admin.JobRate) bool {
		return within(r.WaitedP50, 4) && within(r.WaitedP95, 4) && within(r.RanP50, 3) && r.RanP95 != nil && *r.RanP95 == 3 // the longest one
	}) {
		t.Errorf("no interval has jobs that waited 4 seconds and ran 3: %+v", rates)
	}
}

// Percentiles of buckets are within a tenth of those of the times, and never above the longest time. Samples that have counts
// by powers of two are read too, also beside others, whose longest time does not cut them off.
func TestTimesOfJobs(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	for name, times := range map[string]string{
		"alike":              "select 1234.5 from generate_series(1, 100)",
		"a few milliseconds": "select 1 + i % 7 from generate_series(1, 100) i",
		"far apart":          "select 1.07 ^ i from generate_series(1, 250) i",
		"one":                "select 1261000",
		"none":               "select 1 where false",
		"no time":            "select 0 from generate_series(1, 10)",
	} {
		var wrong int
		if err := ph.Pool().QueryRow(t.Context(), fmt.Sprintf(`
			with t as (select coalesce(array_agg(x::float8), '{}') as times from (%s) u (x)),
			c as (select t.times, posthorn.time_counts(t.times, array_fill(1::float8, array[cardinality(t.times)])) as counts from t)
			select count(*) from c cross join unnest(array[0.01, 0.5, 0.95, 1]::float8[]) part
			cross join lateral (select percentile_disc(part) within group (order by x) / 1000 as real, max(x) / 1000 as longest from unnest(c.times) x) r
			cross join lateral (select posthorn.time_within(c.counts::float8[], part) as found) f
			where f.found is null <> (r.real is null) or f.found > r.longest or f.found > r.real * 1.1 + 0.001 or f.found < r.real / 1.1 - 0.001`, times)).Scan(&wrong); err != nil || wrong > 0 {
			t.Errorf("of times that are %s, %d percentiles are wrong, %v", name, wrong, err)
		}
	}
	// Of 800 jobs whose times were between 1024 and 2048 milliseconds, and of one in the older form with two that were not.
	var sum, before, longest int64
	var half float64
	if err := ph.Pool().QueryRow(t.Context(), `
		with old as (select (array_fill(0::bigint, array[32]))[1:10] || 800::bigint || (array_fill(0::bigint, array[32]))[12:31] || 2::bigint as counts),
		s as (select array_agg(jsonb_populate_record(null::posthorn.job_samples, jsonb_build_object('ran', c))) as samples
			from (select old.counts from old union all select posthorn.time_counts('{5000,70}', '{1,1}')) x (c)),
		added as (select posthorn.sum_times(s.samples, true) as counts from s)
		select (select sum(b.jobs) from added cross join lateral posthorn.time_buckets(added.counts) b where b.bucket >= 0),
			(select sum(b.jobs) from old cross join lateral posthorn.time_buckets(old.counts) b where b.bucket between 0 and 88),
			(select max(b.jobs) from added cross join lateral posthorn.time_buckets(added.counts) b where b.bucket = -1),
			(select posthorn.time_within((select array_agg(array[b.bucket::float8, b.jobs::float8]) from posthorn.time_buckets(old.counts) b), 0.5) from old)`,
	).Scan(&sum, &before, &longest, &half); err != nil || sum != 804 || before != 800 || longest != 1<<32*1000 || half < 1.45 || half > 1.63 {
		t.Errorf("an older sample has %d jobs, half of them within %v s, and with another one %d, the longest %d µs: %v", before, half, sum, longest, err)
	}
}

// Of each minute the twenty tags with the most jobs are kept, and so they are when the minutes of a quarter of an hour become
// one row: its sums and times are those of the minutes.
func TestJobSamplesAreFew(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	tend(t, ph, 2*time.Minute)
	rows := func(want int) {
		t.Helper()
		var n int
		if err := ph.Pool().QueryRow(t.Context(), "select count(*) from posthorn.job_samples").Scan(&n); err != nil || n != want {
			t.Errorf("there are %d samples, not %d, %v", n, want, err)
		}
	}
	for minute := range 3 {
		execIn(t, ph, fmt.Sprintf(`select posthorn.enqueue('default', 'x', tags => array['t' || i || case when i <= 20 then ' of %d' else '' end])
			from generate_series(1, 30) i, generate_series(1, i)`, minute))
		posthorntest.Advance(t, ph, 4*time.Second)
		execIn(t, ph, work("default", "t30", 8, completeJob))
		tend(t, ph, time.Minute)
	}
	rows(3 * 21)
	busiest, err := a.BusiestTags(t.Context(), time.Hour, 60)
	if err != nil || len(busiest) != 20 || busiest[0].Tag != "t30" || math.Round(busiest[0].Enqueued) != 90 || math.Round(busiest[0].Completed) != 24 || busiest[0].Failed != 0 ||
		len(busiest[0].Line) != 60 || busiest[0].RanP95 == nil || *busiest[0].RanP95 != 3 {
		t.Fatalf("the busiest tags are %+v, %v", busiest, err)
	}
	execIn(t, ph, "update posthorn.job_samples set at = posthorn.quarter_of(posthorn.now() - interval '4 hours') + (at - (select min(at) from posthorn.job_samples)) + interval '2 minutes'",
		"insert into posthorn.job_samples select namespace_id, at - interval '9 days', tag, seconds, 1, 1, 1, waited, ran from posthorn.job_samples")
	before, err := a.JobRates(t.Context(), "t30", 24*time.Hour, 96)
	if err != nil {
		t.Fatal(err)
	}
	tend(t, ph, 16*time.Minute)
	rows(21)
	after, err := a.JobRates(t.Context(), "t30", 24*time.Hour, 96)
	if err != nil || len(after) != 2 || len(before) != 2 || math.Round(after[0].Enqueued) != 90 || math.Round(after[0].Completed) != 24 ||
		after[0].WaitedP95 == nil || *after[0].WaitedP95 != *before[0].WaitedP95 || *after[0].RanP50 != *before[0].RanP50 {
		t.Errorf("the rates are %+v, and were %+v, %v", after, before, err)
	}
}

// More jobs in a minute than are counted are estimated from some of them.
func TestManyJobsAreEstimated(t *testing.T) {
	t.Parallel()
	const takeMany = `with c as (select array_agg(j.id) as ids from posthorn.claim_jobs('default', 'w', '{t0,t1}', 6000) j)
		select count(*) from c, posthorn.complete_jobs('w', c.ids)`
	ph := posthorntest.Open(t, posthorn.Config{})
	tend(t, ph, 2*time.Minute)
	execIn(t, ph, `select count(*) from generate_series(1, 12) n, posthorn.enqueue_many('default', (
		select jsonb_agg(jsonb_build_object('title', 'x ' || n, 'tags', jsonb_build_array('t' || i % 2))) from generate_series(1, 1000) i))`,
		takeMany, takeMany)
	var done float64
	if err := ph.Pool().QueryRow(t.Context(), "select count(*) from posthorn.finished_jobs").Scan(&done); err != nil || done < 10001 {
		t.Fatalf("%v jobs are done, %v", done, err)
	}
	tend(t, ph, time.Minute)
	near := func(n, want float64) bool { return math.Abs(n-want) <= want/10 }
	if got := jobTotals(t, ph.Admin(), ""); !near(got.enqueued, 12000) || !near(got.completed, done) {
		t.Errorf("the samples have %+v of 12000 jobs, of which %v are done", got, done)
	}
	if got := jobTotals(t, ph.Admin(), "t1"); !near(got.enqueued, 6000) || !near(got.completed, done/2) {
		t.Errorf("the samples of half of them have %+v", got)
	}
}

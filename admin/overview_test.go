package admin_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// tend does the upkeep, after some time.
func tend(t *testing.T, ph *posthorn.Client, later time.Duration) {
	t.Helper()
	posthorntest.Advance(t, ph, later)
	var errors *string
	if err := ph.Pool().QueryRow(t.Context(), "select posthorn.tend()->>'errors'").Scan(&errors); err != nil || errors != nil {
		t.Fatal(errors, err)
	}
}

// The intervals have the events of their namespace that were published, handled and failed in them,
// also those since the last sample.
func TestRates(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	exec := func(sql string) {
		t.Helper()
		if _, err := ph.Pool().Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("select posthorn.define_namespace('other')")
	exec(`select posthorn.define_group('default', 'g', '{"start": "beginning"}')`)
	tend(t, ph, 2*time.Minute)
	exec("select posthorn.publish('default', 'e') from generate_series(1, 5)")
	exec("select posthorn.publish('other', 'e') from generate_series(1, 7)")
	exec(`with c as (select * from posthorn.claim('default', 'g', 'w', 3))
		select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id))::jsonb) from c group by lease, attempt`)
	exec("select posthorn.settle(lease, attempt) from (select distinct lease, attempt from posthorn.claim('default', 'g', 'w', 100)) c")
	tend(t, ph, time.Minute)
	tend(t, ph, time.Minute)
	exec("select posthorn.publish('default', 'e') from generate_series(1, 2)")
	posthorntest.Advance(t, ph, 30*time.Second)
	rates, err := a.Rates(ctx, time.Hour, 60)
	if err != nil || len(rates) < 3 || len(rates) > 5 {
		t.Fatalf("rates are %+v, %v", rates, err)
	}
	var published, handled, failed float64
	for i, r := range rates {
		published, handled, failed = published+r.Published, handled+r.Handled, failed+r.Failed
		if last := i == len(rates)-1; r.Seconds > 60 || r.Seconds < 60 && !last {
			t.Errorf("the interval is %+v", r)
		}
	}
	if math.Abs(published-7) > 1e-6 || handled < 4.99 || math.Abs(failed-3) > 1e-6 {
		t.Errorf("%v published, %v handled, %v failed in %+v", published, handled, failed, rates)
	}
	lags, err := a.GroupRates(ctx, "g", time.Hour, 60)
	if err != nil || len(lags) < 2 {
		t.Fatalf("rates of the group are %+v, %v", lags, err)
	}
	var passed float64
	for _, l := range lags {
		passed += l.Passed
	}
	if passed < 4.99 || math.Abs(passed-handled) > 2 { // the last two events are handled in neither
		t.Errorf("the group has passed %v of %v in %+v", passed, handled, lags)
	}
	if _, err := a.Rates(ctx, time.Hour, 1000); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("a chart of 1000 intervals: %v", err)
	}
}

// Samples that are three hours old become one for each quarter of an hour. It has their sums
// and the highest lag, and a chart shows as much as before.
func TestSamplesAreMerged(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	exec := func(sql string) {
		t.Helper()
		if _, err := ph.Pool().Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	tend(t, ph, time.Minute)
	exec(`select posthorn.define_group('default', 'g')`)
	exec(`delete from posthorn.samples`)
	// Samples of 30 minutes, four hours ago, and one that is older than all charts.
	exec(`insert into posthorn.samples (namespace_id, at, seq, seconds, published, handled, failed, groups, positions, lags, passed)
		select g.namespace_id, posthorn.quarter_of(posthorn.now() - interval '4 hours') + i * interval '1 minute', i, 60, 60, 120, 1, array[g.id], array[i], array[case when i = 7 then 500 else 5 end], array[30]
		from posthorn.groups g, generate_series(0, 29) i where g.name = 'g'`)
	exec(`insert into posthorn.samples (namespace_id, at, seq, seconds, published, handled, failed, groups, positions, lags, passed)
		select namespace_id, at - interval '9 days', 0, 60, 1, 1, 1, '{}', '{}', '{}', '{}' from posthorn.samples limit 1`)
	before, err := a.Rates(ctx, 24*time.Hour, 96)
	if err != nil || len(before) < 2 {
		t.Fatalf("rates are %+v, %v", before, err)
	}
	tend(t, ph, 16*time.Minute)
	var left int
	if err := ph.Pool().QueryRow(ctx, "select count(*) from posthorn.samples where at < posthorn.now() - interval '3 hours'").Scan(&left); err != nil || left != 2 {
		t.Errorf("%d old samples are left, %v", left, err)
	}
	after, err := a.Rates(ctx, 24*time.Hour, 96)
	if err != nil || len(after) < 2 {
		t.Fatalf("then rates are %+v, %v", after, err)
	}
	if published, failed := total(after); math.Abs(published-1800) > 1e-6 || math.Abs(failed-30) > 1e-6 {
		t.Errorf("%v published and %v failed in %+v", published, failed, after)
	}
	lags, err := a.GroupRates(ctx, "g", 24*time.Hour, 96)
	if err != nil || len(lags) < 2 || !slices.ContainsFunc(lags, func(r admin.GroupRate) bool { return r.LagSeconds == 500 }) {
		t.Errorf("rates of the group are %+v, %v", lags, err)
	}
}

func total(rates []admin.Rate) (published, failed float64) {
	for _, r := range rates {
		published, failed = published+r.Published, failed+r.Failed
	}
	return published, failed
}

// The group that is furthest behind comes first, then the one with the most dead
// letters.
func TestWorstGroups(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	bury(t, ph.Pool(), 2)
	for _, name := range []string{"well", "behind"} {
		if err := a.DefineGroup(ctx, name, admin.GroupSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ph.Pool().Exec(ctx, "select posthorn.publish('default', 'e')"); err != nil {
		t.Fatal(err)
	}
	tend(t, ph, time.Minute)
	if _, err := ph.Pool().Exec(ctx, `select posthorn.settle(lease, attempt) from posthorn.claim('default', 'well', 'w') union all
		select posthorn.settle(lease, attempt) from posthorn.claim('default', 'g', 'w')`); err != nil {
		t.Fatal(err)
	}
	tend(t, ph, 15*time.Minute)
	worst, err := a.WorstGroups(ctx, 2)
	if err != nil || len(worst) != 2 || worst[0].Group != "behind" || worst[1].Group != "g" {
		t.Fatalf("worst are %+v, %v", worst, err)
	}
	if g := worst[0]; g.LagSeconds < 900 || g.IdleSeconds < 900 || g.Readers != 0 || g.Kind != "group" || g.LagBefore == nil || *g.LagBefore > g.LagSeconds {
		t.Errorf("the one that is behind is %+v", g)
	}
	if worst[1].DeadLetters != 2 {
		t.Errorf("the one with dead letters is %+v", worst[1])
	}
}

// The preview says what seek then does.
func TestPreviewSeek(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	bury(t, ph.Pool(), 4) // the group has read them
	tend(t, ph, time.Hour)
	between, err := a.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	posthorntest.Advance(t, ph, time.Hour)
	if _, err := ph.Pool().Exec(ctx, "select posthorn.publish('default', 'e') from generate_series(1, 3)"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		to             posthorn.Moment
		again, skipped int64
	}{"beginning": {posthorn.Beginning, 4, 0}, "between": {posthorn.At(between), 0, 0}, "end": {posthorn.End, 0, 3}} {
		p, err := a.PreviewSeek(ctx, "g", c.to)
		if err != nil || p.Again != c.again || p.Skipped != c.skipped || p.Leases != 0 {
			t.Errorf("%s: %+v, %v; want %d again, %d skipped", name, p, err, c.again, c.skipped)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	if s, err := a.Summary(ctx); err != nil || s.LastEvent != 0 || s.Groups != 0 || s.LogBytes == 0 {
		t.Errorf("of a new namespace: %+v, %v", s, err)
	}
	for _, sql := range []string{
		"select posthorn.define_group('default', 'g')", "select posthorn.publish('default', 'e')",
		"select posthorn.enqueue('default', 'a', tags => '{x,y}')", "select posthorn.enqueue('default', 'b', run_at => now() + '1 day')",
		"select posthorn.schedule('default', 'nightly', '@daily', 'e')", "select posthorn.register_node('default', 'node')",
		"select posthorn.publish('default', 'e', deliver_at => now() + '1 hour')", "select posthorn.enqueue('default', 'after b', after => '{2}')",
		"select posthorn.enqueue('default', 'waits for a payment', tags => '{order}')", "select posthorn.claim_jobs('default', 'w', '{order}')",
		"select posthorn.await_event(4, 'w', 'wait', 'paid', '9', '1 day')",
	} {
		if _, err := ph.Pool().Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	s, err := a.Summary(ctx)
	if err != nil || s.LastEvent != 1 || s.Groups != 1 || s.Streams != 1 || s.JobsReady != 1 || s.JobsWaiting != 2 || s.JobsBlocked != 1 || s.JobsAwaiting != 1 || s.Schedules != 1 ||
		s.NextSchedule != "nightly" || s.Nodes != 1 || s.Delayed != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	counts, err := a.JobCounts(ctx, 10)
	for _, want := range []admin.JobCount{{State: "ready", Jobs: 1}, {State: "later", Jobs: 1}, {State: "behind other jobs", Jobs: 1}, {State: "waiting for an event", Jobs: 1}, {State: "running"}, {State: "stalled"}} {
		if !slices.Contains(counts, want) {
			t.Errorf("the counts %+v, %v lack %+v", counts, err, want)
		}
	}
	since := s.JobsReadySince
	for _, sql := range []string{
		"select posthorn.pause_job_tag('default', 'paused')",
		"select posthorn.enqueue('default', 'a', tags => array_append(t, 'paused'), run_at => now() - interval '1 day') from (values ('{}'::text[]), ('{x}')) v (t)",
	} {
		if _, err := ph.Pool().Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if s, err := a.Summary(ctx); err != nil || s.JobsReady != 1 || !s.JobsReadySince.Equal(since) {
		t.Errorf("with jobs that are held back: %d ready since %v, %v; want 1 since %v", s.JobsReady, s.JobsReadySince, err, since)
	}
	findings, err := a.Findings(ctx)
	if err != nil || len(findings) < 10 {
		t.Errorf("findings are %+v, %v", findings, err)
	}
}

package admin_test

import (
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

// Each minute has what happened in it, in its namespace, and the time since then has a
// row of its own.
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
	rates, err := a.Rates(ctx)
	if err != nil || len(rates) != 3 {
		t.Fatalf("rates are %+v, %v", rates, err)
	}
	if r := rates[1]; r.Published != 5 || r.Handled < 5 || r.Failed != 3 || r.Seconds < 60 || r.Seconds > 90 {
		t.Errorf("the busy minute is %+v", r)
	}
	if r := rates[2]; r.Published != 2 || r.Failed != 0 || r.Seconds < 30 || r.Seconds > 90 {
		t.Errorf("since then: %+v", r)
	}
	lags, err := a.GroupLags(ctx, "g")
	if err != nil || len(lags) != 2 {
		t.Errorf("lags are %+v, %v", lags, err)
	}
	tend(t, ph, 4*time.Hour)
	var left int
	if err := ph.Pool().QueryRow(ctx, "select count(*) from posthorn.samples s join posthorn.namespaces n on n.id = s.namespace_id where n.namespace = 'default' and s.at < posthorn.now() - interval '3 hours'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d old samples are left, %v", left, err)
	}
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
	for _, want := range []admin.JobCount{{State: "ready", Jobs: 2}, {State: "later", Jobs: 2}, {State: "blocked", Jobs: 1}, {State: "awaiting", Jobs: 1}, {State: "running"}, {State: "stalled"}} {
		if !slices.Contains(counts, want) { // a job is ready under each of its tags
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

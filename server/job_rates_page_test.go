package server

import (
	"net/url"
	"strings"
	"testing"
)

// Charts of jobs show those of the namespace or of one tag, with the busiest tags, and no others.
func TestPageJobRates(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/job-rates?range=day").wantPage(t, 200, "No job with a tag was enqueued or ended in this time.")
	s.exec(t, "select posthorn.define_namespace('other')")
	s.exec(t, `insert into posthorn.job_samples
		select n.id, now() - i * interval '1 minute', t, 60, 120, 60, 6, array[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60], array[0, 0, 0, 0, 0, 60]
		from posthorn.namespaces n, generate_series(1, 50) i, unnest(array['', case n.namespace when 'default' then $1 else 'of-another' end]) t`, evilName)
	s.exec(t, `select posthorn.set_job_limit('default', $1, 2)`, evilName)
	s.exec(t, "select posthorn.enqueue('default', 'x')")
	page := b.get("/ui/default/job-rates").wantPage(t, 200, "waited for a worker in the last hour", "half of them, 95 of 100 within 3.99 s", `class="spark"`, "completed in the last hour").wantHarmless(t)
	page.wantNone(t, "of-another")
	_, chart, _ := strings.Cut(page.body, `id="chart-jobs-completed"`)
	chart, _, _ = strings.Cut(chart, "</section>")
	if n := strings.Count(chart, "<rect "); n < 49 || n > 52 {
		t.Errorf("the chart of completed jobs has %d bars", n)
	}
	b.get("/ui/default/job-rates?tag="+url.QueryEscape(evilName)).wantPage(t, 200, "with the tag", "Its jobs").wantHarmless(t)
	b.get("/ui/default/job-rates?tag=none").wantPage(t, 200, ": –, no job")
	b.get("/ui/default/job-rates?range=week").wantPage(t, 200, "in the last week")
	b.get("/ui/default/job-rates?range=year").wantPage(t, 400, "there is no range year")
	b.get("/ui/default/job-limits").wantPage(t, 200, `class="spark"`).wantHarmless(t)
	b.get("/").wantPage(t, 200, "Jobs per second", `id="chart-jobs-enqueued"`)
	s.exec(t, "delete from posthorn.job_samples")
	b.get("/?range=day").wantPage(t, 200).wantNone(t, "Jobs per second")
}

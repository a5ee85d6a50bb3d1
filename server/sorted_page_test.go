package server

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// Lists that are shown whole are sorted by their columns, and filtered by a part of the name.
func TestPageSortsWebhooksAndTags(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	for _, name := range []string{"alpha", "beta", "gamma"} {
		s.call(t, "POST", "/v1/webhooks", `{"name":"`+name+`","url":"https://`+name+`.example"}`).want(t, 201)
	}
	s.call(t, "POST", "/v1/webhooks/gamma/disable?reason=x", nil).want(t, 204)
	s.exec(t, `update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = 'x' where name = 'beta'`)
	s.exec(t, `insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at) select w.group_id, i, w.name, 1, now() + interval '1 day'
		from posthorn.webhooks w, generate_series(1, case w.name when 'alpha' then 1 when 'beta' then 2 else 0 end) i`)
	for _, tag := range []string{"alpha", "beta", "gamma"} {
		s.exec(t, `select posthorn.set_job_limit('default', $1, 2)`, tag)
	}
	s.exec(t, `select posthorn.enqueue('default', 'j', tags => array['beta']) from generate_series(1, 5)`)
	s.exec(t, `select posthorn.enqueue('default', 'j', tags => array['gamma'])`)
	s.exec(t, `select posthorn.claim_jobs('default', 'w', array['beta', 'gamma'], 10)`)
	for path, want := range map[string]string{
		"webhooks":                      "alpha beta gamma",
		"webhooks?sort=state":           "gamma beta alpha",
		"webhooks?sort=owed":            "beta alpha gamma",
		"webhooks?sort=owed&name=A":     "beta alpha gamma",
		"webhooks?name=ET":              "beta",
		"job-limits":                    "alpha beta gamma",
		"job-limits?sort=running":       "beta gamma alpha",
		"job-limits?sort=held&name=mma": "gamma",
	} {
		page := b.get("/ui/default/"+path).wantPage(t, 200).body
		if _, limited, ok := strings.Cut(page, "<h2>Paused and limited</h2>"); ok {
			page = limited
		}
		var shown []string
		for _, name := range []string{"gamma", "beta", "alpha"} {
			if strings.Contains(page, "<bdi>"+name+"</bdi>") {
				shown = append(shown, name)
			}
		}
		slices.SortFunc(shown, func(a, b string) int {
			return cmp.Compare(strings.Index(page, "<bdi>"+a+"</bdi>"), strings.Index(page, "<bdi>"+b+"</bdi>"))
		})
		if got := strings.Join(shown, " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	b.get("/ui/default/webhooks?sort=luck").wantPage(t, 400, "this list has no order luck", "The orders are name, dead, owed, state.")
	b.get("/ui/default/job-limits?name=nothing").wantPage(t, 200, "No tag with this name is paused or limited.")
}

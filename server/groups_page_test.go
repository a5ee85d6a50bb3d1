package server

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

var (
	dataKey  = regexp.MustCompile(`<tr data-key="[^"]*"`)
	nextLink = regexp.MustCompile(`<a id="next" href="([^"]*)"`)
)

// A list of groups goes on behind the last name.
func TestPageGroups(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.define_group('default', 'g' || i) from generate_series(1, 120) i`)
	s.exec(t, `select posthorn.define_group('default', $1)`, evilName)
	b.get("/ui/default/groups").wantPage(t, 200).wantHarmless(t)
	seen := map[string]bool{}
	path := "/ui/default/groups"
	for path != "" {
		page := b.get(path).wantPage(t, 200)
		for _, row := range dataKey.FindAllString(page.body, -1) {
			seen[row] = true
		}
		path = ""
		if next := nextLink.FindStringSubmatch(page.body); next != nil {
			path = strings.ReplaceAll(next[1], "&amp;", "&")
		}
	}
	if len(seen) != 121 {
		t.Errorf("%d of 121 groups were shown", len(seen))
	}
	b.get("/ui/default/groups?name=G11").wantPage(t, 200, `data-key="g11"`, `data-key="g119"`).wantNone(t, `data-key="g12"`)
	b.get("/ui/default/groups?name=none").wantPage(t, 200, "There is no group with this name.")
}

// The list is sorted by each of its numbers, the worst first, and each order goes on over all
// groups. The number of all that match is shown.
func TestPageGroupsSorted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	for _, sql := range []string{
		`select posthorn.publish('default', 'e')`,
		`select posthorn.define_group('default', 'behind', '{"start": "beginning"}')`,
		`select posthorn.define_group('default', 'fails')`,
		`select posthorn.define_group('default', 'g' || i) from generate_series(1, 120) i`,
		`insert into posthorn.retries (group_id, event_id, attempts, due_at) select g.id, i, 1, now() + interval '1 day' from posthorn.groups g, generate_series(1, 3) i where g.name = 'fails'`,
		`insert into posthorn.retries (group_id, event_id, attempts, due_at) select g.id, 1, 1, now() + interval '1 day' from posthorn.groups g where g.name = 'g77'`,
	} {
		s.exec(t, sql)
	}
	s.bury(t, "z dead", 2, "503")
	for sort, want := range map[string][]string{"name": {"behind", "fails"}, "oldest": {"behind"}, "backlog": {"behind"}, "retries": {"fails", "g77", "behind"}, "dead": {"z dead", "behind"}} {
		var names []string
		for path := "/ui/default/groups?sort=" + sort; path != ""; {
			page := b.get(path).wantPage(t, 200, "123 groups")
			for _, row := range dataKey.FindAllString(page.body, -1) {
				names = append(names, strings.Trim(row[len(`<tr data-key=`):], `"`))
			}
			path = ""
			if next := nextLink.FindStringSubmatch(page.body); next != nil {
				path = strings.ReplaceAll(next[1], "&amp;", "&")
			}
		}
		if len(names) != 123 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 123 {
			t.Errorf("%s: %d of 123 groups were shown", sort, len(names))
		}
		if len(names) >= len(want) && !slices.Equal(names[:len(want)], want) {
			t.Errorf("%s: the first groups are %q, not %q", sort, names[:len(want)], want)
		}
	}
	b.get("/ui/default/groups?name=g11&sort=retries").wantPage(t, 200, "11 groups with this text in the name", `aria-sort="descending"`)
	b.get("/ui/default/groups?sort=luck").wantPage(t, 400, "groups have no order luck")
	b.get("/ui/default/groups?after=7").wantPage(t, 400, "no place in the list")
}

func TestPageGroup(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, evilName, 2, evil)
	s.exec(t, `select posthorn.subscribe('default', $1, $1, json_build_object('key', $1::text)::jsonb)`, evilName)
	s.exec(t, `select posthorn.subscribe('default', $1, 'all', '{}')`, evilName)
	s.exec(t, "select posthorn.publish('default', 'e') from generate_series(1, 3)")
	s.exec(t, `with c as (select * from posthorn.claim('default', $1, 'w', 2)) select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'error', $2::text))::jsonb) from c group by lease, attempt`, evilName, evil)
	s.exec(t, `select count(*) from posthorn.claim('default', $1, 'node-7', 2)`, evilName)
	link := "/ui/default/group?name=" + url.QueryEscape(evilName)
	b.get(link).wantPage(t, 200, `id="retries"`, `id="leases"`, "node-7", `id="subscriptions"`, `id="policy"`, "Handler error", "Redrive dead letters", `id="seek"`).wantHarmless(t)
	b.get("/ui/default/group?name=none").wantPage(t, 404, "none")
	b.get("/ui/default/group").wantPage(t, 404)
}

// Charts of the overview and of a group show an hour, a day or a week, each with no more bars
// than fit.
func TestPageCharts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.define_group('default', 'billing')")
	s.exec(t, "select posthorn.publish('default', 'e')")
	s.exec(t, `insert into posthorn.samples (namespace_id, at, seq, seconds, published, handled, failed, groups, positions, lags, passed)
		select g.namespace_id, now() - i * interval '15 minutes', 0, 900, 900, 900, 9, array[g.id], array[0], array[60], array[900]
		from posthorn.groups g, generate_series(13, 700) i where g.name = 'billing'`)
	for path, ids := range map[string][]string{"/": {"published", "handled", "failed"}, "/ui/default/group?name=billing": {"behind", "passed"}} {
		join := "?"
		if strings.Contains(path, "?") {
			join = "&"
		}
		for span, bars := range map[string]int{"day": 80, "week": 80} {
			page := b.get(path+join+"range="+span).wantPage(t, 200, "in the last "+span+":", `aria-current="true">`+span)
			for _, id := range ids {
				_, chart, _ := strings.Cut(page.body, `id="chart-`+id+`"`)
				chart, _, _ = strings.Cut(chart, "</section>")
				if n := strings.Count(chart, "<rect "); n < bars || n > 96 {
					t.Errorf("%s, %s: %s has %d bars", path, span, id, n)
				}
			}
		}
		b.get(path+join+"range=year").wantPage(t, 400, "there is no range year")
	}
}

// Names that a path could not hold can be operated all the same.
func TestPageGroupsWithOddNames(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	for _, name := range []string{"a/b", "..", ".", "a b+c&d=e?f#g", "%2F", "ü"} {
		s.exec(t, `select posthorn.define_group('default', $1)`, name)
		page := b.get("/ui/default/group?name="+url.QueryEscape(name)).wantPage(t, 200, ">Pause</button>")
		b.post(page, "/ui/default/group/pause", url.Values{"name": {name}}).wantPage(t, 200, "paused")
		if g, err := s.ph.Admin().Group(t.Context(), name); err != nil || !g.Paused {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

// Before a group is moved, the page says how many events come again, and then they do.
func TestPageSeek(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.define_group('default', 'g', '{\"start\": \"beginning\"}')")
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "e"}, posthorn.Message{Type: "e"}, posthorn.Message{Type: "e"})
	s.exec(t, "select posthorn.settle(lease, attempt) from (select distinct lease, attempt from posthorn.claim('default', 'g', 'w')) c")
	b.get("/ui/default/group/seek?name=g").wantPage(t, 400, "the time is missing")
	b.get("/ui/default/group/seek?name=none&to=end").wantPage(t, 404, "none")
	b.get("/ui/default/group/seek?name=g&to=end").wantPage(t, 200, "No event would be handed out again")
	asked := b.get("/ui/default/group/seek?name=g&to=beginning").wantPage(t, 200, "Move group g to the beginning of the log?", "handed 3 events again")
	b.post(asked, "/ui/default/group/seek", url.Values{"name": {"g"}, "to": {"beginning"}}).wantPage(t, 200, "Group g was moved.", `id="policy"`)
	var n int
	if err := s.ph.Pool().QueryRow(t.Context(), "select count(*) from posthorn.claim('default', 'g', 'w')").Scan(&n); err != nil || n != 3 {
		t.Errorf("claimed %d, %v", n, err)
	}
	b.get("/ui/default/audit").wantPage(t, 200, "seek-group", "-infinity")
	at := fmt.Sprintf("/ui/default/group/seek?name=g&at=%s", url.QueryEscape("2000-01-01T00:00:00.000Z"))
	b.get(at).wantPage(t, 200, "2000-01-01T00:00:00Z", "lose 1 lease")
}

// A group is made, changed and deleted on the page, and so are its subscriptions. The form
// has the present policy, so that settings which the person leaves alone stay.
func TestPageDefinesGroups(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	form := b.get("/ui/default/group/define").wantPage(t, 200, `name="on_failure"`, `name="backoff"`)
	b.post(form, "/ui/default/group/define", url.Values{
		"name": {"g"}, "order": {"key"}, "slots": {"4"}, "attempts": {"0"}, "backoff": {`{"from": "2 seconds"}`}, "start": {"beginning"},
	}).wantPage(t, 200, "Group g is defined.", "key, 4 slots", "no limit", "from 00:00:02")
	form = b.get("/ui/default/group/define?name=g").wantPage(t, 200, `value="4"`, "00:00:02")
	b.post(form, "/ui/default/group/define", url.Values{"name": {"g"}, "delays": {"1 second,1 minute"}, "attempts": {"7"}}).
		wantPage(t, 200, "key, 4 slots", "<dd>7</dd>", "00:00:01 00:01:00")
	b.post(form, "/ui/default/group/define", url.Values{"name": {"g"}, "slots": {"many"}}).wantPage(t, 400, "slots is not a number")
	b.post(form, "/ui/default/group/define", url.Values{"name": {"g"}, "backoff": {`{"form": "1 second"}`}}).wantPage(t, 400, "backoff cannot be read")

	form = b.get("/ui/default/subscription/put?group=g").wantPage(t, 200, `value="g"`)
	b.post(form, "/ui/default/subscription/put", url.Values{"group": {"g"}, "name": {"large"}, "filter": {`{"type": "order.*"}`}}).
		wantPage(t, 200, "Subscription large of group g is defined.", `id="subscriptions"`, "order.*")
	b.get("/ui/default/subscription/put?group=g&name=large").wantPage(t, 200, "order.*")
	asked := b.get("/ui/default/subscription/delete?group=g&name=large").wantPage(t, 200, "Remove subscription large of group g")
	b.post(asked, "/ui/default/subscription/delete", url.Values{"group": {"g"}, "name": {"large"}}).wantPage(t, 200, "Removed subscription large")

	asked = b.get("/ui/default/group/delete?name=g").wantPage(t, 200, "Delete group g with 0 retries")
	b.post(asked, "/ui/default/group/delete", url.Values{"name": {"g"}}).wantPage(t, 200, "Deleted group g")
	b.get("/ui/default/group?name=g").wantPage(t, 404)
}

// A token that may consume defines subscriptions, but none with a condition in SQL: that is
// refused in package admin, whichever face it uses.
func TestPageConditionsNeedTheScopeAdmin(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.define_group('default', 'g')")
	b.signIn(s.token(t, "read", "consume"))
	s.forget()
	form := b.get("/ui/default/subscription/put?group=g").wantPage(t, 200)
	fields := url.Values{"group": {"g"}, "name": {"s"}, "conditions_sql": {"true"}}
	b.post(form, "/ui/default/subscription/put", fields).wantPage(t, 403, "conditions in SQL need the scope admin")
	fields = url.Values{"group": {"g"}, "name": {"s"}, "filter": {`{"type": "a"}`}}
	b.post(form, "/ui/default/subscription/put", fields).wantPage(t, 200, "Subscription s of group g is defined.")

	// Without the scope read the form shows no present settings.
	consumer := s.visit(t)
	consumer.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {s.token(t, "consume")}, "next": {"/"}}, "Origin: "+s.url)
	s.forget()
	for _, path := range []string{"group/define?name=g", "subscription/put?group=g&name=s"} {
		consumer.get("/ui/default/"+path).wantPage(t, 403, "the token lacks the scope read")
	}
}

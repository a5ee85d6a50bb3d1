package server

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var rowOfPage = regexp.MustCompile(`<tr data-key="([^"]*)">`)

// keys returns the rows of a page, by their keys.
func (a answered) keys() []string {
	var all []string
	for _, found := range rowOfPage.FindAllStringSubmatch(a.body, -1) {
		all = append(all, found[1])
	}
	return all
}

// The page says which worker has which job or lease, together those of one worker, and those first that have lasted longest. It
// shows names of others as text.
func TestBusyPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/busy").wantPage(t, 200, "No worker has a job or a lease.", `aria-current="page">Busy</a>`)
	began := time.Now().UTC().Truncate(time.Second)
	s.at(t, began, "select posthorn.define_group('default', 'a<b>'), posthorn.define_group('default', 'b')")
	s.at(t, began, "select posthorn.enqueue('default', '<script>alert(1)</script>', tags => '{x}'), posthorn.enqueue('default', 'second', tags => '{y}'), posthorn.enqueue('default', 'third', tags => '{y}')",
		"select posthorn.enqueue('default', 'fourth', tags => '{z}')",
		"select posthorn.publish('default', 'order.placed')", "select posthorn.claim_jobs('default', 'late', '{y}', 1)")
	s.at(t, began.Add(time.Second), "select posthorn.claim('default', 'b', 'w2', lease_for => '1 hour')")
	s.at(t, began.Add(time.Minute), "select posthorn.claim_jobs('default', '<b>w</b>', '{x}', 1)")
	s.at(t, began.Add(61*time.Second), "select posthorn.claim('default', 'a<b>', '<b>w</b>')", "select posthorn.claim_jobs('default', 'late', '{z}')")
	page := b.get("/ui/default/busy").wantPage(t, 200, "&lt;b&gt;w&lt;/b&gt;", "a&lt;b&gt;", "&lt;script&gt;alert(1)", "second")
	page.wantNone(t, "<b>", "<script>alert", "third", "No worker has")
	equal(t, "stalled rows", strings.Count(page.body, ">stalled<"), 1)
	lease := func(group string) string {
		return fmt.Sprintf("lease %d", s.number(t, "select l.id from posthorn.leases l join posthorn.groups g on g.id = l.group_id where l.until is not null and g.name = '"+group+"'"))
	}
	equal(t, "rows", strings.Join(page.keys(), ", "), strings.Join([]string{"job 2", "job 4", lease("b"), "job 1", lease("a<b>")}, ", "))
	equal(t, "workers with two rows", strings.Count(page.body, `rowspan="2"`), 2)
}

// The page has a bounded number of rows, and says that there are more.
func TestBusyPageIsBounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	began := time.Now().UTC().Truncate(time.Second)
	s.at(t, began, "select posthorn.enqueue('default', 'a', tags => '{x}') from generate_series(1, 101)", "select posthorn.claim_jobs('default', 'w', '{x}', 100)")
	b := s.visit(t)
	page := b.get("/ui/default/busy")
	page.wantNone(t, "more jobs or leases")
	equal(t, "rows", len(page.keys()), 100)
	s.at(t, began.Add(time.Second), "select posthorn.claim_jobs('default', 'w', '{x}', 1)")
	page = b.get("/ui/default/busy").wantPage(t, 200, "more jobs or leases")
	if keys := page.keys(); len(keys) != 100 || slices.Contains(keys, "job 101") {
		t.Errorf("the rows are %q", keys)
	}
}

package server

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shop fills a namespace with something of each kind, and with texts that are markup.
func (s *served) shop(t testing.TB) {
	t.Helper()
	for _, sql := range []string{
		`select posthorn.define_group('default', 'billing', '{"attempts": 1}')`,
		`select posthorn.subscribe('default', 'billing', 'charge', '{"type": "order.>"}')`,
		`select posthorn.define_group('default', 'search')`,
		`select posthorn.define_projection('default', 'totals')`,
		`select posthorn.set_stream_policy('default', 'secret', 'restricted')`,
		`select posthorn.schedule('default', 'nightly', '0 2 * * *', 'report.due', timezone => 'Europe/Berlin')`,
		`select posthorn.register_node('default', 'node-1', 'web <b>1</b>')`,
		`select posthorn.pause_job_tag('default', 'sms')`,
		`select posthorn.publish('default', 'order.placed', json_build_object('order', i, 'note', $1::text), key => 'customer ' || i % 7) from generate_series(1, 60) i`,
		`select posthorn.publish('default', '<script>alert(1)</script>', to_json($1::text), key => '<b>key</b>', tags => array['<b>tag</b>'])`,
		`select posthorn.enqueue('default', 'send <i>mail</i> ' || i, json_build_object('note', $1::text), tags => '{mail}', max_retries => 0) from generate_series(1, 60) i`,
		`select posthorn.fail_job(j.id, '<b>worker</b>', e'no such card\n\nError: no such card\n    at charge ' || $1::text) from posthorn.claim_jobs('default', '<b>worker</b>', '{mail}', 3) j`,
		`insert into posthorn.job_samples
			select n.id, now() - i * interval '1 minute', t, 60, 120, 60, i % 7, array[0, 9, 60, 2], array[0, 0, 30, 3]
			from posthorn.namespaces n, generate_series(1, 50) i, unnest('{"",sms,<b>mail</b>}'::text[]) t where n.namespace = 'default'`,
		`select posthorn.enqueue('default', 'ship <i>it</i>', tags => '{flow}')`,
		`select posthorn.save_step(j.id, '<b>worker</b>', '<i>charge</i>', '7') from posthorn.claim_jobs('default', '<b>worker</b>', '{flow}') j`,
		`select posthorn.sleep_job(max(o.id), '<b>worker</b>', 'cool down', '1 day') from posthorn.enqueued_jobs o`,
		`select posthorn.enqueue('default', 'after <i>it</i>', tags => '{last}', after => array[1, max(o.id)]) from posthorn.enqueued_jobs o`,
	} {
		arguments := []any{evil + strings.Repeat("wide ", 2000)}
		if !strings.Contains(sql, "$1") {
			arguments = nil
		}
		s.exec(t, sql, arguments...)
	}
	lease := s.claim(t, "billing", `{"max_events":20,"wait":60}`)
	failures := []map[string]any{}
	for _, e := range lease.Events {
		failures = append(failures, map[string]any{"event": e.ID, "permanent": true, "error": fmt.Sprintf("charge: 503 from <bank> %d\n    at charge", e.ID%2)})
	}
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", lease.Lease), map[string]any{"attempt": lease.Attempt, "failures": failures}).want(t, 204)
}

var pageLink = regexp.MustCompile(`href="(/ui/default[^"#]*)"`)

// A browser shows each page that the navigation and the lists lead to, in light and
// dark: without an error, without a request to another host, not wider than the screen,
// without a serious finding of axe, and as readsWell and boxes ask.
func everyPage(t *testing.T, chromium *browser, width int64) {
	p := newPerson(t, chromium, width)
	p.shop(t)
	paths := p.pagesWithin(t, p.served.visit(t), 2)
	if len(paths) < 15 {
		t.Fatalf("only %q were found", paths)
	}
	p.visit("/")
	var rows float64
	p.do(chromedp.Evaluate(`document.querySelector("header nav ul").offsetHeight / document.querySelector("header nav li").offsetHeight`, &rows))
	equal(t, "rows of the navigation", rows, 1)
	source := axe(t)
	for i, path := range paths {
		scheme := []string{"light", "dark"}[i%2]
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
		if err := chromedp.Run(p.tab.ctx, emulation.SetEmulatedMedia().WithFeatures(features)); err != nil {
			t.Fatal(err)
		}
		p.visit(path)
		for _, found := range barriers(p.tab.ctx, t, source) {
			t.Errorf("%s, %s: %s", path, scheme, found)
		}
		p.must("readsWell")
		p.must("boxes")
	}
}

// pagesWithin returns the pages that can be reached from the overview by so many links,
// one for each kind of page.
func (s *served) pagesWithin(t testing.TB, b *visitor, links int) []string {
	t.Helper()
	known, paths := map[string]bool{}, []string{"/"}
	for from, depth := 0, 0; depth < links; depth++ {
		end := len(paths)
		for ; from < end; from++ {
			page := b.get(paths[from]).wantPage(t, 200)
			for _, found := range pageLink.FindAllStringSubmatch(page.body, -1) {
				path := strings.ReplaceAll(found[1], "&amp;", "&")
				kind, _, _ := strings.Cut(path, "?")
				if !known[kind] && kind != "/ui/default" {
					known[kind] = true
					paths = append(paths, path)
				}
			}
		}
	}
	return paths
}

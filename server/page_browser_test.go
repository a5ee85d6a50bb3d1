package server

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
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
		`select posthorn.fail_job(j.id, '<b>worker</b>', $1) from posthorn.claim_jobs('default', '<b>worker</b>', '{mail}', 3) j`,
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
		failures = append(failures, map[string]any{"event": e.ID, "permanent": true, "error": fmt.Sprintf("charge: 503 from <bank> %d", e.ID%2)})
	}
	s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", lease.Lease), map[string]any{"attempt": lease.Attempt, "failures": failures}).want(t, 204)
}

var pageLink = regexp.MustCompile(`href="(/ui/default[^"#]*)"`)

// A browser shows each page that the navigation and the lists lead to, wide and on a
// phone, in light and dark: without an error, without a request to another host, not
// wider than the screen, and without a serious finding of axe.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.shop(t)
	b := s.visit(t)
	paths := s.pagesWithin(t, b, 2)
	if len(paths) < 15 {
		t.Fatalf("only %q were found", paths)
	}
	ctx, seen := browser(t)
	source := axe(t)
	if err := chromedp.Run(ctx, network.Enable()); err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		for _, width := range []int64{1280, 390} {
			scheme := []string{"light", "dark"}[i%2]
			var widest, inner int
			err := chromedp.Run(ctx,
				chromedp.EmulateViewport(width, 844),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Navigate(s.url+path),
				chromedp.WaitVisible("h1"),
				chromedp.Evaluate("document.documentElement.scrollWidth", &widest),
				chromedp.Evaluate("window.innerWidth", &inner),
			)
			if err != nil {
				t.Fatalf("%s at %d: %v", path, width, err)
			}
			if widest > inner {
				t.Errorf("%s is %d wide on a screen of %d", path, widest, inner)
			}
			for _, found := range barriers(ctx, t, source) {
				t.Errorf("%s at %d, %s: %s", path, width, scheme, found)
			}
		}
	}
	asked, troubles := seen()
	if len(troubles) > 0 {
		t.Errorf("the pages met errors: %q", troubles)
	}
	for _, address := range asked {
		if !strings.HasPrefix(address, s.url) && !strings.HasPrefix(address, "data:") {
			t.Errorf("a page asked %s", address)
		}
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

// A person enqueues a job, changes it, and cancels it.
func TestJobsInABrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ctx, seen := browser(t)
	var text string
	err := chromedp.Run(ctx,
		chromedp.EmulateViewport(390, 844),
		chromedp.Navigate(s.url+"/ui/default/jobs"),
		click(`a[href="/ui/default/job/enqueue"]`, "#job-form"),
		chromedp.SendKeys("#title", "send mail"),
		chromedp.SendKeys("#tags", "mail"),
		click("#job-form button", "#notice"),
		click(`a[href="/ui/default/job/change?id=1"]`, "#job-form"),
		chromedp.SetValue("#priority", "7"),
		click("#job-form button", "#notice"),
		awaitText("CHANGED"),
		click(`form[data-action="job/cancel"] button`, "#notice"),
		chromedp.Text("#notice", &text),
		awaitText("CANCELLED"),
	)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "notice", text, "Job 1 is cancelled.")
	if _, troubles := seen(); len(troubles) > 0 {
		t.Errorf("the pages met errors: %q", troubles)
	}
}

// A page that a person looks at shows changes by itself.
func TestLivePageInABrowser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ctx, _ := browser(t)
	if err := chromedp.Run(ctx, chromedp.Navigate(s.url+"/ui/default/jobs"), awaitText("There is no such job.")); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "select posthorn.enqueue('default', 'late arrival')")
	if err := chromedp.Run(ctx, awaitText("late arrival")); err != nil {
		t.Fatal(err)
	}
}

// click clicks an element and waits for one of the page that follows.
func click(selector, then string) chromedp.Action {
	return chromedp.Tasks{
		chromedp.WaitVisible(selector),
		chromedp.Evaluate(`document.body.dataset.left = "yes"`, nil),
		chromedp.Click(selector),
		awaitTrue(`!document.body.dataset.left && document.readyState === "complete"`),
		chromedp.WaitVisible(then),
	}
}

// awaitText waits until the page contains a text.
func awaitText(text string) chromedp.Action {
	return awaitTrue(fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// awaitTrue waits until an expression is true. Between two pages it cannot be
// evaluated.
func awaitTrue(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			var done bool
			if err := chromedp.Evaluate(expression, &done).Do(ctx); err == nil && done {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not true: %w", expression, ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

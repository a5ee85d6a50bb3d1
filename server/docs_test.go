package server

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/posthorn/posthorn/internal/test/await"
)

func TestDocsPageLoadsNothingFromOtherHosts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	page := s.call(t, "GET", "/docs", nil).want(t, 200)
	if found := regexp.MustCompile(`https?://|src=|@import|url\(|\son[a-z]+=|innerHTML|\sstyle=`).FindString(page.body); found != "" {
		t.Errorf("the page has %q", found)
	}
	policy := page.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy: %s", policy)
	}
}

// A user finds an operation, opens it, and tries it. Markup in a response is shown as
// text.
func docsInABrowser(t *testing.T, chromium *browser) {
	s := serve(t)
	tab := openTab(t, chromium, 1280)
	var operations, left int
	var parameters, command, result, title string
	err := chromedp.Run(
		tab.ctx,
		chromedp.Navigate(s.url+"/docs"),
		chromedp.WaitVisible("#publish-events"),
		chromedp.Evaluate(`document.querySelectorAll("details.op").length`, &operations),
		chromedp.SendKeys("#search", "publish one many"),
		chromedp.WaitNotVisible("#search-events"),
		chromedp.Evaluate(`document.querySelectorAll("details.op:not([hidden])").length`, &left),
		chromedp.Click("#publish-events > summary"),
		chromedp.WaitVisible("#publish-events textarea"),
		chromedp.Text("#publish-events", &parameters),
		chromedp.SetValue("#publish-events textarea", `{"type":"order.placed","payload":{"from":"the page <img src=x onerror=document.title='broken'>"}}`),
		chromedp.Evaluate(`document.querySelector("#publish-events textarea").dispatchEvent(new Event("input", {bubbles: true}))`, nil),
		chromedp.Text("#publish-events .command", &command),
		chromedp.Click("#publish-events button"),
		chromedp.Poll(`document.querySelector("#publish-events .result").textContent.length > 3`, nil, chromedp.WithPollingTimeout(await.Limit)),
		chromedp.Text("#publish-events .result", &result),
		chromedp.Evaluate(`{ const search = document.querySelector("#search"); search.value = ""; search.dispatchEvent(new Event("input", {bubbles: true})) }`, nil),
		chromedp.Click("#get-event > summary"),
		chromedp.WaitVisible("#get-event input[name=id]"),
		chromedp.SendKeys("#get-event input[name=id]", "1"),
		chromedp.Click("#get-event button"),
		chromedp.Poll(`document.querySelector("#get-event .result").textContent.includes("onerror")`, nil, chromedp.WithPollingTimeout(await.Limit)),
		chromedp.Title(&title),
	)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(result, "201") {
		t.Errorf("response: %s", result)
	}
	equal(t, "title", title, "Posthorn: HTTP API")
	tab.wantNoTrouble(t, s)
	if operations < 30 || left != 1 {
		t.Errorf("%d operations, %d of which match the search", operations, left)
	}
	for _, text := range []string{"Idempotency-Key", "dedup_key", "application/cloudevents+json", "scope publish"} {
		if !strings.Contains(parameters, text) {
			t.Errorf("the operation does not show %s: %s", text, parameters)
		}
	}
	if !strings.HasPrefix(command, "curl -X POST ") || !strings.Contains(command, "the page") {
		t.Errorf("command: %s", command)
	}
	var found list[eventView]
	s.call(t, "GET", "/v1/events?type=order.placed", nil).want(t, 200, &found)
	equal(t, "events", len(found.Items), 1)
}

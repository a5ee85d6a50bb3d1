package server

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/posthorn/posthorn/internal/await"
)

// browser opens a tab of a real browser. seen returns the addresses that it requested
// and the errors that it reported.
func browser(t *testing.T) (ctx context.Context, seen func() (asked, troubles []string)) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium; scripts/deps installs it where that is easy")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(await.Limit))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, await.Limit)
	t.Cleanup(cancel)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until the browser has ended
	var mu sync.Mutex
	var asked, troubles []string
	chromedp.ListenTarget(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch event := event.(type) {
		case *network.EventRequestWillBeSent:
			asked = append(asked, event.Request.URL)
		case *runtime.EventExceptionThrown:
			troubles = append(troubles, event.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if event.Entry.Level == log.LevelError {
				troubles = append(troubles, event.Entry.Text)
			}
		case *runtime.EventConsoleAPICalled:
			if event.Type == runtime.APITypeError {
				troubles = append(troubles, string(event.Args[0].Value))
			}
		}
	})
	return ctx, func() ([]string, []string) {
		mu.Lock()
		defer mu.Unlock()
		return asked, troubles
	}
}

// axe returns the source of axe-core, which finds barriers for people with
// disabilities.
func axe(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("../scripts/axe").Output()
	if err != nil {
		t.Fatalf("scripts/axe: %v", err)
	}
	source, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// barriers returns the serious findings of axe on the page that the browser shows.
func barriers(ctx context.Context, t *testing.T, axe string) (found []string) {
	t.Helper()
	var result string
	err := chromedp.Run(ctx, chromedp.Evaluate(axe+`; axe.run().then(r => JSON.stringify(r.violations
		.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => v.id + ": " + v.help + " at " + v.nodes.slice(0, 3).map(n => n.html).join(" ; "))))`, &result,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if err != nil {
		t.Fatalf("axe: %v", err)
	}
	if err := json.Unmarshal([]byte(result), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

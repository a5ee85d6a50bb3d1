package server

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

// The browser tests share one Chromium, which ends with the last of them. Each has a tab
// with cookies of its own while it runs, and a database of its own.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	chromium := startChromium(t)
	t.Run("docs", func(t *testing.T) {
		t.Parallel()
		docsInABrowser(t, chromium)
	})
	for parity, screen := range []struct {
		name  string
		width int64
	}{{"desk", 1280}, {"phone", 390}} {
		t.Run(screen.name, func(t *testing.T) {
			t.Parallel()
			t.Run("every page", func(t *testing.T) {
				t.Parallel()
				everyPage(t, chromium, screen.width)
			})
			t.Run("several databases", func(t *testing.T) {
				t.Parallel()
				databasesInABrowser(t, chromium, screen.width)
			})
			for i, walk := range slices.Sorted(maps.Keys(walks)) {
				if i%2 != parity && !testsize.All() { // make test takes each walk on one of the screens
					continue
				}
				t.Run(walk, func(t *testing.T) {
					t.Parallel()
					walks[walk](newPerson(t, chromium, screen.width))
				})
			}
		})
	}
}

// walks are the main paths of the pages, as a person takes them by clicking and typing.
// Each checks the effect in the database, not only the text on the page.
var walks = map[string]func(p *person){
	"sign in":                  walkSignIn,
	"read-only token":          walkReadOnly,
	"first visit":              walkFirstVisit,
	"overview":                 walkOverview,
	"find":                     walkFind,
	"live tail":                walkLiveTail,
	"search events":            walkSearch,
	"event":                    walkEvent,
	"event behind a failure":   walkBlockedEvent,
	"slow page":                walkSlowPage,
	"groups":                   walkGroups,
	"seek":                     walkSeek,
	"dead letters":             walkDeadLetters,
	"edit a dead letter":       walkEditDeadLetter,
	"discard and recover":      walkDiscard,
	"jobs":                     walkJobs,
	"jobs after jobs":          walkJobsAfter,
	"job that failed":          walkFailedJob,
	"search jobs":              walkSearchJobs,
	"job of an order":          walkFindJob,
	"retry all jobs":           walkRetryJobs,
	"choose jobs":              walkChooseJobs,
	"choose dead letters":      walkChooseDeadLetters,
	"tags of jobs":             walkJobTags,
	"streams":                  walkStreams,
	"schedules":                walkSchedules,
	"schedule that is made":    walkMakeSchedule,
	"nodes":                    walkNodes,
	"relays":                   walkRelays,
	"projections":              walkProjections,
	"webhooks":                 walkWebhooks,
	"webhook that is made":     walkMakeWebhook,
	"webhook that fails":       walkFailingWebhook,
	"tokens":                   walkTokens,
	"audit log":                walkAudit,
	"the choice of namespaces": walkNamespaces,
	"where a job spent time":   walkTimeline,
	"busy":                     walkBusy,
	"on call":                  walkOnCall,
}

// browser is a Chromium. Its tabs serve one test after another, since a window takes two seconds
// of processor time to open.
type browser struct {
	t   *testing.T // at whose end the browser ends
	ctx context.Context

	mu   sync.Mutex
	free []*tab
}

// startChromium starts a browser, which ends with the test.
func startChromium(t *testing.T) *browser {
	t.Helper()
	path := findChromium()
	if path == "" {
		t.Skip("there is no chromium; scripts/deps installs it where that is easy")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(await.Limit))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until the browser has ended
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, ctx: ctx}
}

// findChromium prefers the program without windows: chromium draws them even where nobody sees them.
func findChromium() string {
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// tab is a tab of a browser, with cookies of its own.
type tab struct {
	ctx context.Context // of the test that uses it
	all context.Context // of all these tests

	mu       sync.Mutex
	asked    []string // the addresses that it requested
	troubles []string // the errors that it reported
}

// openTab opens a tab for the test, or one that no test uses any more.
func openTab(t testing.TB, chromium *browser, width int64) *tab {
	t.Helper()
	tab, err := chromium.take()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(tab.all)
	tab.ctx = ctx
	t.Cleanup(func() {
		end()
		if !t.Failed() {
			chromium.giveBack(tab)
		}
	})
	if err := chromedp.Run(ctx, chromedp.EmulateViewport(width, 844)); err != nil {
		t.Fatal(err)
	}
	return tab
}

func (b *browser) take() (*tab, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.free); n > 0 {
		tab := b.free[n-1]
		b.free = b.free[:n-1]
		return tab, nil
	}
	return b.newTab()
}

// giveBack leaves the page, and forgets all that a test leaves in a tab. A tab with which that fails
// serves no other test.
func (b *browser) giveBack(tab *tab) {
	noScheme := []*emulation.MediaFeature{{Name: "prefers-color-scheme"}}
	err := chromedp.Run(tab.all, chromedp.Navigate("about:blank"), network.ClearBrowserCookies(), cdppage.ResetNavigationHistory(),
		emulation.SetEmulatedMedia().WithFeatures(noScheme))
	if err != nil {
		return
	}
	tab.mu.Lock()
	tab.asked, tab.troubles = nil, nil
	tab.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, tab)
}

func (b *browser) newTab() (*tab, error) {
	id, err := b.newWindow()
	if err != nil {
		return nil, err
	}
	ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	b.t.Cleanup(closeTab)
	tab := &tab{all: ctx}
	chromedp.ListenTarget(ctx, tab.note)
	return tab, chromedp.Run(ctx, network.Enable(),
		emulation.SetFocusEmulationEnabled(true), // several tabs are in the foreground
		emulation.SetTimezoneOverride("America/New_York"),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := cdppage.AddScriptToEvaluateOnNewDocument(`document.addEventListener("posthorn:renewed", () => window.renewed = true)`).Do(ctx)
			return err
		}))
}

// newWindow opens a window with cookies of its own, in which Chromium wants each such tab
// to be.
func (b *browser) newWindow() (target.ID, error) {
	executor := cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser)
	cookies, err := target.CreateBrowserContext().Do(executor)
	if err != nil {
		return "", err
	}
	b.t.Cleanup(func() { _ = target.DisposeBrowserContext(cookies).Do(executor) }) // the browser may have ended
	return target.CreateTarget("about:blank").WithBrowserContextID(cookies).WithNewWindow(true).Do(executor)
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, event.Request.URL)
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, event.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if event.Entry.Level == log.LevelError {
			b.troubles = append(b.troubles, event.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.APITypeError {
			b.troubles = append(b.troubles, string(event.Args[0].Value))
		}
	}
}

// wantNoTrouble fails the test if the tab has reported an error, or asked another host
// than the server. A page that answers with an error is no trouble of the tab.
func (b *tab) wantNoTrouble(t testing.TB, s *served) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, trouble := range b.troubles {
		if !strings.HasPrefix(trouble, "Failed to load resource: the server responded with a status of 4") {
			t.Errorf("the page met an error: %s", trouble)
		}
	}
	for _, address := range b.asked {
		if !strings.HasPrefix(address, s.url) && !strings.HasPrefix(address, "data:") {
			t.Errorf("the page asked %s", address)
		}
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

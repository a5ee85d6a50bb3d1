// Package page is the page for people: an overview that begins with everything that is
// wrong, and pages for events, groups, dead letters and more, with their actions.
//
// The page is made of package admin. Its actions are operations of package op, or routes of
// the HTTP API. It does not know how callers are authenticated: the server is its [Door].
// HTML is rendered here; one small script of our own replaces the parts of a page that have
// changed.
package page

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/cache"
)

// Root is the path below which all pages are, but for the overview at /.
const Root = "/ui/"

// Door is the server, as the page sees it.
type Door interface {
	// Admit returns the caller of a request with the text of a token, "" for none.
	// Without a namespace the caller gets its own.
	Admit(r *http.Request, namespace, token string) (Caller, error)
	// Problem puts an error into words for a person, and logs errors that are a fault of
	// the server.
	Problem(ctx context.Context, err error) *Problem
	// Woken lets requests that wait for events look again.
	Woken()
}

// Caller is the person at the browser, with the rights of the token if there is one.
type Caller struct {
	Name      string
	Namespace string   // the one that is shown
	Bound     bool     // other namespaces do not exist for the caller
	SignedIn  bool     // with a token
	Hidden    []string // restricted streams that the caller may not see; answers that are kept depend on them
	Scopes    []string
	Admin     *admin.Admin // of the namespace; it hides things of these streams, and records changes in the audit log
}

// Config has the parts of the server that pages use.
type Config struct {
	Door    Door
	API     http.Handler    // the HTTP API, through which actions are made
	Drained <-chan struct{} // closed when the server is about to stop
	Logger  *slog.Logger
	Timeout time.Duration // of a request
	Now     func() time.Time
	Mount   // of several databases, the one of the page
}

// Pages serves the page. It is an [http.Handler] for / and everything below [Root].
type Pages struct {
	Config
	screens map[string]Screen
	actions map[string]Action

	signIns    *signIns
	audience   audience
	rendered   *cache.Cache[string, rendering]
	namespaces *cache.Cache[string, []string]
	overviews  *cache.Cache[string, overviewData]
	findings   *cache.Cache[string, examination]
	rates      *cache.Cache[string, []admin.Rate]
	jobSamples *cache.Cache[string, []admin.JobRate]
	tags       *cache.Cache[string, []admin.BusyTag]
	bulks      chan struct{}   // a place for each action on many things that runs
	waiting    sync.Once       // for the end of these actions
	working    context.Context // of their parts
	endParts   context.CancelFunc
	stand      string // stands for the form token in HTML that several browsers share
}

// mostKept is the number of results in each cache, which all browsers share.
const mostKept = 1000

// New makes the page.
func New(c Config) *Pages {
	kept := cache.Config{Size: mostKept, Timeout: c.Timeout}
	p := &Pages{
		Config: c, screens: map[string]Screen{}, actions: map[string]Action{}, signIns: newSignIns(c.Now), audience: audience{pages: map[string]int{}}, bulks: make(chan struct{}, mostBulks), stand: rand.Text(),
		rendered: cache.New[string, rendering](cache.Config{Size: mostKept, Timeout: c.Timeout, Parallel: liveParallel}), namespaces: cache.New[string, []string](kept),
		overviews: cache.New[string, overviewData](kept), findings: cache.New[string, examination](kept), rates: cache.New[string, []admin.Rate](kept),
		jobSamples: cache.New[string, []admin.JobRate](kept), tags: cache.New[string, []admin.BusyTag](kept),
	}
	p.working, p.endParts = context.WithCancel(context.Background())
	p.overview()
	p.events()
	p.groups()
	p.deadLetters()
	p.jobs()
	p.schedules()
	p.nodes()
	p.busy()
	p.streams()
	p.relays()
	p.failovers()
	p.projections()
	p.namespacePages()
	p.tokens()
	p.webhooks()
	p.audit()
	p.find()
	return p
}

// Screen is a page that shows something.
type Screen struct {
	Path  string // below the namespace, such as groups; its template is groups.html
	Under string // the path of the entry in the navigation; default: Path
	Scope string // that the caller needs. Default: read
	Live  bool   // it changes by itself while somebody looks at it
	Many  bool   // its parameter id may be repeated, as a form has it whose boxes were ticked
	Show  func(ctx context.Context, r *Request) (*View, error)
}

// View is the content of a page: data for its template.
type View struct {
	Title    string
	Template string // default: that of the screen
	Data     any
	Problem  *Problem // of the input of the page's form
	GoTo     string   // the link of a page that is shown in place of this one; not of one that changes by itself

	began time.Time // the first query for it
}

// Action is a form that changes something. Do returns the link of the page to go to
// then, "" for the page with the form, and a sentence about the result.
type Action struct {
	Path  string // below the namespace, such as group/pause
	Scope string // that the caller needs. Default: admin
	Do    func(ctx context.Context, r *Request) (to, done string, err error)
	// Answer is for an action whose result has a key that is shown once. It takes the place
	// of Do and returns the page with the key, which has no address of its own.
	Answer func(ctx context.Context, r *Request) (*View, error)
}

func (p *Pages) screen(s Screen) {
	if s.Under == "" {
		s.Under = s.Path
	}
	if s.Scope == "" {
		s.Scope = "read"
	}
	p.screens[s.Path] = s
}

func (p *Pages) action(a Action) {
	if a.Scope == "" {
		a.Scope = "admin"
	}
	p.actions[a.Path] = a
}

// Owns tells whether a path belongs to the page.
func Owns(path string) bool { return path == "/" || strings.HasPrefix(path, Root) }

// ServeHTTP answers one request.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, path := "", ""
	if rest, ok := strings.CutPrefix(r.URL.Path, Root); ok {
		namespace, path, _ = strings.Cut(rest, "/")
	}
	if namespace == own {
		p.serveOwn(w, r, path)
		return
	}
	request, err := p.admit(w, r, namespace, path)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		p.get(w, request)
	case http.MethodPost:
		p.post(w, request)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		p.fail(w, request, &Problem{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not possible here"})
	}
}

func (p *Pages) get(w http.ResponseWriter, r *Request) {
	screen, ok := p.screens[r.path]
	if !ok {
		p.fail(w, r, &Problem{Status: http.StatusNotFound, Detail: "there is no such page", Hint: "The navigation lists what there is."})
		return
	}
	r.screen = screen
	if err := r.need(screen.Scope); err != nil {
		p.fail(w, r, err)
		return
	}
	if len(r.values["id"]) > 1 && !screen.Many {
		p.fail(w, r, invalid("the query has id more than once", "This page is about one thing."))
		return
	}
	if screen.Live && r.http.Header.Get("Accept") == eventStream {
		p.follow(w, r)
		return
	}
	r.since = time.Now().Add(-overviewKept) // a reload asks anew
	key := r.key()
	last, _, isKept := p.rendered.Last(key)
	patience := p.Timeout
	if isKept {
		patience = min(patience, livePatience)
	}
	ctx, cancel := context.WithTimeout(r.http.Context(), patience)
	defer cancel()
	began := time.Now()
	view, err := screen.Show(ctx, r)
	if isKept && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.answerLate(w, r, last)
		return
	}
	p.rendered.Drop(key) // an older rendering must not follow this one
	if err == nil && view.GoTo != "" {
		http.Redirect(w, r.http, view.GoTo, http.StatusSeeOther)
		return
	}
	if err == nil {
		view.began = began
		err = p.answer(w, r, view)
	}
	if err != nil {
		p.fail(w, r, err)
	}
}

func (p *Pages) post(w http.ResponseWriter, r *Request) {
	action, ok := p.actions[r.path]
	if !ok {
		p.fail(w, r, &Problem{Status: http.StatusNotFound, Detail: "there is no such action"})
		return
	}
	if err := r.need(action.Scope); err != nil {
		p.fail(w, r, err)
		return
	}
	if err := r.readForm(w); err != nil {
		p.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.http.Context(), p.Timeout)
	defer cancel()
	if action.Answer != nil {
		p.postAnswered(ctx, w, r, action)
		return
	}
	to, done, err := action.Do(ctx, r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.changed()
	if to == "" {
		to = r.back()
	}
	r.setNotice(w, done)
	http.Redirect(w, r.http, to, http.StatusSeeOther)
}

// postAnswered makes an action, and answers with the page that it returns.
func (p *Pages) postAnswered(ctx context.Context, w http.ResponseWriter, r *Request, action Action) {
	view, err := action.Answer(ctx, r)
	if err == nil {
		p.changed()
		r.screen = p.screens[r.path] // for the navigation
		err = p.answer(w, r, view)
	}
	if err != nil {
		p.fail(w, r, err)
	}
}

// changed drops everything that was cached of the database: an action has changed it.
func (p *Pages) changed() {
	p.overviews.Clear()
	p.findings.Clear()
	p.rates.Clear()
	p.jobSamples.Clear()
	p.tags.Clear()
	p.namespaces.Clear()
	p.rendered.Clear()
}

// Screens returns all pages.
func (p *Pages) Screens() []Screen { return slices.Collect(maps.Values(p.screens)) }

// Actions returns all actions.
func (p *Pages) Actions() []Action { return slices.Collect(maps.Values(p.actions)) }

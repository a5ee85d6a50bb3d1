package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// Databases is the page at / of a server that has several databases: what is wrong in any of them, and the state of each.
type Databases struct {
	DatabasesConfig
	audience audience
}

// DatabasesConfig has the parts of the server that the page uses.
type DatabasesConfig struct {
	Names  []string
	Tokens bool // people need one, of any of the databases
	// Look looks at each database, for the person that has sent a request.
	Look    func(r *http.Request) []Glance
	Drained <-chan struct{} // closed when the server is about to stop
	Logger  *slog.Logger
}

// NewDatabases makes the page.
func NewDatabases(c DatabasesConfig) *Databases {
	return &Databases{DatabasesConfig: c, audience: audience{pages: map[string]int{}}}
}

// GlanceTime is how long a look at one database may take, so that one that does not answer delays the page no longer.
const GlanceTime = 3 * time.Second

// Glance is the overview of a database in short. Of a database of which the person has no token it has the name, and whether
// the database answers.
type Glance struct {
	Name      string
	Namespace string
	Away      string // why nothing is known of it; "" if it answers
	SignIn    bool   // the database wants a token
	Refused   string // why the token does not open it
	Troubles  []trouble
	Checks    int
	Examined  time.Time
	Summary   admin.Summary
	changes   []databaseChange
}

// Link is the overview of the database.
func (g Glance) Link() string { return Mount{Name: g.Name}.home() }

// Open tells whether the person sees the database.
func (g Glance) Open() bool { return g.Away == "" && g.Refused == "" && !g.SignIn }

// Failing is the number of things that are broken or fail now.
func (g Glance) Failing() (n int) {
	for _, t := range g.Troubles {
		if !t.Mild() {
			n++
		}
	}
	return n
}

// rank is the place of the database on the page: those that are away come first, then those in trouble, and those of which
// nothing is known last.
func (g Glance) rank() int {
	switch {
	case g.Away != "":
		return -1
	case !g.Open():
		return mild + 2
	case len(g.Troubles) > 0:
		return g.Troubles[0].Rank
	}
	return mild + 1
}

// Glance looks at the database of the page.
func (p *Pages) Glance(r *http.Request) Glance {
	ctx, cancel := context.WithTimeout(r.Context(), GlanceTime)
	defer cancel()
	g := Glance{Name: p.Name}
	err := p.glance(ctx, r, &g)
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		g.Away = "it has not answered within 3 seconds"
	default:
		g.refuse(p.Door.Problem(ctx, err))
	}
	return g
}

func (g *Glance) refuse(problem *Problem) {
	switch {
	case problem.Status == http.StatusUnauthorized:
		g.SignIn = true
	case problem.Status >= http.StatusInternalServerError:
		g.Away = problem.Detail
	default:
		g.Refused = problem.Detail
	}
}

func (p *Pages) glance(ctx context.Context, r *http.Request, g *Glance) error {
	caller, err := p.Door.Admit(r.WithContext(ctx), "", p.cookieOf(r, tokenCookie))
	if err != nil {
		return err
	}
	request := &Request{Caller: caller, pages: p, http: r, values: url.Values{}}
	if err := request.need("read"); err != nil {
		return err
	}
	o, err := p.overviewOf(ctx, request)
	if err != nil {
		return err
	}
	actions, err := request.Admin.Actions(ctx, 0, mostChanges)
	for _, a := range actions {
		g.changes = append(g.changes, databaseChange{rowOf(a), g.Name, request.Link("action", "id", a.ID)})
	}
	g.Namespace, g.Troubles, g.Checks, g.Examined, g.Summary = caller.Namespace, troublesOf(request, o), len(o.Findings), o.Examined, o.Summary
	return err
}

// databaseTrouble is a trouble of one of the databases.
type databaseTrouble struct {
	trouble
	Database string
}

// databaseChange is an entry of the audit log of one of the databases.
type databaseChange struct {
	actionRow
	Database, Show string
}

// mostTroubles and mostChanges are how many troubles and changes the page of all databases shows.
const (
	mostTroubles = 50
	mostChanges  = 10
)

// databasesPage is the overview of all databases as its template shows it.
type databasesPage struct {
	Names     []string
	Live      bool // the person may follow the page
	Databases []Glance
	Troubles  []databaseTrouble
	More      int // troubles that are not shown
	Changes   []databaseChange
}

// Now is the server's time, by which the script counts.
func (d databasesPage) Now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// Unseen tells whether there are databases of which the person sees nothing.
func (d databasesPage) Unseen() bool {
	return slices.ContainsFunc(d.Databases, func(g Glance) bool { return g.Away == "" && !g.Open() })
}

// anyOpen tells whether the person sees a database.
func (d databasesPage) anyOpen() bool { return slices.ContainsFunc(d.Databases, Glance.Open) }

func (d *Databases) page(r *http.Request) databasesPage {
	page := databasesPage{Names: d.Names, Databases: d.Look(r)}
	page.Live = !d.Tokens || page.anyOpen() || slices.ContainsFunc(page.Databases, func(g Glance) bool {
		return g.Away != "" && Mount{Name: g.Name}.cookieOf(r, tokenCookie) != "" // a token that cannot be looked up now
	})
	slices.SortStableFunc(page.Databases, func(a, b Glance) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, g := range page.Databases {
		if g.Away != "" {
			page.Troubles = append(page.Troubles, databaseTrouble{trouble{
				Key: "away", Rank: -1, Title: "The database is away", Text: text(upperFirst(g.Away) + ". The server goes on trying to reach it."), Show: g.Link(),
			}, g.Name})
		}
		for _, t := range g.Troubles {
			page.Troubles = append(page.Troubles, databaseTrouble{t, g.Name})
		}
		page.Changes = append(page.Changes, g.changes...)
	}
	slices.SortStableFunc(page.Changes, func(a, b databaseChange) int { return b.At.Compare(a.At) })
	page.Changes = page.Changes[:min(len(page.Changes), mostChanges)]
	slices.SortStableFunc(page.Troubles, func(a, b databaseTrouble) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(b.Size, a.Size))
	})
	if page.More = len(page.Troubles) - mostTroubles; page.More > 0 {
		page.Troubles = page.Troubles[:mostTroubles]
	}
	return page
}

// ServeHTTP shows the page, or follows it. The parameter database chooses one of them.
func (d *Databases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("database")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, r.Method+" is not possible here", http.StatusMethodNotAllowed)
	case slices.Contains(d.Names, name):
		http.Redirect(w, r, Mount{Name: name}.home(), http.StatusSeeOther)
	case r.Header.Get("Accept") == eventStream:
		d.follow(w, r)
	case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate":
		// A browser that comes from another site does not send the cookies of the tokens. Coming from this page, it does.
		writePage(d.Logger, w, r, http.StatusOK, "bare.html", &bare{Title: "One moment", Reload: true})
	default:
		writePage(d.Logger, w, r, http.StatusOK, "databases.html", d.page(r))
	}
}

// follow sends the page whenever it has changed, to people who have a token: the places are few. People whose tokens are all of
// databases that are away may follow, too, so that they see when one is back. They get in only while half of the places are free:
// a token that was made up cannot be told from theirs then.
func (d *Databases) follow(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	page := d.page(r)
	if !page.Live {
		http.Error(w, "sign in to one of the databases to follow this page", http.StatusUnauthorized)
		return
	}
	var leave func()
	if !d.Tokens || page.anyOpen() || d.audience.size() < mostWatching/2 {
		leave = d.audience.enter("")
	}
	if leave == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	stream := openStream(w)
	var last []byte
	for {
		took := time.Since(began)
		var content bytes.Buffer
		if err := templates["databases.html"]().ExecuteTemplate(&content, "main", page); err != nil {
			d.Logger.Error("page was not rendered", "path", r.URL.Path, "error", err)
			return
		}
		r = page.withoutRefused(r)
		send := stream.comment
		if !bytes.Equal(content.Bytes(), last) {
			last = content.Bytes()
			send = func() error { return stream.send("main", last) }
		}
		if send() != nil || !waitUntil(r.Context(), d.Drained, time.Now().Add(restAfter(took, d.audience.size(), livePace))) {
			return
		}
		began = time.Now()
		page = d.page(r)
		if !page.Live {
			_ = stream.send("gone", []byte("reload")) // the page then says why
			return
		}
	}
}

// withoutRefused is the request without the tokens that a database has refused, so that it refuses, and logs, each only once.
func (d databasesPage) withoutRefused(r *http.Request) *http.Request {
	refused := map[string]bool{}
	for _, g := range d.Databases {
		if g.SignIn {
			refused[Mount{Name: g.Name}.cookieName(r, tokenCookie)] = true
		}
	}
	kept := r.Clone(r.Context())
	kept.Header.Del("Cookie")
	for _, c := range r.Cookies() {
		if !refused[c.Name] {
			kept.AddCookie(c)
		}
	}
	return kept
}

// WriteAway says that a database is away, to a person who wants one of its pages.
func (d *Databases) WriteAway(w http.ResponseWriter, r *http.Request, name string, problem *Problem) {
	writePage(d.Logger, w, r, problem.Status, "bare.html", &bare{Mount: Mount{Name: name, All: d.Names}, Title: "Database " + name + " is away", Problem: problem})
}

// Tag is the name of the database before the title of its trouble.
func (t databaseTrouble) Tag() template.HTML { return short(t.Database) }

package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/metrics"
	"github.com/posthorn/posthorn/server/internal/cache"
	pages "github.com/posthorn/posthorn/server/page"
)

// Databases serves several databases over HTTP. Each has a [Server] of its own below /d/NAME, with its own connections,
// deadlines and tokens, so that a database that is away takes nothing else with it. Other paths are those of the first
// database, except / (the overview of all), /metrics (of all that the token opens), /healthz and /readyz (of the process).
//
// It is an [http.Handler], safe for concurrent use. It knows no addresses: the program opens a client for each database, and
// tells it by [Databases.Open] and [Databases.Close].
type Databases struct {
	namespace string
	options   Options
	log       *slog.Logger
	places    []*place
	overview  *pages.Databases
	answers   *cache.Cache[*Server, bool] // whether the database answers, for people who may not ask it

	drained  chan struct{} // closed by Drain
	draining sync.Once
}

// place is a database, and its server while there is one.
type place struct {
	pages.Mount
	server atomic.Pointer[Server] // nil: the database is away
}

var databaseName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// CheckDatabaseNames refuses names that databases cannot have, with posthorn.ErrInvalid. Every command that takes several databases
// has this rule, so that they can have the same list.
func CheckDatabaseNames(names []string) error {
	for i, name := range names {
		if !databaseName.MatchString(name) {
			return fmt.Errorf("%w: the name of a database has lower-case letters, digits, - and _, and at most 40 of them: %q", posthorn.ErrInvalid, name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("%w: database %s is named twice", posthorn.ErrInvalid, name)
		}
	}
	return nil
}

// NewDatabases returns a server for databases of these names, all of which are away until [Databases.Open]. The namespace is
// that of the clients.
func NewDatabases(names []string, namespace string, log *slog.Logger, options Options) (*Databases, error) {
	if err := CheckDatabaseNames(names); err != nil {
		return nil, err
	}
	d := &Databases{
		namespace: namespace, options: options, log: log, drained: make(chan struct{}),
		answers: cache.New[*Server, bool](cache.Config{Size: 2 * len(names), Timeout: 2 * pages.GlanceTime}),
	}
	for _, name := range names {
		d.places = append(d.places, &place{Mount: pages.Mount{Name: name, All: names}})
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no database is named", posthorn.ErrInvalid)
	}
	d.overview = pages.NewDatabases(pages.DatabasesConfig{Names: names, Tokens: options.Tokens, Look: d.look, Drained: d.drained, Logger: log})
	return d, nil
}

func (d *Databases) place(name string) *place {
	i := slices.IndexFunc(d.places, func(p *place) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return d.places[i]
}

// Open serves a database with a client, until [Databases.Close].
func (d *Databases) Open(name string, client *posthorn.Client) {
	p := d.place(name)
	options := d.options
	options.mount = p.Mount
	s := New(client, options)
	p.server.Store(s)
	select {
	case <-d.drained:
		s.Drain()
	default:
	}
}

// Close ends the requests of a database that wait, and answers from then on that it is away. The client may be closed
// afterwards.
func (d *Databases) Close(ctx context.Context, name string) {
	if s := d.place(name).server.Swap(nil); s != nil {
		s.Drain()
		s.Wait(ctx)
	}
}

// Serve is [Server.Serve] for all databases.
func (d *Databases) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	return serveUntil(ctx, listener, &http.Server{Handler: d, TLSConfig: config, ReadHeaderTimeout: headerTimeout}, d, d.log)
}

// Drain is [Server.Drain] for all databases.
func (d *Databases) Drain() {
	d.draining.Do(func() { close(d.drained) })
	d.each(func(s *Server) { s.Drain() })
}

// Wait is [Server.Wait] for all databases.
func (d *Databases) Wait(ctx context.Context) { d.each(func(s *Server) { s.Wait(ctx) }) }

// each runs use for the servers that there are, at the same time.
func (d *Databases) each(use func(*Server)) {
	var all sync.WaitGroup
	for _, p := range d.places {
		if s := p.server.Load(); s != nil {
			all.Go(func() { use(s) })
		}
	}
	all.Wait()
}

// ServeHTTP answers one request.
func (d *Databases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limitBody(w, r, bodyTimeout)
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/d/"):
		d.serveDatabase(w, r)
	case path == "/":
		setOwnHeaders(w)
		d.overview.ServeHTTP(w, r)
	case pages.OwnsAsset(path):
		pages.ServeAsset(w, r)
	case pages.Owns(path): // one address for each page
		http.Redirect(w, r, d.places[0].Base()+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	case path == "/metrics" && r.Method == http.MethodGet:
		setOwnHeaders(w)
		d.serveMetrics(w, r)
	case path == "/healthz" && r.Method == http.MethodGet:
		writeHealth(w)
	case path == "/readyz" && r.Method == http.MethodGet:
		d.serveReady(w, r)
	default:
		d.serveAt(d.places[0], w, r)
	}
}

// setOwnHeaders sets the headers that all responses of a server have.
func setOwnHeaders(w http.ResponseWriter) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
}

// serveDatabase answers a request below /d/NAME, whose server sees the rest of the path.
func (d *Databases) serveDatabase(w http.ResponseWriter, r *http.Request) {
	name, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/d/"), "/")
	p := d.place(name)
	if p == nil || r.URL.RawPath != "" && !strings.HasPrefix(r.URL.RawPath, p.Base()+"/") {
		setOwnHeaders(w)
		notFound("there is no such database", "The names are those of posthorn serve --database.").write(w)
		return
	}
	if !below {
		http.Redirect(w, r, p.Base()+"/", http.StatusTemporaryRedirect)
		return
	}
	http.StripPrefix(p.Base(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.serveAt(p, &located{ResponseWriter: w, base: p.Base()}, r)
	})).ServeHTTP(w, r)
}

// serveAt answers a request of a database.
func (d *Databases) serveAt(p *place, w http.ResponseWriter, r *http.Request) {
	if s := p.server.Load(); s != nil {
		s.ServeHTTP(w, r)
		return
	}
	setOwnHeaders(w)
	away := unavailable("database "+p.Name+" is away", "The server goes on trying to reach it. Its log has the cause.")
	switch {
	case r.URL.Path == "/healthz":
		writeHealth(w)
	case pages.Owns(r.URL.Path):
		d.overview.WriteAway(w, r, p.Name, &pages.Problem{Status: away.Status, Detail: away.Detail, Hint: away.Hint})
	default:
		away.write(w)
	}
}

// located makes the address in the header Location that of the database: its server knows no prefix.
type located struct {
	http.ResponseWriter
	base string
}

func (l *located) WriteHeader(status int) {
	if to := l.Header().Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, l.base+"/") {
		l.Header().Set("Location", l.base+to)
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap gives [http.ResponseController] the methods that located does not have.
func (l *located) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// look looks at all databases at the same time, for a person.
func (d *Databases) look(r *http.Request) []pages.Glance {
	return inParallel(d.places, func(p *place) pages.Glance {
		s := p.server.Load()
		if s == nil {
			return pages.Glance{Name: p.Name, Away: "the server has no connection to it"}
		}
		g := s.pages.Glance(r)
		if g.SignIn && !d.answer(r.Context(), s) { // the first is known without asking the database
			g.SignIn, g.Away = false, "it does not answer"
		}
		return g
	})
}

// answer tells whether a database answers. It is asked once a second, however many people without a token look.
func (d *Databases) answer(ctx context.Context, s *Server) bool {
	answers, err := d.answers.Get(ctx, s, func(ctx context.Context) (bool, time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, pages.GlanceTime)
		defer cancel()
		return s.client.Pool().Ping(ctx) == nil, time.Now().Add(time.Second), nil
	})
	return err == nil && answers
}

func inParallel[T any](places []*place, ask func(*place) T) []T {
	answers := make([]T, len(places))
	var all sync.WaitGroup
	for i, p := range places {
		all.Go(func() { answers[i] = ask(p) })
	}
	all.Wait()
	return answers
}

// serveMetrics sends the metrics of the databases that the token opens, and of those that are away that they are.
func (d *Databases) serveMetrics(w http.ResponseWriter, r *http.Request) {
	type answer struct {
		families []metrics.Family
		opened   bool     // the token opens the database
		refused  *problem // it does not
	}
	var families []metrics.Family
	var opened bool
	var refused *problem
	for _, a := range inParallel(d.places, func(p *place) answer {
		families, err := d.metricsOf(p, r)
		if err == nil {
			return answer{families: families, opened: p.server.Load() != nil}
		}
		if problem := problemOf(r.Context(), err); problem.Status < http.StatusInternalServerError {
			return answer{refused: problem}
		}
		return answer{families: metrics.Away(p.Name, d.namespace)}
	}) {
		families = append(families, a.families...)
		opened = opened || a.opened
		if refused == nil {
			refused = a.refused
		}
	}
	if refused != nil && !opened {
		refused.write(w)
		return
	}
	writeMetrics(w, families)
}

func (d *Databases) metricsOf(p *place, r *http.Request) ([]metrics.Family, error) {
	s := p.server.Load()
	if s == nil {
		return metrics.Away(p.Name, d.namespace), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), metrics.Timeout)
	defer cancel()
	c, err := s.authenticate(r.WithContext(ctx)) // not authorize: a token of another database is none to warn of
	if err != nil {
		return nil, err
	}
	if !c.may(scopeRead) {
		return nil, newProblem(http.StatusForbidden, "the token lacks the scope read", "Use a token that has it.")
	}
	return s.families(ctx, c)
}

func writeHealth(w http.ResponseWriter) { writeJSON(w, http.StatusOK, healthy().Body) }

// isReady tells whether the database answers.
func (p *place) isReady(ctx context.Context) bool {
	s := p.server.Load()
	if s == nil {
		return false
	}
	_, err := s.ready(ctx, caller{}, nil)
	return err == nil
}

// anyPlace looks at all databases at the same time, and tells whether a look returns true. It waits for no other one then.
func anyPlace(places []*place, look func(*place) bool) bool {
	looks := make(chan bool, len(places))
	for _, p := range places {
		go func() { looks <- look(p) }()
	}
	for range places {
		if <-looks {
			return true
		}
	}
	return false
}

// serveReady is 200 as long as one database can be reached.
func (d *Databases) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithoutCancel(r.Context()) // the look at a database that hangs ends by its own deadline
	if anyPlace(d.places, func(p *place) bool { return p.isReady(ctx) }) {
		writeHealth(w)
		return
	}
	setOwnHeaders(w)
	unavailable("no database can be reached now", "Try again soon.").write(w)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	setOwnHeaders(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client disconnected
}

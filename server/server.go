package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/outage"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/token"
	"github.com/posthorn/posthorn/internal/work"
)

// Options say how to serve. The zero value is sound.
type Options struct {
	// Logger receives what goes wrong, each request that is denied, and at level
	// debug every request. An outage of the database is one message when it begins
	// and one when it ends, with the number of requests that failed meanwhile.
	// Default: the client's, see [posthorn.Client.Logger].
	Logger *slog.Logger
	// MaxBodyBytes bounds the body of a request, after it is decompressed.
	// Default: 4 MiB.
	MaxBodyBytes int64
	// MaxWaits bounds how many requests may wait for something at once, and
	// MaxStreams how many streams may be open. More are told to come again
	// later. Default: 10000 each.
	MaxWaits   int
	MaxStreams int
	// Heartbeat is how long a stream may have nothing to send before it says that
	// it is still there. Default: 15 seconds.
	Heartbeat time.Duration
	// Timeout is how long a request may take, apart from the time it waits on
	// purpose. Default: 30 seconds.
	Timeout time.Duration
	// CORSOrigins are the origins of web pages, such as https://app.example.com,
	// that may call from browsers. * stands for any. Default: none.
	CORSOrigins []string
	// Tokens: nobody is let in without a token, even if there is none. Default:
	// from the first token on that is made in the database. Until then everybody
	// may do everything, so listen on loopback only.
	Tokens bool
	// Local: as long as no token is needed, only requests are answered that name
	// this machine as localhost or by a loopback address. It is for servers that
	// listen there: otherwise a web page could reach them through its browser,
	// under a name of its own.
	Local bool
	// Version is shown in the OpenAPI document. Default: dev.
	Version string
}

func (o Options) withDefaults() Options {
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = 4 << 20
	}
	if o.MaxWaits <= 0 {
		o.MaxWaits = 10000
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 10000
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	return o
}

// Server serves a client's database. It is an [http.Handler], safe for any
// number of requests at once. The client must outlive it.
type Server struct {
	client  *posthorn.Client
	options Options
	log     *slog.Logger
	outage  *outage.Handler // log's
	mux     *http.ServeMux
	api     huma.API
	handler http.Handler // the mux, and what is around it
	gate    *gate
	box     *sealing.Box // with the client's keepers

	traffic     traffic
	waits       *waits // for events of groups
	openStreams *openStreams
	drained     chan struct{} // closed by Drain

	draining sync.Once

	headerTime, bodyTime time.Duration // the constants, but in tests

	jobBell  *work.Bell   // rings for those who wait for jobs
	jobWaits atomic.Int64 // how many do
}

// New serves the client's database over HTTP. Call [Server.Drain] when it is to
// end.
func New(client *posthorn.Client, options Options) *Server {
	options = options.withDefaults()
	drained := make(chan struct{})
	failures := outage.NewHandler(cmp.Or(options.Logger, client.Logger()).Handler(), client.Pool().Config(), drained)
	log := slog.New(failures)
	s := &Server{
		client: client, options: options, log: log, outage: failures,
		mux: http.NewServeMux(), drained: drained, headerTime: headerTime, bodyTime: bodyTime,
		waits: newWaits(client, options.MaxWaits), gate: newGate(client.Pool(), options.Tokens, time.Now),
		box:     sealing.New(client.Pool(), client.Sealer(), log),
		jobBell: work.NewBell(client.Pool(), log),
	}
	s.openStreams = newOpenStreams(client, log)
	s.traffic.routes = map[string]*routeTraffic{}
	s.api = humago.New(s.mux, apiConfig(options.Version))
	s.api.UseMiddleware(s.exchange)
	s.routes()
	s.handler = s.watched(s.hurried(compressed(allowOrigins(options.CORSOrigins, s.checked(traced(http.HandlerFunc(s.route)))))))
	return s
}

// admin operates the namespace of a caller, and opens payloads. Changes of callers that
// may operate are recorded in the audit log.
func (s *Server) admin(c caller) *admin.Admin {
	a := admin.New(s.client.Pool(), c.namespace).Opening(opener{s.box})
	if c.may(scopeAdmin) {
		a = a.By(c.name)
	}
	return a
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// routes names every resource once.
func (s *Server) routes() {
	s.health()
	s.serveMetrics()
	s.openAPI()
	s.docs()
	s.namespaces()
	s.events()
	s.liveStream()
	s.groups()
	s.subscriptions()
	s.deadLetters()
	s.schedules()
	s.nodes()
	s.projections()
	s.streams()
	s.jobs()
}

// route lets the mux answer, except where it would in plain text: for a path or
// a method that there is not.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	if pattern != "" {
		recordOf(r.Context()).route = pattern
		s.mux.ServeHTTP(w, r)
		return
	}
	unknown := &unknownRoute{header: http.Header{}}
	handler.ServeHTTP(unknown, r)
	if allow := unknown.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		s.fail(w, r, newProblem(http.StatusMethodNotAllowed, r.Method+" is not possible here", "Use one of: "+allow+"."))
		return
	}
	s.fail(w, r, newProblem(http.StatusNotFound, "there is nothing at "+token.Hide(r.URL.Path), "/docs lists what there is."))
}

// unknownRoute takes what the mux answers when it has no route.
type unknownRoute struct{ header http.Header }

func (u *unknownRoute) Header() http.Header         { return u.header }
func (u *unknownRoute) Write(b []byte) (int, error) { return len(b), nil }
func (u *unknownRoute) WriteHeader(int)             {}

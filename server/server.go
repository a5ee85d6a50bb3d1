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
	"github.com/posthorn/posthorn/internal/waitqueue"
	"github.com/posthorn/posthorn/internal/work"
	pages "github.com/posthorn/posthorn/server/page"
)

// Options configure a [Server]. The zero value is sound.
type Options struct {
	// Logger receives errors, each request that is denied, and at level debug every
	// request. An outage of the database is one message when it begins and one when it
	// ends, with the number of requests that failed meanwhile. Default: the client's,
	// see [posthorn.Client.Logger].
	Logger *slog.Logger
	// MaxBodyBytes limits the body of a request, after decompression. Default: 4 MiB.
	MaxBodyBytes int64
	// MaxWaits limits how many requests may wait at the same time, and MaxStreams how
	// many may read as server-sent events. Requests beyond a limit get 503 with Retry-After.
	// Default: 10000 each.
	MaxWaits   int
	MaxStreams int
	// Heartbeat is the longest time between two messages to a reader of server-sent
	// events: without an event to send, the server sends a heartbeat. Default: 15 seconds.
	Heartbeat time.Duration
	// Timeout limits the time of a request, apart from the time for which the client
	// asked the server to wait. Default: 30 seconds.
	Timeout time.Duration
	// CORSOrigins are the origins of web pages, such as https://app.example.com, that
	// may call the server from browsers. * stands for any. Default: none.
	CORSOrigins []string
	// Tokens requires a token of every request, even if the database has none.
	// Default: tokens are required as soon as the first one was created. Until then
	// every request may do everything, so listen on a loopback address only.
	Tokens bool
	// Local refuses requests that name another host than localhost or a loopback
	// address, as long as no token is required. Set it for servers that listen on a
	// loopback address: otherwise a web page could call them from a browser on this
	// machine, under a host name that resolves to the loopback address.
	Local bool
	// Version is shown in the OpenAPI document. Default: dev.
	Version string

	mount pages.Mount // of several databases, the one of the server
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

// Server is the HTTP API of a client's database. It is an [http.Handler], safe for
// concurrent requests. The client must stay open as long as the server is used.
type Server struct {
	client  *posthorn.Client
	options Options
	log     *slog.Logger
	outage  *outage.Handler // of log
	mux     *http.ServeMux
	api     huma.API
	handler http.Handler // the mux and its middleware
	access  *accessCache
	pages   *pages.Pages // the page for people
	box     *sealing.Box // opens and seals payloads with the client's keepers

	traffic     traffic
	openStreams *openStreams
	groupQueues *waitqueue.Queues[groupName] // of requests that wait for events of groups
	groupWaits  atomic.Int64                 // how many requests wait for events of groups
	jobQueues   *work.Queues                 // of requests that wait for jobs
	jobWaits    atomic.Int64                 // how many requests wait for jobs

	drained  chan struct{} // closed by Drain
	draining sync.Once

	now                        func() time.Time // the clock of sign-ins: the real one, except in tests
	headerTimeout, bodyTimeout time.Duration    // the constants, except in tests
}

// New returns a server for the client's database. Call [Server.Drain] before it is
// shut down.
func New(client *posthorn.Client, options Options) *Server {
	options = options.withDefaults()
	parts := client.Internal()
	drained := make(chan struct{})
	failures := outage.NewHandler(cmp.Or(options.Logger, client.Logger()).Handler(), client.Pool().Config(), drained)
	log := slog.New(failures)
	s := &Server{
		client: client, options: options, log: log, outage: failures,
		mux: http.NewServeMux(), drained: drained, now: time.Now, headerTimeout: headerTimeout, bodyTimeout: bodyTimeout,
		access:      newAccessCache(client.Pool(), options.Tokens, time.Now),
		box:         sealing.New(client.Pool(), client.Sealer(), log),
		groupQueues: newGroupQueues(parts.Watch), jobQueues: parts.Queues,
	}
	s.openStreams = newOpenStreams(client, log)
	s.traffic.routes = map[string]*routeTraffic{}
	s.api = humago.New(s.mux, apiConfig(options.Version, cmp.Or(options.mount.Base(), "/")))
	s.api.UseMiddleware(wrapContext)
	s.routes()
	handler := s.checkRequests(continueTraces(http.HandlerFunc(s.route)))
	handler = compressResponses(allowOrigins(options.CORSOrigins, handler))
	s.handler = s.logRequests(s.limitBodyTime(handler))
	return s
}

// admin returns an Admin for the namespace of a caller, to which things of streams that are
// hidden from the caller do not exist, with the rights of its token. It opens payloads, and
// records changes of callers that operate in the audit log.
func (s *Server) admin(c caller) *admin.Admin {
	a := admin.New(s.client.Pool(), c.namespace).Opening(opener{s.box}).Hiding(c.hidden).Holding(c.held)
	if c.operates {
		a = a.By(c.name)
	}
	return a
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// routes registers the operations of every resource.
func (s *Server) routes() {
	s.health()
	s.serveMetrics()
	s.openAPI()
	s.docs()
	s.events()
	s.liveStream()
	s.claiming()
	s.leases()
	s.deadLetters()
	s.operations()
	s.jobs()
	s.servePage()
}

// route passes a request to the mux. For an unknown path or method the mux would
// answer in plain text, so route answers with problem details instead.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	if pattern != "" {
		recordOf(r.Context()).route = pattern
		s.mux.ServeHTTP(w, r)
		return
	}
	unmatched := &headerOnly{header: http.Header{}}
	handler.ServeHTTP(unmatched, r)
	if allow := unmatched.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		s.fail(w, r, newProblem(http.StatusMethodNotAllowed, r.Method+" is not allowed here", "Use one of: "+allow+"."))
		return
	}
	s.fail(w, r, newProblem(http.StatusNotFound, "there is nothing at "+token.Hide(r.URL.Path), "See /docs for all routes."))
}

// headerOnly records the header of the mux's answer to an unmatched request.
type headerOnly struct{ header http.Header }

func (h *headerOnly) Header() http.Header         { return h.header }
func (h *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h *headerOnly) WriteHeader(int)             {}

package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/metrics"
)

// requestBounds are the buckets of posthorn_http_request_seconds.
var requestBounds = [...]float64{.001, .005, .02, .1, .5, 2, 10, 60}

// traffic counts the requests that were answered, by route.
type traffic struct {
	mu     sync.Mutex
	routes map[string]*routeTraffic
}

type routeTraffic struct {
	statuses map[int]uint64
	buckets  [len(requestBounds) + 1]uint64 // by duration; the last one is above all bounds
	seconds  float64
}

// count adds a request. The number of routes is limited, since a route is a pattern.
func (t *traffic) count(route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	bucket, _ := slices.BinarySearch(requestBounds[:], took.Seconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.routes[route]
	if r == nil {
		r = &routeTraffic{statuses: map[int]uint64{}}
		t.routes[route] = r
	}
	r.statuses[status]++
	r.buckets[bucket]++
	r.seconds += took.Seconds()
}

func (t *traffic) families() []metrics.Family {
	total, seconds := metrics.Family{Metric: metrics.HTTPRequests}, metrics.Family{Metric: metrics.HTTPSeconds}
	t.mu.Lock()
	defer t.mu.Unlock()
	for route, r := range t.routes {
		for status, n := range r.statuses {
			total.Add(metrics.Sample{Value: float64(n)}, route, strconv.Itoa(status))
		}
		seconds.Add(r.histogram(), route)
	}
	return []metrics.Family{total, seconds}
}

func (r *routeTraffic) histogram() metrics.Sample {
	s := metrics.Sample{Value: r.seconds}
	for i, n := range r.buckets {
		s.Count += n
		if i < len(requestBounds) {
			s.Buckets = append(s.Buckets, metrics.Bucket{Bound: requestBounds[i], Count: s.Count})
		}
	}
	return s
}

// gauges returns the requests and streams that are open now.
func (s *Server) gauges() []metrics.Family {
	waiting, streams := metrics.Family{Metric: metrics.HTTPWaiting}, metrics.Family{Metric: metrics.HTTPStreams}
	waiting.Add(metrics.Sample{Value: float64(s.groupWaits.Load())})
	streams.Add(metrics.Sample{Value: float64(s.openStreams.count.Load())})
	return []metrics.Family{waiting, streams}
}

func (s *Server) serveMetrics() {
	s.handle(operation{
		method: http.MethodGet, path: "/metrics", id: "metrics", tag: "server",
		summary:     "Metrics for Prometheus",
		description: "Groups, jobs, nodes, and the requests of this server, in the text format of Prometheus. Things of restricted streams are there for tokens that name the streams.",
		scope:       scopeRead,
		response:    map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}, func(w http.ResponseWriter, r *http.Request, c caller) error {
		families, err := s.families(r.Context(), c)
		if err != nil {
			return err
		}
		writeMetrics(w, families)
		return nil
	})
}

func writeMetrics(w http.ResponseWriter, families []metrics.Family) {
	w.Header().Set("Content-Type", metrics.ContentType)
	_, _ = w.Write(metrics.Text(families)) // an error means that the client disconnected
}

// families returns all metrics, as a caller may see them.
func (s *Server) families(ctx context.Context, c caller) ([]metrics.Family, error) {
	if c.namespace != s.client.Namespace() {
		return nil, newProblem(http.StatusForbidden, "this server has no metrics of namespace "+c.namespace, "Use a token of the namespace that the server was started for.")
	}
	a := s.admin(c)
	ctx, cancel := context.WithTimeout(ctx, metrics.Timeout) // for all queries together
	defer cancel()
	stats, err := s.statsOf(ctx, a)
	if err != nil {
		s.log.Warn("cannot collect the counters of handlers", "error", err)
	}
	source := metrics.Source{
		Namespace: c.namespace, Groups: a.Groups, Imports: a.Imports, Jobs: a.JobCounts, Failovers: a.Failovers, Webhooks: a.Webhooks, Stats: func() []posthorn.GroupStats { return stats },
		Timeout: metrics.Timeout, Logger: s.log,
	}
	families := slices.Concat(source.Collect(ctx), s.traffic.families(), s.gauges())
	for i := range families {
		families[i].Database = s.options.mount.Name
	}
	return families, nil
}

// statsOf returns the counters of this process, of groups and handlers that exist for the
// caller.
func (s *Server) statsOf(ctx context.Context, a *admin.Admin) ([]posthorn.GroupStats, error) {
	isHidden, err := a.HiddenHandlers(ctx)
	if err != nil {
		return nil, err
	}
	stats := slices.DeleteFunc(s.client.Stats(), func(g posthorn.GroupStats) bool { return isHidden(g.Group, "") })
	for i, g := range stats {
		stats[i].Handlers = slices.DeleteFunc(g.Handlers, func(h posthorn.HandlerStats) bool { return isHidden(g.Group, h.Handler) })
	}
	return stats, nil
}

package server

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
	classes  [len(requestBounds) + 1]uint64 // by how long they took; the last is for more
	seconds  float64
}

// count notes a request. Its route is a pattern, so there are few.
func (t *traffic) count(route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	class, _ := slices.BinarySearch(requestBounds[:], took.Seconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.routes[route]
	if r == nil {
		r = &routeTraffic{statuses: map[int]uint64{}}
		t.routes[route] = r
	}
	r.statuses[status]++
	r.classes[class]++
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
		seconds.Add(r.took(), route)
	}
	return []metrics.Family{total, seconds}
}

func (r *routeTraffic) took() metrics.Sample {
	s := metrics.Sample{Value: r.seconds}
	for i, n := range r.classes {
		s.Count += n
		if i < len(requestBounds) {
			s.Buckets = append(s.Buckets, metrics.Bucket{Bound: requestBounds[i], Count: s.Count})
		}
	}
	return s
}

// gauges are what is going on now.
func (s *Server) gauges() []metrics.Family {
	waiting, streams := metrics.Family{Metric: metrics.HTTPWaiting}, metrics.Family{Metric: metrics.HTTPStreams}
	waiting.Add(metrics.Sample{Value: float64(s.waits.waiting())})
	streams.Add(metrics.Sample{Value: float64(s.openStreams.count.Load())})
	return []metrics.Family{waiting, streams}
}

func (s *Server) serveMetrics() {
	source := metrics.Source{
		Namespace: s.client.Namespace(), Groups: s.client.Admin().Groups, Imports: s.client.Admin().Imports, Stats: s.client.Stats, Timeout: metrics.Timeout, Logger: s.log,
	}
	s.handle(operation{
		method: http.MethodGet, path: "/metrics", id: "metrics", group: "server",
		summary:     "Metrics for Prometheus",
		description: "The text format of Prometheus: groups, jobs, nodes, and the traffic of this server.",
		scope:       scopeRead,
		response:    map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}, func(w http.ResponseWriter, r *http.Request, c caller) error {
		if c.namespace != s.client.Namespace() {
			return newProblem(http.StatusForbidden, "the metrics are those of another namespace", "Use a token of the namespace that this server is started for.")
		}
		text := metrics.Text(slices.Concat(source.Collect(r.Context()), s.traffic.families(), s.gauges()))
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = w.Write(text) // if that fails, the client has gone
		return nil
	})
}

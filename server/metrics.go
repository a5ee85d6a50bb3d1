package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	phprometheus "github.com/posthorn/posthorn/prometheus"
)

// metrics are those of the server itself, and of the client that it serves.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "posthorn_http_requests_total", Help: "Requests that were answered.",
		}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "posthorn_http_request_seconds", Help: "How long requests took, with the time that they waited on purpose.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60},
		}, []string{"route"}),
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "posthorn_http_waiting", Help: "Requests that wait for events.",
	}, func() float64 { return float64(s.waits.waiting()) })
	streams := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "posthorn_http_streams", Help: "Streams that are open.",
	}, func() float64 { return float64(s.openStreams.count.Load()) })
	m.registry.MustRegister(m.requests, m.took, waiting, streams, phprometheus.NewCollector(s.client, phprometheus.Config{Logger: s.log}))
	return m
}

// count notes a request. Its route is a pattern, so there are few.
func (m *metrics) count(route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

func (s *Server) serveMetrics() {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	s.handle(operation{
		method: http.MethodGet, path: "/metrics", id: "metrics", group: "server",
		summary: "Metrics for Prometheus", scope: scopeRead,
		response: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}, func(w http.ResponseWriter, _ *http.Request, c caller) error {
		if c.namespace != s.client.Namespace() {
			return newProblem(http.StatusForbidden, "the metrics are those of another namespace", "Use a token of the namespace that this server is started for.")
		}
		families, err := s.metrics.registry.Gather()
		if err != nil && len(families) == 0 {
			return err
		}
		w.Header().Set("Content-Type", string(format))
		encoder := expfmt.NewEncoder(w, format)
		for _, family := range families {
			if err := encoder.Encode(family); err != nil {
				return nil // the client has gone, and something is written
			}
		}
		return nil
	})
}

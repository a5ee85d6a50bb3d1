package metrics

// Metrics of the HTTP server.
var (
	HTTPRequests = Metric{
		Name: "posthorn_http_requests_total", Help: "Requests that were answered.",
		Kind: Counter, Labels: []string{"route", "status"},
	}
	HTTPSeconds = Metric{
		Name: "posthorn_http_request_seconds", Help: "Duration of requests, including long polling.",
		Kind: Histogram, Labels: []string{"route"},
	}
	HTTPWaiting = Metric{Name: "posthorn_http_waiting", Help: "Requests that wait for events.", Kind: Gauge}
	HTTPStreams = Metric{Name: "posthorn_http_streams", Help: "Streams that are open.", Kind: Gauge}
)

// HTTP returns the definitions of the metrics of the HTTP server.
func HTTP() []Metric { return []Metric{HTTPRequests, HTTPSeconds, HTTPWaiting, HTTPStreams} }

package server

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/metrics"
	"github.com/posthorn/posthorn/posthorntest"
	phprometheus "github.com/posthorn/posthorn/prometheus"
)

// theirs returns the text that the client library of Prometheus writes.
func theirs(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// without removes the families whose names have a prefix.
func without(text string, names ...string) string {
	var kept strings.Builder
	for family := range strings.SplitSeq(text, "# HELP ") {
		skip := family == ""
		for _, name := range names {
			skip = skip || strings.HasPrefix(family, name)
		}
		if !skip {
			kept.WriteString("# HELP " + family)
		}
	}
	return kept.String()
}

// The server has the same metrics of its client as package phprometheus.
func TestMetricsAreThoseOfTheCollector(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, group := range []string{"billing", `a"b\c`} {
		g := s.ph.Group(group, posthorn.GroupConfig{})
		for _, handler := range []string{"charge", "日本", `"quoted"\`} {
			g.Handle(handler, ">", func(context.Context, posthorn.Event) error { return nil })
		}
	}
	stop := posthorntest.Run(t, s.ph)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"})
	posthorntest.Drain(t, s.ph)
	stop()

	answer := s.call(t, "GET", "/metrics", nil).want(t, 200)
	equal(t, "content type", answer.header.Get("Content-Type"), string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	wanted := theirs(t, phprometheus.NewCollector(s.ph, phprometheus.Config{Logger: slog.New(slog.DiscardHandler)}))
	moving := "posthorn_log_held_seconds" // other tests use the same Postgres
	if diff := cmp.Diff(without(wanted, moving), without(answer.body, moving, "posthorn_http_")); diff != "" {
		t.Errorf("metrics (-theirs +ours):\n%s", diff)
	}
	if n := strings.Count(answer.body, "posthorn_handler_events_total{"); n < 6 {
		t.Errorf("%d handlers, want 6 or more", n)
	}
}

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`)
	sampleLine = regexp.MustCompile(`(?m)^(\w+)\{(.*)\} `)
	labelName  = regexp.MustCompile(`(\w+)="(?:\\.|[^"\\])*"`)
)

// The metrics that a server shows have the names, types and labels that are stable.
func TestMetricsAreTheStableOnes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ph.Group("billing", posthorn.GroupConfig{}).Handle("charge", ">", func(context.Context, posthorn.Event) error { return nil })
	stop := posthorntest.Run(t, s.ph)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a"})
	posthorntest.Drain(t, s.ph)
	stop()
	s.exec(t, "select posthorn.define_import('default', 'i', 'redis://r', 'redis', '{orders}'), posthorn.create_webhook('default', 'crm', '{\"url\": \"https://crm.example/\"}')")
	stable, err := os.ReadFile("../internal/surface/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	text := s.call(t, "GET", "/metrics", nil).want(t, 200).body
	shown := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		shown[m[1]] = m[1] + " " + m[2]
	}
	labels := map[string]string{}
	for _, m := range sampleLine.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if shown[name] == "" {
			name = name[:strings.LastIndexByte(name, '_')] // of a histogram
		}
		var names []string
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				names = append(names, l[1])
			}
		}
		labels[name] = strings.Join(names, ",")
	}
	for name, line := range shown {
		if line = strings.TrimSpace(line + " " + labels[name]); !strings.Contains("\n"+string(stable), "\n"+line+"\n") {
			t.Errorf("the server shows %q, which is not in the file", line)
		}
	}
	if lines := bytes.Count(stable, []byte("\n")); len(shown) < lines*3/4 {
		t.Errorf("the server shows %d metrics of %d", len(shown), lines)
	}
}

// Without a database, the metrics of the server are still there.
func TestMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "PUT", "/v1/groups/g", nil).want(t, 200)
	s.ph.Close()
	body := s.call(t, "GET", "/metrics", nil).want(t, 200).body
	for part, want := range map[string]bool{`posthorn_up{namespace="default"} 0`: true, "posthorn_http_requests_total{": true, "posthorn_group_": false} {
		if strings.Contains(body, part) != want {
			t.Errorf("%q is there: %t, want %t: %s", part, !want, want, body)
		}
	}
}

func TestTraffic(t *testing.T) {
	t.Parallel()
	total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metrics.HTTPRequests.Name, Help: metrics.HTTPRequests.Help}, metrics.HTTPRequests.Labels)
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metrics.HTTPSeconds.Name, Help: metrics.HTTPSeconds.Help, Buckets: requestBounds[:],
	}, metrics.HTTPSeconds.Labels)
	ours := traffic{routes: map[string]*routeTraffic{}}
	for i, took := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, 100 * time.Millisecond, time.Second, time.Minute, time.Hour} {
		for _, route := range []string{"GET /b", "GET /a/{name}", "none"} {
			status := []string{"200", "404"}[i%2]
			total.WithLabelValues(route, status).Inc()
			seconds.WithLabelValues(route).Observe(took.Seconds())
			ours.count(strings.TrimPrefix(route, "none"), []int{200, 404}[i%2], took)
		}
	}
	if diff := cmp.Diff(theirs(t, total, seconds), string(metrics.Text(ours.families()))); diff != "" {
		t.Errorf("text (-theirs +ours):\n%s", diff)
	}
}

func TestConcurrentTraffic(t *testing.T) {
	t.Parallel()
	ours := traffic{routes: map[string]*routeTraffic{}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 5000 {
				ours.count("GET /", 200+i%2, time.Second)
				ours.families()
			}
		})
	}
	all.Wait()
	text := string(metrics.Text(ours.families()))
	for _, line := range []string{`posthorn_http_requests_total{route="GET /",status="200"} 20000`, `posthorn_http_request_seconds_sum{route="GET /"} 40000`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing: %s", line, text)
		}
	}
}

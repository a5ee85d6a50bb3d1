package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/metrics"
)

// hostile are names with characters that need escaping.
var hostile = []string{"b", "", `a"b\`, "a\nb", `a\nb`, "a\xffb", "\x00\t\r", "日本{}=,#", "a b"}

func source() metrics.Source {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789012000, time.UTC)
	var groups []admin.GroupStatus
	var stats []posthorn.GroupStats
	var imports []admin.ImportStatus
	var webhooks []admin.Webhook
	var jobs []admin.JobCount
	failovers := []admin.Failover{{ID: 2, Lost: 5, BroughtBack: 3}, {ID: 1}}
	for i, name := range hostile {
		n := int64(i)
		g := admin.GroupStatus{
			Group: name, LagEvents: n * 1_000_003, LagSeconds: float64(i) / 3e7, Leases: n, ExpiredLeases: n, Retries: 999_999 + n,
			BlockedSlots: n, DeadLetters: 1e15 + n, Paused: i%2 == 0, HeldForSeconds: 1234.5, HeldByApplication: `psql "x"`,
		}
		if i%3 == 0 {
			g.OldestPending = at
		}
		groups = append(groups, g)
		lag, seconds := 7*n, float64(i)/3
		imports = append(imports, admin.ImportStatus{Import: name, LookedAt: at, LagEvents: &lag, LagSeconds: &seconds})
		w := admin.Webhook{Name: name, Owed: n, State: "active"}
		if i%3 == 0 {
			w.State = "disabled"
		}
		webhooks = append(webhooks, w)
		jobs = append(jobs, admin.JobCount{State: name, Jobs: n})
		s := posthorn.GroupStats{Group: name, LeasesLost: n}
		for j, handler := range hostile {
			m := int64(i * j)
			s.Handlers = append(s.Handlers, posthorn.HandlerStats{
				Handler: handler, Events: m * m * m * m, Failed: m, DeadLetters: m, Busy: time.Duration(m * 1_234_567), Calls: 3 * m,
				Latencies: []posthorn.LatencyBucket{{UpTo: time.Microsecond, Calls: 0}, {UpTo: 2500 * time.Microsecond, Calls: m}, {UpTo: 5 * time.Minute, Calls: 2 * m}},
			})
		}
		stats = append(stats, s)
	}
	return metrics.Source{
		Namespace: "shop",
		Groups:    func(context.Context) ([]admin.GroupStatus, error) { return groups, nil },
		Imports:   func(context.Context) ([]admin.ImportStatus, error) { return imports, nil },
		Jobs:      func(context.Context, int) ([]admin.JobCount, error) { return jobs, nil },
		Failovers: func(context.Context) ([]admin.Failover, error) { return failovers, nil },
		Webhooks:  func(context.Context) ([]admin.Webhook, error) { return webhooks, nil },
		Stats:     func() []posthorn.GroupStats { return stats },
		Timeout:   time.Hour, Logger: slog.New(slog.DiscardHandler),
	}
}

// collected passes families to Prometheus' client library.
type collected []metrics.Family

func (collected) Describe(chan<- *prometheus.Desc) {}

func (c collected) Collect(out chan<- prometheus.Metric) {
	for _, f := range c {
		labels := prometheus.Labels{}
		if f.Namespace != "" {
			labels["namespace"] = f.Namespace
		}
		desc := prometheus.NewDesc(f.Name, f.Help, f.Labels, labels)
		for _, s := range f.Samples {
			switch f.Kind {
			case metrics.Counter:
				out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value, s.Labels...)
			case metrics.Gauge:
				out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Labels...)
			case metrics.Histogram:
				buckets := map[float64]uint64{}
				for _, b := range s.Buckets {
					buckets[b.Bound] = b.Count
				}
				out <- prometheus.MustNewConstHistogram(desc, s.Count, s.Value, buckets, s.Labels...)
			}
		}
	}
}

// theirs formats families with Prometheus' client library.
func theirs(t *testing.T, families []metrics.Family) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collected(families))
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range gathered {
		if err := encoder.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// parsed parses a text as Prometheus does, and returns the families by name.
func parsed(t *testing.T, text string) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	read, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]string{}
	for name, f := range read {
		families[name] = f.String()
	}
	return families
}

func TestText(t *testing.T) {
	t.Parallel()
	odd := metrics.Family{Metric: metrics.Metric{Name: "odd_values", Help: "Of \\ all\n\"kinds\".", Kind: metrics.Gauge, Labels: []string{"a", "b"}}}
	for i, v := range []float64{0, 1, -1, .1, 1e6, 123456789, 1e21, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN()} {
		odd.Add(metrics.Sample{Value: v}, hostile[i%len(hostile)], strings.Repeat("x", i))
	}
	alone := metrics.Family{Metric: metrics.Metric{Name: "alone", Help: "Without labels.", Kind: metrics.Histogram}}
	alone.Add(metrics.Sample{Value: 2.5, Count: 7, Buckets: []metrics.Bucket{{1, 3}, {1e6, 3}}})
	none := metrics.Family{Metric: metrics.Metric{Name: "none", Kind: metrics.Gauge}}

	families := append(source().Collect(t.Context()), odd, alone, none)
	ours, want := string(metrics.Text(families)), theirs(t, families)
	if diff := cmp.Diff(parsed(t, want), parsed(t, ours)); diff != "" {
		t.Errorf("parsed families (-theirs +ours):\n%s", diff)
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("text (-theirs +ours):\n%s", diff)
	}
	if n := len(parsed(t, ours)); n != len(metrics.Metrics())+2 {
		t.Errorf("%d families of %d metrics", n, len(metrics.Metrics())+2)
	}
	if want := string(expfmt.NewFormat(expfmt.TypeTextPlain)); metrics.ContentType != want {
		t.Errorf("content type %q, want %q", metrics.ContentType, want)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_500_000_000_250_000)
	s := source()
	s.Groups = func(context.Context) ([]admin.GroupStatus, error) {
		return []admin.GroupStatus{{
			Group: "g", LagEvents: 1, LagSeconds: 2.5, OldestPending: at, Leases: 3, ExpiredLeases: 4, Retries: 5,
			BlockedSlots: 6, DeadLetters: 7, Paused: true, HeldForSeconds: 8, HeldByApplication: "psql",
		}}, nil
	}
	lag, seconds := int64(15), 16.5
	s.Imports = func(context.Context) ([]admin.ImportStatus, error) {
		return []admin.ImportStatus{
			{Import: "i", Owner: "o", LookedAt: at, LagEvents: &lag, LagSeconds: &seconds, Trimmed: []string{"a", "b"}, Error: "x"},
			{Import: "new"},
		}, nil
	}
	s.Jobs = func(context.Context, int) ([]admin.JobCount, error) {
		return []admin.JobCount{{State: "blocked", Jobs: 18}, {State: "awaiting", Jobs: 19}}, nil
	}
	s.Failovers = func(context.Context) ([]admin.Failover, error) {
		return []admin.Failover{{ID: 3, Lost: 25, BroughtBack: 4}}, nil
	}
	s.Webhooks = func(context.Context) ([]admin.Webhook, error) {
		return []admin.Webhook{{Name: "w", State: "disabled", Owed: 17}}, nil
	}
	s.Stats = func() []posthorn.GroupStats {
		return []posthorn.GroupStats{{Group: "g", LeasesLost: 9, Handlers: []posthorn.HandlerStats{{
			Handler: "h", Events: 10, Failed: 11, DeadLetters: 12, Busy: 13 * time.Second, Calls: 14,
			Latencies: []posthorn.LatencyBucket{{UpTo: time.Millisecond, Calls: 5}, {UpTo: time.Minute, Calls: 6}},
		}}}}
	}
	var lines []string
	for line := range strings.Lines(string(metrics.Text(s.Collect(t.Context())))) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(strings.Replace(line, `,namespace="shop"`, "", 1), "\n"))
		}
	}
	want := []string{
		`posthorn_failover_lost_events{failover="3"} 21`,
		`posthorn_group_blocked_slots{group="g"} 6`,
		`posthorn_group_dead_letters{group="g"} 7`,
		`posthorn_group_lag_events{group="g"} 1`,
		`posthorn_group_lag_seconds{group="g"} 2.5`,
		`posthorn_group_leases_expired{group="g"} 4`,
		`posthorn_group_leases_in_flight{group="g"} 3`,
		`posthorn_group_oldest_pending_timestamp_seconds{group="g"} 1.50000000025e+09`,
		`posthorn_group_paused{group="g"} 1`,
		`posthorn_group_retries{group="g"} 5`,
		`posthorn_handler_dead_letters_total{group="g",handler="h"} 12`,
		`posthorn_handler_duration_seconds_bucket{group="g",handler="h",le="0.001"} 5`,
		`posthorn_handler_duration_seconds_bucket{group="g",handler="h",le="60"} 6`,
		`posthorn_handler_duration_seconds_bucket{group="g",handler="h",le="+Inf"} 14`,
		`posthorn_handler_duration_seconds_sum{group="g",handler="h"} 13`,
		`posthorn_handler_duration_seconds_count{group="g",handler="h"} 14`,
		`posthorn_handler_events_total{group="g",handler="h"} 10`,
		`posthorn_handler_failures_total{group="g",handler="h"} 11`,
		`posthorn_import_failing{import="i"} 1`,
		`posthorn_import_failing{import="new"} 0`,
		`posthorn_import_lag_events{import="i"} 15`,
		`posthorn_import_lag_seconds{import="i"} 16.5`,
		`posthorn_import_looked_timestamp_seconds{import="i"} 1.50000000025e+09`,
		`posthorn_import_running{import="i"} 1`,
		`posthorn_import_running{import="new"} 0`,
		`posthorn_import_trimmed_streams{import="i"} 2`,
		`posthorn_import_trimmed_streams{import="new"} 0`,
		`posthorn_jobs{namespace="shop",state="awaiting"} 19`,
		`posthorn_jobs{namespace="shop",state="blocked"} 18`,
		`posthorn_leases_lost_total{group="g"} 9`,
		`posthorn_log_held_seconds{application="psql"} 8`,
		`posthorn_up{namespace="shop"} 1`,
		`posthorn_webhook_disabled{namespace="shop",webhook="w"} 1`,
		`posthorn_webhook_failing_seconds{namespace="shop",webhook="w"} 0`,
		`posthorn_webhook_owed_events{namespace="shop",webhook="w"} 17`,
		`posthorn_webhook_owed_seconds{namespace="shop",webhook="w"} 0`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Two names that differ only in invalid UTF-8 become the same label value, and a
// scrape must not contain the same labels twice.
func TestTextHasNoDuplicateSamples(t *testing.T) {
	t.Parallel()
	f := metrics.Family{Metric: metrics.Metric{Name: "m", Help: "Help.", Kind: metrics.Counter, Labels: []string{"name"}}}
	f.Add(metrics.Sample{Value: 2}, "a\xff")
	f.Add(metrics.Sample{Value: 1}, "a\xfe")
	want := "# HELP m Help.\n# TYPE m counter\nm{name=\"a\uFFFD\"} 2\n"
	if diff := cmp.Diff(want, string(metrics.Text([]metrics.Family{f}))); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// The counters of the process are collected also when the database is unavailable.
func TestDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	s := source()
	s.Groups = func(context.Context) ([]admin.GroupStatus, error) { return nil, errors.New("gone") }
	s.Imports = func(context.Context) ([]admin.ImportStatus, error) { return nil, errors.New("gone") }
	s.Jobs = func(context.Context, int) ([]admin.JobCount, error) { return nil, errors.New("gone") }
	s.Failovers = func(context.Context) ([]admin.Failover, error) { return nil, errors.New("gone") }
	text := string(metrics.Text(s.Collect(t.Context())))
	for part, want := range map[string]bool{
		"\nposthorn_up{namespace=\"shop\"} 0\n": true, "posthorn_handler_events_total{": true, "posthorn_leases_lost_total{": true,
		"posthorn_group_": false, "posthorn_import_": false, "posthorn_jobs": false, "posthorn_log_held": false,
	} {
		if strings.Contains(text, part) != want {
			t.Errorf("the text contains %q: %t, want %t", part, !want, want)
		}
	}
}

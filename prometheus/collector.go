// Package phprometheus exports metrics of Posthorn through Prometheus' client
// library: the status of each group in the database, and the counters of the
// handlers of this process.
//
//	registry.MustRegister(phprometheus.NewCollector(ph, phprometheus.Config{}))
//
// The status of a group is stored in the database, so every scraped process exports
// the same values: aggregate them by max, not by sum. Counters of handlers are
// counted per process: aggregate them by sum.
//
// All metrics have the label namespace. If a process has two clients of the same
// namespace, register each collector with an additional label through
// [prometheus.WrapRegistererWith].
//
// [prometheus.WrapRegistererWith]: https://pkg.go.dev/github.com/prometheus/client_golang/prometheus#WrapRegistererWith
package phprometheus

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/metrics"
)

// Config configures a collector. The zero value has sound defaults.
type Config struct {
	// Timeout limits the queries of a scrape. It must be shorter than scrape_timeout
	// of Prometheus, or a slow database fails the whole scrape, including the counters
	// of the process. Defaults to 5 seconds.
	Timeout time.Duration
	// Logger receives the errors of queries. Defaults to [slog.Default].
	Logger *slog.Logger
}

// Collector is a [prometheus.Collector]. If the database is unavailable, posthorn_up
// is 0 and the metrics of groups, imports, jobs and failovers are missing. The counters of the process
// are always there.
type Collector struct {
	source metrics.Source
	descs  map[string]*prometheus.Desc // by name of the metric
}

// NewCollector returns a collector for the groups, imports, jobs and failovers of a client's
// namespace, and for the client's handlers.
func NewCollector(ph *posthorn.Client, config Config) *Collector {
	return config.collector(metrics.Source{Namespace: ph.Namespace(), Groups: ph.Admin().Groups, Imports: ph.Admin().Imports, Jobs: ph.Admin().JobCounts, Failovers: ph.Admin().Failovers, Stats: ph.Stats})
}

// NewGroupCollector returns a collector for the groups, imports, jobs and failovers of a namespace,
// for programs that monitor Posthorn and have no handlers. db is a pool or a
// connection.
func NewGroupCollector(db posthorn.DB, namespace string, config Config) *Collector {
	a := admin.New(db, namespace)
	stats := func() []posthorn.GroupStats { return nil }
	return config.collector(metrics.Source{Namespace: namespace, Groups: a.Groups, Imports: a.Imports, Jobs: a.JobCounts, Failovers: a.Failovers, Stats: stats})
}

func (c Config) collector(source metrics.Source) *Collector {
	c = c.withDefaults()
	source.Timeout, source.Logger = c.Timeout, c.Logger
	descs := map[string]*prometheus.Desc{}
	for _, m := range metrics.Metrics() {
		descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, prometheus.Labels{"namespace": source.Namespace})
	}
	return &Collector{source, descs}
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = metrics.Timeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		out <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, f := range c.source.Collect(context.Background()) {
		for _, s := range f.Samples {
			out <- constant(c.descs[f.Name], f.Kind, s)
		}
	}
}

func constant(desc *prometheus.Desc, kind metrics.Kind, s metrics.Sample) prometheus.Metric {
	switch kind {
	case metrics.Histogram:
		buckets := make(map[float64]uint64, len(s.Buckets))
		for _, b := range s.Buckets {
			buckets[b.Bound] = b.Count
		}
		return prometheus.MustNewConstHistogram(desc, s.Count, s.Value, buckets, s.Labels...)
	case metrics.Counter:
		return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value, s.Labels...)
	default:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Labels...)
	}
}

// Package phprometheus shows Prometheus what Posthorn does: where each group
// stands in the database, and what the handlers of this process have done.
//
//	registry.MustRegister(phprometheus.NewCollector(ph, phprometheus.Config{}))
//
// Groups belong to the database, so every process that is scraped shows the same
// of them: look at max by (group), not at sum. Handlers belong to the process,
// and add up.
//
// The metrics have the namespace as a label. Two clients of one namespace in one
// process need another label each, by [prometheus.WrapRegistererWith].
//
// [prometheus.WrapRegistererWith]: https://pkg.go.dev/github.com/prometheus/client_golang/prometheus#WrapRegistererWith
package phprometheus

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/metrics"
	"github.com/posthorn/posthorn/internal/pg"
)

// Config is how to collect. The zero value is sound.
type Config struct {
	// Timeout of the one query that a scrape makes. Stay below Prometheus's own
	// scrape_timeout, or the counters of the process are lost with it. Default: 5
	// seconds.
	Timeout time.Duration
	// Logger hears why a query failed. Default: [slog.Default].
	Logger *slog.Logger
}

// Collector is a [prometheus.Collector]. When the database cannot be asked,
// posthorn_up is 0, the metrics of groups are missing, and all others are there.
type Collector struct {
	source metrics.Source
	descs  map[string]*prometheus.Desc // by name of the metric
}

// NewCollector collects for a client: the groups of its namespace, and what its
// handlers do.
func NewCollector(ph *posthorn.Client, config Config) *Collector {
	return config.collector(metrics.Source{Namespace: ph.Namespace(), Groups: ph.Groups, Imports: ph.Imports, Stats: ph.Stats})
}

// NewGroupCollector collects for the groups of a namespace alone, such as in a
// program that only watches. db is a pool or a connection.
func NewGroupCollector(db posthorn.DB, namespace string, config Config) *Collector {
	groups := func(ctx context.Context) ([]posthorn.GroupStatus, error) { return pg.ListGroups(ctx, db, namespace) }
	imports := func(ctx context.Context) ([]posthorn.ImportStatus, error) { return pg.ListImports(ctx, db, namespace) }
	stats := func() []posthorn.GroupStats { return nil }
	return config.collector(metrics.Source{Namespace: namespace, Groups: groups, Imports: imports, Stats: stats})
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

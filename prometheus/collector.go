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
	config  Config
	metrics metrics
	groups  func(ctx context.Context) ([]posthorn.GroupStatus, error)
	stats   func() []posthorn.GroupStats
}

// NewCollector collects for a client: the groups of its namespace, and what its
// handlers do.
func NewCollector(ph *posthorn.Client, config Config) *Collector {
	return &Collector{config.withDefaults(), newMetrics(ph.Namespace()), ph.Groups, ph.Stats}
}

// NewGroupCollector collects for the groups of a namespace alone, such as in a
// program that only watches. db is a pool or a connection.
func NewGroupCollector(db posthorn.DB, namespace string, config Config) *Collector {
	groups := func(ctx context.Context) ([]posthorn.GroupStatus, error) { return pg.ListGroups(ctx, db, namespace) }
	return &Collector{config.withDefaults(), newMetrics(namespace), groups, func() []posthorn.GroupStats { return nil }}
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) { c.metrics.describe(out) }

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, g := range c.stats() {
		c.metrics.process(out, g)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	groups, err := c.groups(ctx)
	if err != nil {
		c.config.Logger.Warn("cannot collect the metrics of groups", "error", err)
	}
	c.metrics.database(out, groups, err == nil)
}

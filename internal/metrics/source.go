package metrics

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

// Timeout is the default of [Source.Timeout]. It is shorter than Prometheus' default
// timeout of a scrape, so that a slow database does not fail the whole scrape.
const Timeout = 5 * time.Second

// Source has the functions that return the values of all metrics.
type Source struct {
	Namespace string
	Groups    func(ctx context.Context) ([]admin.GroupStatus, error)
	Imports   func(ctx context.Context) ([]admin.ImportStatus, error)
	Jobs      func(ctx context.Context, most int) ([]admin.JobCount, error)
	Failovers func(ctx context.Context) ([]admin.Failover, error)
	Webhooks  func(ctx context.Context) ([]admin.Webhook, error) // nil: their metrics have no samples
	Stats     func() []posthorn.GroupStats                       // counters of this process
	Timeout   time.Duration                                      // of all queries
	Logger    *slog.Logger
}

// Collect returns all metrics with their values. If the database is unavailable,
// posthorn_up is 0, and the metrics of groups, imports, jobs, failovers and webhooks have no samples.
func (s Source) Collect(ctx context.Context) []Family {
	families := ofProcess(s.Stats())
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	groups, err := s.Groups(ctx)
	if err != nil {
		s.Logger.Warn("cannot collect the metrics of groups", "error", err)
	}
	families = append(families, ofDatabase(groups, err == nil)...)
	imports, err := s.Imports(ctx)
	if err != nil {
		s.Logger.Warn("cannot collect the metrics of imports", "error", err)
	}
	families = append(families, ofImports(imports)...)
	jobs, err := s.Jobs(ctx, mostJobs)
	if err != nil {
		s.Logger.Warn("cannot collect the metrics of jobs", "error", err)
	}
	families = append(families, ofJobs(jobs))
	failovers, err := s.Failovers(ctx)
	if err != nil {
		s.Logger.Warn("cannot collect the metrics of failovers", "error", err)
	}
	families = append(families, ofFailovers(failovers))
	families = append(families, ofWebhooks(s.webhooks(ctx), time.Now())...)
	for i := range families {
		families[i].Namespace = s.Namespace
	}
	return families
}

func (s Source) webhooks(ctx context.Context) []admin.Webhook {
	if s.Webhooks == nil {
		return nil
	}
	webhooks, err := s.Webhooks(ctx)
	if err != nil {
		s.Logger.Warn("cannot collect the metrics of webhooks", "error", err)
	}
	return webhooks
}

// Away returns the metrics of a database that cannot be reached.
func Away(database, namespace string) []Family {
	reachable := Family{Metric: up, Database: database, Namespace: namespace}
	reachable.Add(Sample{Value: 0})
	return []Family{reachable}
}

// Metrics returns the definitions of all metrics that Collect returns.
func Metrics() []Metric {
	var all []Metric
	for _, f := range slices.Concat(ofProcess(nil), ofDatabase(nil, false), ofImports(nil), []Family{ofJobs(nil), ofFailovers(nil)}, ofWebhooks(nil, time.Time{})) {
		all = append(all, f.Metric)
	}
	return all
}

var (
	up                = Metric{Name: "posthorn_up", Help: "Whether the status of the groups could be read from the database.", Kind: Gauge}
	oldestTransaction = Metric{
		Name: "posthorn_log_held_seconds", Help: "Age of the oldest open transaction, which may delay events; 0 if there is none.",
		Kind: Gauge, Labels: []string{"application"},
	}
	leasesLost = Metric{
		Name: "posthorn_leases_lost_total", Help: "Leases that another worker took over while this process worked on them.",
		Kind: Counter, Labels: []string{"group"},
	}
	duration = ofHandler(Histogram, "duration_seconds", "Duration of calls of the handler; a batch is one call.")
)

func ofGroup(name, help string) Metric {
	return Metric{"posthorn_group_" + name, help, Gauge, []string{"group"}}
}

func ofHandler(kind Kind, name, help string) Metric {
	return Metric{"posthorn_handler_" + name, help, kind, []string{"group", "handler"}}
}

// groupMetrics are the metrics of a group. A value of NaN adds no sample.
var groupMetrics = []struct {
	Metric
	value func(admin.GroupStatus) float64
}{
	{
		ofGroup("lag_events", "Events that the group has not been handed yet; an estimate beyond 10,000."),
		func(g admin.GroupStatus) float64 { return float64(g.LagEvents) },
	},
	{
		ofGroup("lag_seconds", "Age of the oldest event that the group has not been handed yet."),
		func(g admin.GroupStatus) float64 { return g.LagSeconds },
	},
	{ofGroup("oldest_pending_timestamp_seconds", "When that event was published; missing if there is none."), oldestPending},
	{
		ofGroup("leases_in_flight", "Leases that are being worked on."),
		func(g admin.GroupStatus) float64 { return float64(g.Leases) },
	},
	{
		ofGroup("leases_expired", "Leases past their deadline that no worker has taken over yet."),
		func(g admin.GroupStatus) float64 { return float64(g.ExpiredLeases) },
	},
	{
		ofGroup("retries", "Events that have failed and will be retried."),
		func(g admin.GroupStatus) float64 { return float64(g.Retries) },
	},
	{
		ofGroup("blocked_slots", "Slots of an ordered group that are blocked by a retry."),
		func(g admin.GroupStatus) float64 { return float64(g.BlockedSlots) },
	},
	{
		ofGroup("dead_letters", "Events that have failed for good."),
		func(g admin.GroupStatus) float64 { return float64(g.DeadLetters) },
	},
	{ofGroup("paused", "Whether the group is paused."), func(g admin.GroupStatus) float64 { return boolValue(g.Paused) }},
}

// importMetrics are the metrics of an import. A value of NaN adds no sample: the lag
// of an import is unknown until its process has asked the broker.
var importMetrics = []struct {
	Metric
	value func(admin.ImportStatus) float64
}{
	{
		ofImport("lag_events", "Entries of the broker that were not imported at the last look; missing before the first look."),
		func(i admin.ImportStatus) float64 {
			if i.LagEvents == nil {
				return math.NaN()
			}
			return float64(*i.LagEvents)
		},
	},
	{
		ofImport("lag_seconds", "Age of the oldest of these entries."),
		func(i admin.ImportStatus) float64 {
			if i.LagSeconds == nil {
				return math.NaN()
			}
			return *i.LagSeconds
		},
	},
	{
		ofImport("looked_timestamp_seconds", "When the import last asked the broker for its lag."),
		func(i admin.ImportStatus) float64 {
			if i.LookedAt.IsZero() {
				return math.NaN()
			}
			return float64(i.LookedAt.UnixMicro()) / 1e6
		},
	},
	{ofImport("running", "Whether a process runs the import."), func(i admin.ImportStatus) float64 { return boolValue(i.Owner != "") }},
	{ofImport("failing", "Whether an error stops the import or one of its streams."), func(i admin.ImportStatus) float64 { return boolValue(i.Error != "") }},
	{
		ofImport("trimmed_streams", "Streams from which the broker removed events in the last week that had not been imported."),
		func(i admin.ImportStatus) float64 { return float64(len(i.Trimmed)) },
	},
}

func ofImport(name, help string) Metric {
	return Metric{"posthorn_import_" + name, help, Gauge, []string{"import"}}
}

// ofImports returns the metrics of the imports.
func ofImports(imports []admin.ImportStatus) []Family {
	families := make([]Family, len(importMetrics))
	for n, m := range importMetrics {
		families[n].Metric = m.Metric
		for _, i := range imports {
			if value := m.value(i); !math.IsNaN(value) {
				families[n].Add(Sample{Value: value}, i.Import)
			}
		}
	}
	return families
}

var lostEvents = Metric{
	Name: "posthorn_failover_lost_events", Help: "Events that a failover, crash or restore of the database has lost, that the broker of a relay has, and that were not brought back.",
	Kind: Gauge, Labels: []string{"failover"},
}

// ofFailovers returns the metric of failovers, of the last ones.
func ofFailovers(failovers []admin.Failover) Family {
	family := Family{Metric: lostEvents}
	for _, f := range failovers[:min(len(failovers), mostFailovers)] {
		family.Add(Sample{Value: float64(f.Lost - f.BroughtBack)}, strconv.FormatInt(f.ID, 10))
	}
	return family
}

// mostFailovers is how many of the last failovers have a metric.
const mostFailovers = 10

// webhookMetrics are the metrics of a webhook.
var webhookMetrics = []struct {
	Metric
	value func(w admin.Webhook, now time.Time) float64
}{
	{
		ofWebhook("owed_events", "Events that wait for the endpoint or are tried again; counted up to 1,000, which means 1,000 or more."),
		func(w admin.Webhook, _ time.Time) float64 { return float64(w.Owed) },
	},
	{
		ofWebhook("owed_seconds", "Age of the oldest of these events; 0 if there is none."),
		func(w admin.Webhook, now time.Time) float64 { return secondsSince(w.OldestOwed, now) },
	},
	{
		ofWebhook("failing_seconds", "How long every request has failed; 0 while the endpoint works."),
		func(w admin.Webhook, now time.Time) float64 { return secondsSince(w.FailingSince, now) },
	},
	{
		ofWebhook("disabled", "Whether the webhook is disabled."),
		func(w admin.Webhook, _ time.Time) float64 { return boolValue(w.State == "disabled") },
	},
}

func ofWebhook(name, help string) Metric {
	return Metric{"posthorn_webhook_" + name, help, Gauge, []string{"webhook"}}
}

// ofWebhooks returns the metrics of the webhooks.
func ofWebhooks(webhooks []admin.Webhook, now time.Time) []Family {
	families := make([]Family, len(webhookMetrics))
	for n, m := range webhookMetrics {
		families[n].Metric = m.Metric
		for _, w := range webhooks {
			families[n].Add(Sample{Value: m.value(w, now)}, w.Name)
		}
	}
	return families
}

func secondsSince(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

func oldestPending(g admin.GroupStatus) float64 {
	if g.OldestPending.IsZero() {
		return math.NaN()
	}
	return float64(g.OldestPending.UnixMicro()) / 1e6
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// handlerMetrics are the counters of a handler.
var handlerMetrics = []struct {
	Metric
	value func(posthorn.HandlerStats) int64
}{
	{
		ofHandler(Counter, "events_total", "Events that the handler was called for; each attempt counts."),
		func(h posthorn.HandlerStats) int64 { return h.Events },
	},
	{
		ofHandler(Counter, "failures_total", "Events that the handler has failed."),
		func(h posthorn.HandlerStats) int64 { return h.Failed },
	},
	{
		ofHandler(Counter, "dead_letters_total", "Events that became dead letters when the handler failed them."),
		func(h posthorn.HandlerStats) int64 { return h.DeadLetters },
	},
}

// ofDatabase returns the metrics of the groups. reached is false if the database
// could not be read.
func ofDatabase(groups []admin.GroupStatus, reached bool) []Family {
	reachable, oldest := Family{Metric: up}, Family{Metric: oldestTransaction}
	reachable.Add(Sample{Value: boolValue(reached)})
	if len(groups) > 0 { // all groups have the same value
		oldest.Add(Sample{Value: groups[0].HeldForSeconds}, groups[0].HeldByApplication)
	}
	families := []Family{reachable, oldest}
	for _, m := range groupMetrics {
		f := Family{Metric: m.Metric}
		for _, g := range groups {
			if value := m.value(g); !math.IsNaN(value) {
				f.Add(Sample{Value: value}, g.Group)
			}
		}
		families = append(families, f)
	}
	return families
}

// ofProcess returns the counters of this process.
func ofProcess(stats []posthorn.GroupStats) []Family {
	leases, calls := Family{Metric: leasesLost}, Family{Metric: duration}
	counters := make([]Family, len(handlerMetrics))
	for i, m := range handlerMetrics {
		counters[i].Metric = m.Metric
	}
	for _, g := range stats {
		leases.Add(Sample{Value: float64(g.LeasesLost)}, g.Group)
		for _, h := range g.Handlers {
			for i, m := range handlerMetrics {
				counters[i].Add(Sample{Value: float64(m.value(h))}, g.Group, h.Handler)
			}
			calls.Add(callsOf(h), g.Group, h.Handler)
		}
	}
	return append(counters, leases, calls)
}

func callsOf(h posthorn.HandlerStats) Sample {
	s := Sample{Value: h.Busy.Seconds(), Count: uint64(h.Calls)}
	for _, l := range h.Latencies {
		s.Buckets = append(s.Buckets, Bucket{l.UpTo.Seconds(), uint64(l.Calls)})
	}
	return s
}

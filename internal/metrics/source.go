package metrics

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/posthorn/posthorn"
)

// Timeout is how long to ask a database when nobody says otherwise: less than
// Prometheus waits for a scrape, or all of it would be lost.
const Timeout = 5 * time.Second

// Source is what there is to ask.
type Source struct {
	Namespace string
	Groups    func(ctx context.Context) ([]posthorn.GroupStatus, error) // asks the database
	Imports   func(ctx context.Context) ([]posthorn.ImportStatus, error)
	Stats     func() []posthorn.GroupStats // asks nobody
	Timeout   time.Duration                // of asking the database
	Logger    *slog.Logger
}

// Collect asks. When the database cannot be asked, posthorn_up is 0, and the
// metrics of groups have no samples.
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
	for i := range families {
		families[i].Namespace = s.Namespace
	}
	return families
}

// Metrics are all that a source is asked for.
func Metrics() []Metric {
	var all []Metric
	for _, f := range slices.Concat(ofProcess(nil), ofDatabase(nil, false), ofImports(nil)) {
		all = append(all, f.Metric)
	}
	return all
}

var (
	up   = Metric{Name: "posthorn_up", Help: "Whether the database could be asked where the groups stand.", Kind: Gauge}
	held = Metric{
		Name: "posthorn_log_held_seconds", Help: "Age of the oldest open transaction, behind which events may wait; 0 without any.",
		Kind: Gauge, Labels: []string{"application"},
	}
	lost = Metric{
		Name: "posthorn_leases_lost_total", Help: "Leases that others took over while this process worked on them.",
		Kind: Counter, Labels: []string{"group"},
	}
	duration = ofHandler(Histogram, "duration_seconds", "How long calls of the handler took; a batch is one call.")
)

func ofGroup(name, help string) Metric {
	return Metric{"posthorn_group_" + name, help, Gauge, []string{"group"}}
}

func ofHandler(kind Kind, name, help string) Metric {
	return Metric{"posthorn_handler_" + name, help, kind, []string{"group", "handler"}}
}

// groupMetrics say where a group stands. NaN is no sample.
var groupMetrics = []struct {
	Metric
	value func(posthorn.GroupStatus) float64
}{
	{
		ofGroup("lag_events", "Events that the group has not been handed yet; an estimate beyond 10,000."),
		func(g posthorn.GroupStatus) float64 { return float64(g.LagEvents) },
	},
	{
		ofGroup("lag_seconds", "Age of the oldest event that the group has not been handed yet."),
		func(g posthorn.GroupStatus) float64 { return g.LagSeconds },
	},
	{ofGroup("oldest_pending_timestamp_seconds", "When that event was published; missing without any."), oldestPending},
	{
		ofGroup("leases_in_flight", "Leases that are being worked on."),
		func(g posthorn.GroupStatus) float64 { return float64(g.Leases) },
	},
	{
		ofGroup("leases_expired", "Leases past their deadline that nobody has taken over yet."),
		func(g posthorn.GroupStatus) float64 { return float64(g.ExpiredLeases) },
	},
	{
		ofGroup("retries", "Events that have failed and are tried again."),
		func(g posthorn.GroupStatus) float64 { return float64(g.Retries) },
	},
	{
		ofGroup("blocked_slots", "Slots of an ordered group that wait for a retry."),
		func(g posthorn.GroupStatus) float64 { return float64(g.BlockedSlots) },
	},
	{
		ofGroup("dead_letters", "Events that have failed for good."),
		func(g posthorn.GroupStatus) float64 { return float64(g.DeadLetters) },
	},
	{ofGroup("paused", "Whether the group is paused."), func(g posthorn.GroupStatus) float64 { return truth(g.Paused) }},
}

// importMetrics say where an import stands. NaN is no sample: how much a broker has
// left is known when it was asked.
var importMetrics = []struct {
	Metric
	value func(posthorn.ImportStatus) float64
}{
	{
		ofImport("lag_events", "Entries that the broker had left when it was asked last; missing until it was."),
		func(i posthorn.ImportStatus) float64 {
			if i.LagEvents == nil {
				return math.NaN()
			}
			return float64(*i.LagEvents)
		},
	},
	{
		ofImport("lag_seconds", "How long the broker has had the first of them."),
		func(i posthorn.ImportStatus) float64 {
			if i.LagSeconds == nil {
				return math.NaN()
			}
			return *i.LagSeconds
		},
	},
	{
		ofImport("looked_timestamp_seconds", "When the broker was asked last how much it had left."),
		func(i posthorn.ImportStatus) float64 {
			if i.LookedAt == nil {
				return math.NaN()
			}
			return float64(i.LookedAt.UnixMicro()) / 1e6
		},
	},
	{ofImport("running", "Whether a process runs the import."), func(i posthorn.ImportStatus) float64 { return truth(i.Owner != "") }},
	{ofImport("failing", "Whether an error keeps the import, or one of its streams, from going on."), func(i posthorn.ImportStatus) float64 { return truth(i.Error != "") }},
	{
		ofImport("trimmed_streams", "Streams from which the broker removed events in the last week before they were imported."),
		func(i posthorn.ImportStatus) float64 { return float64(len(i.Trimmed)) },
	},
}

func ofImport(name, help string) Metric {
	return Metric{"posthorn_import_" + name, help, Gauge, []string{"import"}}
}

// ofImports shows where the imports stand.
func ofImports(imports []posthorn.ImportStatus) []Family {
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

func oldestPending(g posthorn.GroupStatus) float64 {
	if g.OldestPending == nil {
		return math.NaN()
	}
	return float64(g.OldestPending.UnixMicro()) / 1e6
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// handlerMetrics say what a handler has done.
var handlerMetrics = []struct {
	Metric
	value func(posthorn.HandlerStats) int64
}{
	{
		ofHandler(Counter, "events_total", "Attempts: events that the handler was called for."),
		func(h posthorn.HandlerStats) int64 { return h.Events },
	},
	{
		ofHandler(Counter, "failures_total", "Events that the handler has failed."),
		func(h posthorn.HandlerStats) int64 { return h.Failed },
	},
	{
		ofHandler(Counter, "dead_letters_total", "Events that became dead letters when the handler failed them."),
		func(h posthorn.HandlerStats) int64 { return h.Dead },
	},
}

// ofDatabase shows where the groups stand.
func ofDatabase(groups []posthorn.GroupStatus, reached bool) []Family {
	reachable, oldest := Family{Metric: up}, Family{Metric: held}
	reachable.Add(Sample{Value: truth(reached)})
	if len(groups) > 0 { // the same for all
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

// ofProcess shows what this process has done.
func ofProcess(stats []posthorn.GroupStats) []Family {
	leases, calls := Family{Metric: lost}, Family{Metric: duration}
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
	for _, w := range h.Within {
		s.Buckets = append(s.Buckets, Bucket{w.Time.Seconds(), uint64(w.Calls)})
	}
	return s
}

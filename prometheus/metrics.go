package phprometheus

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthorn/posthorn"
)

// metrics are the descriptions of all that is collected.
type metrics struct {
	up, held                                      *prometheus.Desc
	lagEvents, lagSeconds, oldest                 *prometheus.Desc
	leases, expired, retries, blocked, dead, rest *prometheus.Desc

	lost                               *prometheus.Desc
	events, failures, buried, duration *prometheus.Desc
}

func newMetrics(namespace string) metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("posthorn_"+name, help, labels, prometheus.Labels{"namespace": namespace})
	}
	ofGroup := func(name, help string) *prometheus.Desc { return desc(name, help, "group") }
	ofHandler := func(name, help string) *prometheus.Desc { return desc(name, help, "group", "handler") }
	return metrics{
		up:   desc("up", "Whether the database could be asked where the groups stand."),
		held: desc("log_held_seconds", "Age of the oldest open transaction, behind which events may wait; 0 without any.", "application"),

		lagEvents:  ofGroup("group_lag_events", "Events that the group has not been handed yet; an estimate beyond 10,000."),
		lagSeconds: ofGroup("group_lag_seconds", "Age of the oldest event that the group has not been handed yet."),
		oldest:     ofGroup("group_oldest_pending_timestamp_seconds", "When that event was published; missing without any."),
		leases:     ofGroup("group_leases_in_flight", "Leases that are being worked on."),
		expired:    ofGroup("group_leases_expired", "Leases past their deadline that nobody has taken over yet."),
		retries:    ofGroup("group_retries", "Events that have failed and are tried again."),
		blocked:    ofGroup("group_blocked_slots", "Slots of an ordered group that wait for a retry."),
		dead:       ofGroup("group_dead_letters", "Events that have failed for good."),
		rest:       ofGroup("group_paused", "Whether the group is paused."),

		lost:     ofGroup("leases_lost_total", "Leases that others took over while this process worked on them."),
		events:   ofHandler("handler_events_total", "Attempts: events that the handler was called for."),
		failures: ofHandler("handler_failures_total", "Events that the handler has failed."),
		buried:   ofHandler("handler_dead_letters_total", "Events that became dead letters when the handler failed them."),
		duration: ofHandler("handler_duration_seconds", "How long calls of the handler took; a batch is one call."),
	}
}

func (m *metrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.up, m.held, m.lagEvents, m.lagSeconds, m.oldest, m.leases, m.expired, m.retries, m.blocked, m.dead, m.rest,
		m.lost, m.events, m.failures, m.buried, m.duration,
	} {
		out <- d
	}
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, value int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// database shows where the groups stand.
func (m *metrics) database(out chan<- prometheus.Metric, groups []posthorn.GroupStatus, up bool) {
	gauge(out, m.up, truth(up))
	for _, g := range groups {
		gauge(out, m.lagEvents, float64(g.LagEvents), g.Group)
		gauge(out, m.lagSeconds, g.LagSeconds, g.Group)
		if g.OldestPending != nil {
			gauge(out, m.oldest, float64(g.OldestPending.UnixMicro())/1e6, g.Group)
		}
		gauge(out, m.leases, float64(g.Leases), g.Group)
		gauge(out, m.expired, float64(g.ExpiredLeases), g.Group)
		gauge(out, m.retries, float64(g.Retries), g.Group)
		gauge(out, m.blocked, float64(g.BlockedSlots), g.Group)
		gauge(out, m.dead, float64(g.DeadLetters), g.Group)
		gauge(out, m.rest, truth(g.Paused), g.Group)
	}
	if len(groups) > 0 { // the same for all
		gauge(out, m.held, groups[0].HeldForSeconds, groups[0].HeldByApplication)
	}
}

// process shows what this process has done for a group.
func (m *metrics) process(out chan<- prometheus.Metric, g posthorn.GroupStats) {
	group := strings.ToValidUTF8(g.Group, "\uFFFD") // names that only Go has seen may be anything
	counter(out, m.lost, g.LeasesLost, group)
	for _, h := range g.Handlers {
		handler := strings.ToValidUTF8(h.Handler, "\uFFFD")
		counter(out, m.events, h.Events, group, handler)
		counter(out, m.failures, h.Failed, group, handler)
		counter(out, m.buried, h.Dead, group, handler)
		buckets := make(map[float64]uint64, len(h.Within))
		for _, w := range h.Within {
			buckets[w.Time.Seconds()] = uint64(w.Calls)
		}
		out <- prometheus.MustNewConstHistogram(m.duration, uint64(h.Calls), h.Busy.Seconds(), buckets, group, handler)
	}
}

package phprometheus_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
	phprometheus "github.com/posthorn/posthorn/prometheus"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

var quiet = phprometheus.Config{Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}

func registry(t *testing.T, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// expect compares the metrics with the given names, and ignores all others.
func expect(t *testing.T, r *prometheus.Registry, want string, names ...string) {
	t.Helper()
	var text strings.Builder
	for line := range strings.SplitSeq(want, "\n") {
		text.WriteString(strings.TrimSpace(line) + "\n")
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(text.String()), names...); err != nil {
		t.Error(err)
	}
}

// value returns the value of a metric with a single sample, or -1 if there is none.
func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// label returns the value of a label of a metric with a single sample.
func label(t *testing.T, r *prometheus.Registry, name, label string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			if f.GetName() == name && l.GetName() == label {
				return l.GetValue()
			}
		}
	}
	return ""
}

// seed 000.69, 002.17
func TestCollector(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	g := ph.Group("billing", posthorn.GroupConfig{Delays: []time.Duration{time.Hour}})
	g.Handle("charge", "order.*", func(_ context.Context, e posthorn.Event) error {
		switch e.Type {
		case "order.declined":
			return errors.New("card declined")
		case "order.broken":
			return posthorn.Permanent(errors.New("no such card"))
		}
		return nil
	})
	r := registry(t, phprometheus.NewCollector(ph, quiet))
	stop := posthorntest.Run(t, ph)
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"}, posthorn.Message{Type: "order.placed"},
		posthorn.Message{Type: "order.declined"}, posthorn.Message{Type: "order.broken"})
	posthorntest.Drain(t, ph)
	stop()
	expect(t, r, `
		# HELP posthorn_group_dead_letters Events that have failed for good.
		# TYPE posthorn_group_dead_letters gauge
		posthorn_group_dead_letters{group="billing",namespace="default"} 1
		# HELP posthorn_group_lag_events Events that the group has not been handed yet; an estimate beyond 10,000.
		# TYPE posthorn_group_lag_events gauge
		posthorn_group_lag_events{group="billing",namespace="default"} 0
		# HELP posthorn_group_leases_in_flight Leases that are being worked on.
		# TYPE posthorn_group_leases_in_flight gauge
		posthorn_group_leases_in_flight{group="billing",namespace="default"} 0
		# HELP posthorn_group_paused Whether the group is paused.
		# TYPE posthorn_group_paused gauge
		posthorn_group_paused{group="billing",namespace="default"} 0
		# HELP posthorn_group_retries Events that have failed and will be retried.
		# TYPE posthorn_group_retries gauge
		posthorn_group_retries{group="billing",namespace="default"} 1
		# HELP posthorn_handler_dead_letters_total Events that became dead letters when the handler failed them.
		# TYPE posthorn_handler_dead_letters_total counter
		posthorn_handler_dead_letters_total{group="billing",handler="charge",namespace="default"} 1
		# HELP posthorn_handler_events_total Events that the handler was called for; each attempt counts.
		# TYPE posthorn_handler_events_total counter
		posthorn_handler_events_total{group="billing",handler="charge",namespace="default"} 4
		# HELP posthorn_handler_failures_total Events that the handler has failed.
		# TYPE posthorn_handler_failures_total counter
		posthorn_handler_failures_total{group="billing",handler="charge",namespace="default"} 2
		# HELP posthorn_leases_lost_total Leases that another worker took over while this process worked on them.
		# TYPE posthorn_leases_lost_total counter
		posthorn_leases_lost_total{group="billing",namespace="default"} 0
		# HELP posthorn_up Whether the status of the groups could be read from the database.
		# TYPE posthorn_up gauge
		posthorn_up{namespace="default"} 1
	`, "posthorn_group_dead_letters", "posthorn_group_lag_events", "posthorn_group_leases_in_flight", "posthorn_group_paused",
		"posthorn_group_retries", "posthorn_handler_dead_letters_total", "posthorn_handler_events_total",
		"posthorn_handler_failures_total", "posthorn_leases_lost_total", "posthorn_up")
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "posthorn_handler_duration_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != 4 || h.GetSampleSum() <= 0 || len(h.GetBucket()) < 10 {
				t.Errorf("duration: %v", h)
			}
		}
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// Events of a paused group count as lag, and posthorn_log_held_seconds names the
// application with the oldest transaction.
func TestGroupCollector(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{Namespace: "shop"})
	ph.Group("billing", posthorn.GroupConfig{}).Handle("charge", ">", func(context.Context, posthorn.Event) error { return nil })
	posthorntest.Run(t, ph)()
	if err := ph.Admin().PauseGroup(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	posthorntest.Publish(t, ph, posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"})
	other := posthorntest.Open(t, posthorn.Config{Pool: ph.Pool(), Namespace: "shop"})
	r := registry(t, phprometheus.NewGroupCollector(other.Pool(), "shop", quiet), phprometheus.NewGroupCollector(other.Pool(), "default", quiet))
	expect(t, r, `
		# HELP posthorn_group_lag_events Events that the group has not been handed yet; an estimate beyond 10,000.
		# TYPE posthorn_group_lag_events gauge
		posthorn_group_lag_events{group="billing",namespace="shop"} 2
		# HELP posthorn_group_paused Whether the group is paused.
		# TYPE posthorn_group_paused gauge
		posthorn_group_paused{group="billing",namespace="shop"} 1
	`, "posthorn_group_lag_events", "posthorn_group_paused")
	oldest := posthorntest.Published(t, ph, "a")[0].PublishedAt
	if got := value(t, r, "posthorn_group_oldest_pending_timestamp_seconds"); int64(got) != oldest.Unix() {
		t.Errorf("oldest %f, want %d", got, oldest.Unix())
	}

	holder, err := pgx.ConnectConfig(t.Context(), ph.Pool().Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	if _, err := holder.Exec(t.Context(), "set application_name = holder; begin; select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	// Tests in other databases of the server may hold older transactions for a while.
	await.True(t, "the metric names the holder's transaction", func() bool {
		return value(t, r, "posthorn_log_held_seconds") > 0 && label(t, r, "posthorn_log_held_seconds", "application") == "holder"
	})
}

// A scrape without a database has the counters of the process.
func TestScrapeWithoutDatabase(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	ph.Group("billing", posthorn.GroupConfig{}).Handle("charge\xff", ">", func(context.Context, posthorn.Event) error { return nil })
	var log strings.Builder
	r := registry(t, phprometheus.NewCollector(ph, phprometheus.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	ph.Close()
	expect(t, r, `
		# HELP posthorn_handler_events_total Events that the handler was called for; each attempt counts.
		# TYPE posthorn_handler_events_total counter
		posthorn_handler_events_total{group="billing",handler="charge`+"\uFFFD"+`",namespace="default"} 0
		# HELP posthorn_up Whether the status of the groups could be read from the database.
		# TYPE posthorn_up gauge
		posthorn_up{namespace="default"} 0
	`, "posthorn_handler_events_total", "posthorn_up")
	if !strings.Contains(log.String(), "cannot collect the metrics of groups") {
		t.Errorf("log: %s", log.String())
	}
}

// A database that does not answer delays a scrape by the timeout at most.
func TestScrapeTimeout(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	testpg.Lock(t, ph.Pool(), "groups")
	config := quiet
	config.Timeout = 50 * time.Millisecond
	if up := value(t, registry(t, phprometheus.NewCollector(ph, config)), "posthorn_up"); up != 0 {
		t.Errorf("up is %v", up)
	}
}

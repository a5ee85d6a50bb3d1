package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/testcost"
	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/posthorntest"
)

// A test's worker processes are this program too.
func TestMain(m *testing.M) {
	if encoded := os.Getenv(workerVariable); encoded != "" {
		if err := runWorker(encoded, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// Every side checks that it did all of its work, and fails otherwise. The speed is
// not tested. make test takes the rows of -quick.
func TestEveryRowDoesItsWork(t *testing.T) {
	t.Parallel()
	o := options{
		databaseURL: posthorntest.ServerURL(t), rows: regexp.MustCompile(testsize.Of(quickRows, "")),
		events: 1000, logEvents: 1000, logGroups: 20, jobs: 5000, rounds: 1, held: 50 * time.Millisecond,
		sustain: 100 * time.Millisecond, lease: time.Second,
	}
	wanted := slices.DeleteFunc(rows(o), func(r row) bool { return !o.rows.MatchString(r.work) })
	r := mustMeasure(t, o)
	if len(r.Results) != len(wanted) {
		t.Errorf("%d results of %d rows", len(r.Results), len(wanted))
	}
	_, err := exec.LookPath("npm")
	withoutNode := err != nil // rows beside graphile-worker and pg-boss are skipped
	for _, result := range r.Results {
		if result.Skipped == "" && len(result.Ratios) != o.rounds {
			t.Errorf("%s: %d ratios of %d rounds", result.Work, len(result.Ratios), o.rounds)
		}
		if result.Skipped != "" && !strings.Contains(result.Work, "PgQ") && !withoutNode && !strings.Contains(result.Skipped, "Kafka or Java is not installed") {
			t.Errorf("%s was skipped: %s", result.Work, result.Skipped)
		}
	}
}

func TestOnlyTheRowsAskedFor(t *testing.T) {
	t.Parallel()
	o := options{
		databaseURL: posthorntest.ServerURL(t), rows: regexp.MustCompile("^publish, one"),
		events: 1000, rounds: 1,
	}
	r := mustMeasure(t, o)
	if len(r.Results) != 1 || r.Results[0].Work != "publish, one per commit, 16 connections" {
		t.Errorf("measured %v", r.Results)
	}
}

func mustMeasure(t *testing.T, o options) *report {
	t.Helper()
	s, err := openServer(t.Context(), o, serverSettings, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	testcost.Database(t, "posthorn_bench_"+s.token)
	r, err := measureAll(t.Context(), s, o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	higher := row{floor: atLeast(0.7), target: atLeast(0.9)}
	lower := row{floor: atMost(1.5)}
	for _, test := range []struct {
		row   row
		ratio float64
		want  string
	}{
		{higher, 0.69, "floor missed"},
		{higher, 0.7, "floor met, target missed"},
		{higher, 0.9, "target met"},
		{lower, 1.5, "floor met"},
		{lower, 1.6, "floor missed"},
		{row{target: atLeast(1)}, 0.9, "target missed"},
		{row{floor: within(3), target: within(1)}, 1.5, "floor met, target missed"},
		{row{}, 0.9, ""},
	} {
		r := result{row: test.row, rounds: []round{{test.ratio, 1}}}
		if r.sum(); r.Verdict != test.want {
			t.Errorf("%.2f held against %v, %v: %q, want %q", test.ratio, test.row.floor, test.row.target, r.Verdict, test.want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	one := result{
		row: row{floor: atLeast(0.7)}, Work: "publish", Ours: "publish_batch", Peer: "INSERT", Unit: "/s",
		Floor: "≥ 0.7 ×", Target: "–", rounds: []round{{160_000, 200_000}, {150_000, 200_000}, {1_180_000, 2_000_000}},
	}
	one.sum()
	alone := result{
		row: row{floor: within(3)}, Work: "latency", Ours: "publish to Handle", Unit: " ms",
		Floor: within(3).String(), Target: "–", rounds: []round{{0.82, 1}, {1.5, 1}, {12, 1}},
	}
	alone.sum()
	var out strings.Builder
	(&report{Results: []result{one, alone}}).markdown(&out)
	want := "| publish | ≥ 0.7 × | – | 0.75 (0.59–0.80) | floor met; noise decides | 160,000/s | 200,000/s | publish_batch / INSERT |\n" +
		"| latency | ≤ 3 ms | – | – | floor met; noise decides | 1.50 ms (0.82–12) | – | publish to Handle |\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s\nwant the end %s", out.String(), want)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(200 - i)
	}
	if half, most, one := percentile(values, 50), percentile(values, 99), percentile(values[:1], 99); half != 100 || most != 198 || one != 200 {
		t.Errorf("%v, %v, %v", half, most, one)
	}
}

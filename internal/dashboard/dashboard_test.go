package dashboard

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/internal/metrics"
)

//go:generate go test -run ^TestFiles$ . -update
var update = flag.Bool("update", false, "write the files in deploy")

// The files in deploy are those that this package makes.
func TestFiles(t *testing.T) {
	t.Parallel()
	board, err := Grafana()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"grafana.json": board, "alerts.yml": Alerts()} {
		path := filepath.Join("..", "..", "deploy", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("deploy/%s is stale; run make generate (-want +got):\n%s", name, diff)
		}
	}
}

var metricName = regexp.MustCompile(`posthorn_[a-z_]+`)

// Every metric that a rule or a panel names is one that the server shows, and every
// metric has a panel.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, m := range All() {
		known[m.Name] = true
		if m.Kind == metrics.Histogram {
			known[m.Name+"_bucket"] = true
		}
	}
	board, err := Grafana()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metricName.FindAllString(string(Alerts())+string(board), -1) {
		if !known[name] {
			t.Errorf("%s is no metric", name)
		}
	}
	for _, m := range All() {
		if !strings.Contains(string(board), `"title": "`+m.Name+`"`) {
			t.Errorf("%s has no panel", m.Name)
		}
	}
}

// Prometheus' own checker accepts the rules.
func TestPrometheusAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "../../deploy/alerts.yml").CombinedOutput()
	if err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

package dashboard

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/metrics"
	"github.com/posthorn/posthorn/internal/test/testgolden"
)

//go:generate go test -run ^TestFiles$ . -update

// The files in deploy are those that this package makes.
func TestFiles(t *testing.T) {
	t.Parallel()
	board, err := Grafana()
	if err != nil {
		t.Fatal(err)
	}
	testgolden.Check(t, filepath.Join("..", "..", "deploy", "grafana.json"), string(board))
	testgolden.Check(t, filepath.Join("..", "..", "deploy", "alerts.yml"), string(Alerts()))
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

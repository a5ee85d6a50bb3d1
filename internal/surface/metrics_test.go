package surface

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/dashboard"
	"github.com/posthorn/posthorn/internal/test/testgolden"
)

// The metrics of Prometheus: name, type, labels.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, m := range dashboard.All() {
		labels := m.Labels
		if !strings.HasPrefix(m.Name, "posthorn_http_") { // those are of the server, for all namespaces
			labels = append(slices.Clone(labels), "namespace")
			slices.Sort(labels)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", m.Name, m.Kind, strings.Join(labels, ",")))
	}
	slices.Sort(lines)
	testgolden.Check(t, "testdata/metrics.txt", strings.ReplaceAll(strings.Join(lines, "\n")+"\n", " \n", "\n"))
}

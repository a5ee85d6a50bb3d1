package phprometheus_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/posthorntest"
	phprometheus "github.com/posthorn/posthorn/prometheus"
)

var ph *posthorn.Client

func Example() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(phprometheus.NewCollector(ph, phprometheus.Config{}))
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

// A user with the rights that the guide names gets all metrics.
func TestExample(t *testing.T) {
	user := testguide.NewUser(t, posthorntest.Database(t))
	user.Exec("select posthorn.define_group('default', 'billing')")
	for _, e := range testguide.Examples(t, "../docs/observe.md") {
		if strings.Contains(e.Text, "NewCollector") {
			ph = posthorntest.Open(t, posthorn.Config{DatabaseURL: user.With(e.Needs)})
		}
	}
	Example()
	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{"posthorn_up{namespace=\"default\"} 1\n", "posthorn_group_lag_events{"} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("no %q in status %d and %s", want, answer.Code, answer.Body)
		}
	}
}

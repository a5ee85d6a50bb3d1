package phprometheus_test

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posthorn/posthorn"
	phprometheus "github.com/posthorn/posthorn/prometheus"
)

var ph *posthorn.Client

func Example() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(phprometheus.NewCollector(ph, phprometheus.Config{}))
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

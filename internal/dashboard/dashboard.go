// Package dashboard makes the Grafana dashboard and the Prometheus alert rules in
// folder deploy. The dashboard has a panel for each metric that package metrics
// defines, so it names no metric that a server does not show. The rules name their
// metrics themselves; a test compares the names with the definitions.
package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/internal/metrics"
)

// rows are the rows of the dashboard. A metric is in the first row whose prefix its
// name has.
var rows = []struct{ title, prefix string }{
	{"Groups", "posthorn_group_"},
	{"Handlers", "posthorn_handler_"},
	{"Imports", "posthorn_import_"},
	{"Webhooks", "posthorn_webhook_"},
	{"Jobs", "posthorn_jobs"},
	{"HTTP", "posthorn_http_"},
	{"Database and leases", "posthorn_"},
}

// All returns the definitions of all metrics of a server.
func All() []metrics.Metric { return slices.Concat(metrics.Metrics(), metrics.HTTP()) }

type (
	board struct {
		Title         string         `json:"title"`
		UID           string         `json:"uid"`
		Tags          []string       `json:"tags"`
		Editable      bool           `json:"editable"`
		Refresh       string         `json:"refresh"`
		SchemaVersion int            `json:"schemaVersion"`
		Time          map[string]any `json:"time"`
		Templating    map[string]any `json:"templating"`
		Panels        []panel        `json:"panels"`
	}
	panel struct {
		ID          int               `json:"id"`
		Type        string            `json:"type"`
		Title       string            `json:"title"`
		Description string            `json:"description,omitempty"`
		GridPos     gridPos           `json:"gridPos"`
		Datasource  map[string]string `json:"datasource,omitempty"`
		FieldConfig map[string]any    `json:"fieldConfig,omitempty"`
		Targets     []target          `json:"targets,omitempty"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	target struct {
		RefID  string `json:"refId"`
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	}
)

const (
	panelsPerRow = 3
	panelHeight  = 7
	panelWidth   = 24 / panelsPerRow
)

var source = map[string]string{"type": "prometheus", "uid": "${datasource}"}

// Grafana returns the dashboard as JSON, in the form that Grafana imports.
func Grafana() ([]byte, error) {
	b := board{
		Title: "Posthorn", UID: "posthorn", Tags: []string{"posthorn"}, Editable: true, Refresh: "30s", SchemaVersion: 39,
		Time: map[string]any{"from": "now-1h", "to": "now"},
		Templating: map[string]any{"list": []map[string]any{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			{
				"name": "namespace", "label": "Namespace", "type": "query", "datasource": source,
				"query": "label_values(posthorn_up, namespace)", "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*",
				"current": map[string]any{"text": "All", "value": "$__all"},
			},
		}},
	}
	left := All()
	y := 0
	for _, row := range rows {
		var members []metrics.Metric
		left = slices.DeleteFunc(left, func(m metrics.Metric) bool {
			member := strings.HasPrefix(m.Name, row.prefix)
			if member {
				members = append(members, m)
			}
			return member
		})
		b.Panels = append(b.Panels, panel{ID: len(b.Panels) + 1, Type: "row", Title: row.title, GridPos: gridPos{1, 24, 0, y}})
		y++
		for i, m := range members {
			at := gridPos{panelHeight, panelWidth, i % panelsPerRow * panelWidth, y + i/panelsPerRow*panelHeight}
			b.Panels = append(b.Panels, metricPanel(len(b.Panels)+1, m, at))
		}
		y += (len(members) + panelsPerRow - 1) / panelsPerRow * panelHeight
	}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

func metricPanel(id int, m metrics.Metric, at gridPos) panel {
	return panel{
		ID: id, Type: "timeseries", Title: m.Name, Description: m.Help, GridPos: at, Datasource: source,
		FieldConfig: map[string]any{"defaults": map[string]any{"unit": unit(m), "min": 0}, "overrides": []any{}},
		Targets:     []target{{RefID: "A", Expr: expression(m), Legend: legend(m)}},
	}
}

// expression is the query of a metric's panel. Every process shows the same values of
// gauges that come from the database, hence max; counters belong to a process, hence
// sum.
func expression(m metrics.Metric) string {
	labels, filter := labelsOf(m), `{namespace=~"$namespace"}`
	if isHTTP(m) {
		filter = ""
	}
	by := strings.Join(labels, ", ")
	switch {
	case m.Kind == metrics.Counter:
		return fmt.Sprintf(`sum by (%s) (rate(%s%s[$__rate_interval]))`, by, m.Name, filter)
	case m.Kind == metrics.Histogram:
		by = strings.Join(append(labels, "le"), ", ")
		return fmt.Sprintf(`histogram_quantile(0.99, sum by (%s) (rate(%s_bucket%s[$__rate_interval])))`, by, m.Name, filter)
	case len(labels) == 0:
		return fmt.Sprintf(`max(%s%s)`, m.Name, filter)
	case unit(m) == "dateTimeFromNow":
		return fmt.Sprintf(`max by (%s) (%s%s) * 1000`, by, m.Name, filter) // Grafana counts milliseconds
	default:
		return fmt.Sprintf(`max by (%s) (%s%s)`, by, m.Name, filter)
	}
}

func legend(m metrics.Metric) string {
	var parts []string
	for _, label := range labelsOf(m) {
		parts = append(parts, "{{"+label+"}}")
	}
	return strings.Join(parts, " ")
}

// labelsOf returns the labels of a metric. The metrics of the HTTP server have no
// namespace.
func labelsOf(m metrics.Metric) []string {
	if isHTTP(m) {
		return slices.Clone(m.Labels)
	}
	return append([]string{"namespace"}, m.Labels...)
}

func isHTTP(m metrics.Metric) bool { return strings.HasPrefix(m.Name, "posthorn_http_") }

// unit is the unit of a panel, as Grafana names it.
func unit(m metrics.Metric) string {
	switch {
	case m.Kind == metrics.Counter:
		return "ops"
	case strings.HasSuffix(m.Name, "_timestamp_seconds"):
		return "dateTimeFromNow"
	case strings.HasSuffix(m.Name, "_seconds"):
		return "s"
	default:
		return "short"
	}
}

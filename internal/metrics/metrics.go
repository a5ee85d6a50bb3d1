// Package metrics defines the Prometheus metrics of a client, collects their
// values, and formats them as text.
//
// It does not depend on Prometheus' client library, which takes longer to compile
// than all of Posthorn. Package server serves the text. Package phprometheus passes
// the values to that library.
package metrics

import "strings"

// Kind is the type of a metric, as the text format spells it.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes a metric.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string // in alphabetical order, without "database" and "namespace"
}

// Family is a metric with its samples.
type Family struct {
	Metric
	Namespace string // an additional label of all samples, unless empty
	Database  string // likewise
	Samples   []Sample
}

// Sample is the value of a metric for one combination of label values.
type Sample struct {
	Labels []string // values, in the order of Metric.Labels
	Value  float64  // the sum, for a histogram

	Count   uint64   // for a histogram only
	Buckets []Bucket // for a histogram only, without the bucket +Inf
}

// Bucket is the number of observations that are less than or equal to the bound.
type Bucket struct {
	Bound float64
	Count uint64
}

// Add appends a sample with label values. Names of handlers may be invalid UTF-8,
// which Prometheus rejects, so Add replaces invalid bytes.
func (f *Family) Add(s Sample, labels ...string) {
	for _, label := range labels {
		s.Labels = append(s.Labels, strings.ToValidUTF8(label, "\uFFFD"))
	}
	f.Samples = append(f.Samples, s)
}

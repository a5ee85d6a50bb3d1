// Package metrics says what Prometheus is shown of a client: each metric once,
// its values, and the text that they are scraped as. It serves nothing and
// registers nowhere: server answers with the text, and package phprometheus hands
// the values to Prometheus' own client, which is more to compile than all of
// Posthorn.
package metrics

import "strings"

// Kind is what a metric is, in the word of the text format.
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
	Labels     []string // in the order of the alphabet, before "namespace"
}

// Family is a metric with its samples.
type Family struct {
	Metric
	Namespace string // one more label of all samples, unless it is empty
	Samples   []Sample
}

// Sample is a value, or the calls of a histogram, under the values of the labels.
type Sample struct {
	Labels []string
	Value  float64 // of a histogram the sum

	Count   uint64   // of a histogram
	Buckets []Bucket // of a histogram, without the infinite one
}

// Bucket counts what was not above the bound.
type Bucket struct {
	Bound float64
	Count uint64
}

// Add appends a sample. Names that only Go has seen may be anything; Prometheus
// wants UTF-8.
func (f *Family) Add(s Sample, labels ...string) {
	for _, label := range labels {
		s.Labels = append(s.Labels, strings.ToValidUTF8(label, "\uFFFD"))
	}
	f.Samples = append(f.Samples, s)
}

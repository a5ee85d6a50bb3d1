package metrics

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ContentType is the media type of [Text].
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Text formats families in the text format of Prometheus. Families are sorted by
// name, and samples by labels. A family without samples is left out. So is a second
// sample with the same labels, since Prometheus would reject the scrape. Families of several
// databases have one heading.
func Text(families []Family) []byte {
	var b []byte
	families = slices.DeleteFunc(slices.Clone(families), func(f Family) bool { return len(f.Samples) == 0 })
	slices.SortStableFunc(families, func(x, y Family) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Database, y.Database))
	})
	for i, f := range families {
		if i == 0 || families[i-1].Name != f.Name {
			b = f.appendHeading(b)
		}
		samples := slices.SortedStableFunc(slices.Values(f.Samples), compareLabels)
		for _, s := range slices.CompactFunc(samples, func(x, y Sample) bool { return compareLabels(x, y) == 0 }) {
			b = f.append(b, s)
		}
	}
	return b
}

func (f Family) appendHeading(b []byte) []byte {
	return append(b, "# HELP "+f.Name+" "+escapeHelp.Replace(f.Help)+"\n# TYPE "+f.Name+" "+string(f.Kind)+"\n"...)
}

func compareLabels(x, y Sample) int { return slices.Compare(x.Labels, y.Labels) }

func (f Family) append(b []byte, s Sample) []byte {
	labels := f.labels(s)
	if f.Kind != Histogram {
		return appendLine(b, f.Name, labels, s.Value)
	}
	for _, bucket := range append(s.Buckets[:len(s.Buckets):len(s.Buckets)], Bucket{math.Inf(1), s.Count}) {
		le := `le="` + string(appendFloat(nil, bucket.Bound)) + `"`
		b = appendLine(b, f.Name+"_bucket", append(labels[:len(labels):len(labels)], le), float64(bucket.Count))
	}
	b = appendLine(b, f.Name+"_sum", labels, s.Value)
	return appendLine(b, f.Name+"_count", labels, float64(s.Count))
}

func (f Family) labels(s Sample) []string {
	var pairs []string
	for i, name := range f.Labels {
		pairs = append(pairs, name+`="`+escapeLabel.Replace(s.Labels[i])+`"`)
	}
	for name, value := range map[string]string{"database": f.Database, "namespace": f.Namespace} {
		if value != "" {
			pairs = append(pairs, name+`="`+escapeLabel.Replace(value)+`"`)
		}
	}
	slices.Sort(pairs) // by name
	return pairs
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func appendLine(b []byte, name string, labels []string, value float64) []byte {
	b = append(b, name...)
	if len(labels) > 0 {
		b = append(b, "{"+strings.Join(labels, ",")+"}"...)
	}
	return append(appendFloat(append(b, ' '), value), '\n')
}

// appendFloat formats a value, including +Inf, -Inf and NaN, as Prometheus parses it.
func appendFloat(b []byte, value float64) []byte { return strconv.AppendFloat(b, value, 'g', -1, 64) }

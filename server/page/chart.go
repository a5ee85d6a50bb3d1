package page

import (
	"math"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// chart has a number for each interval of a period. The newest interval is the last.
type chart struct {
	ID, Name string
	Bad      bool // it counts failures
	Now      float64
	NowMost  float64 // of the line
	unit     unit
	span     span
	since    time.Time // where the first interval begins
	points   []float64
	line     []float64 // of times: within them were 95 of 100, and half within those of points
}

// span is a period that charts show.
type span struct {
	Name      string
	period    time.Duration
	intervals int
	every     time.Duration // the ticks of its time axis
}

// The periods that a person may choose. The first is the one of the page without a choice.
// A week has no more intervals than an hour, because SQL adds them up.
var spans = []span{
	{"hour", time.Hour, 60, 15 * time.Minute},
	{"day", 24 * time.Hour, 96, 6 * time.Hour},
	{"week", 7 * 24 * time.Hour, 84, 2 * 24 * time.Hour},
}

func (s span) width() time.Duration { return s.period / time.Duration(s.intervals) }

// span is the period that the parameter range names.
func (r *Request) span() (span, error) {
	name := r.Value("range")
	if name == "" {
		return spans[0], nil
	}
	if i := slices.IndexFunc(spans, func(s span) bool { return s.Name == name }); i >= 0 {
		return spans[i], nil
	}
	return span{}, invalid("there is no range "+name, "The ranges are hour, day and week.")
}

// spanLink leads to the same page with charts of another period.
type spanLink struct {
	Name, Link string
	Current    bool
}

// Spans are the periods to choose from.
func (r *Request) Spans() []spanLink {
	chosen, _ := r.span()
	var links []spanLink
	for i, s := range spans {
		name := s.Name
		if i == 0 {
			name = "" // the address without a choice
		}
		links = append(links, spanLink{s.Name, r.Same("range", name, "before", ""), s.Name == chosen.Name})
	}
	return links
}

// newChart makes a chart without numbers. Last is a time in its last interval.
func newChart(id, name string, s span, u unit, last time.Time) chart {
	since := last.Truncate(s.width()).Add(-time.Duration(s.intervals-1) * s.width())
	return chart{ID: id, Name: name, span: s, unit: u, since: since, points: make([]float64, s.intervals)}
}

// set sets the number of the interval that begins at a time.
func (c *chart) set(at time.Time, value float64) {
	if i := int(math.Round(float64(at.Sub(c.since)) / float64(c.span.width()))); i >= 0 && i < len(c.points) {
		c.points[i] = value
	}
}

// shortest is the part of the last interval that must be over before its rate says
// something.
const shortest = 0.25

// end sets the number that is shown as the present one. The last interval has only begun:
// if it is too short, the one before it stands for it.
func (c *chart) end(seconds float64) {
	last := len(c.points) - 1
	if seconds < shortest*c.span.width().Seconds() {
		c.points[last] = c.points[last-1]
	}
	c.Now = c.points[last]
}

// chartsOf makes the charts of the overview.
func chartsOf(s span, rates []admin.Rate, now time.Time) []chart {
	charts := []chart{
		newChart("published", "published", s, perSecond, now),
		newChart("handled", "handled, all groups", s, perSecond, now),
		newChart("failed", "failed attempts", s, perSecond, now),
	}
	for _, r := range rates {
		for i, n := range []float64{r.Published, r.Handled, r.Failed} {
			charts[i].set(r.At, n/math.Max(r.Seconds, 1))
		}
	}
	for i := range charts {
		charts[i].end(begun(charts[i].span, now))
	}
	charts[2].Bad = true
	return charts
}

// begun is the length of the interval that a time is in, until then.
func begun(s span, now time.Time) float64 { return now.Sub(now.Truncate(s.width())).Seconds() }

// groupCharts makes the charts of a group. Its numbers end with the last sample.
func groupCharts(s span, rates []admin.GroupRate) []chart {
	if len(rates) == 0 {
		return nil
	}
	last := rates[len(rates)-1]
	end := last.At.Add(time.Duration(last.Seconds * float64(time.Second)))
	lag, passed := newChart("behind", "behind", s, inSeconds, last.At), newChart("passed", "passed", s, perSecond, last.At)
	for _, r := range rates {
		lag.set(r.At, r.LagSeconds)
		passed.set(r.At, r.Passed/math.Max(r.Seconds, 1))
	}
	lag.Now = last.LagSeconds
	passed.end(end.Sub(last.At).Seconds())
	return []chart{lag, passed}
}

// jobCharts makes the charts of jobs: numbers per second, and times. They end with the last sample.
func jobCharts(s span, rates []admin.JobRate) (numbers, times []chart) {
	if len(rates) == 0 {
		return nil, nil
	}
	last := rates[len(rates)-1]
	for _, c := range []struct {
		name string
		of   func(admin.JobRate) float64
	}{
		{"enqueued", func(r admin.JobRate) float64 { return r.Enqueued }},
		{"completed", func(r admin.JobRate) float64 { return r.Completed }},
		{"failed", func(r admin.JobRate) float64 { return r.Failed }},
	} {
		numbers = append(numbers, newChart("jobs-"+c.name, c.name, s, perSecond, last.At))
		n := &numbers[len(numbers)-1]
		for _, r := range rates {
			n.set(r.At, c.of(r)/math.Max(r.Seconds, 1))
		}
		n.end(last.Seconds)
	}
	numbers[2].Bad, numbers[2].Name = true, "failed for good"
	times = []chart{newChart("jobs-waited", "waited for a worker", s, inSeconds, last.At), newChart("jobs-ran", "ran", s, inSeconds, last.At)}
	for i := range times {
		times[i].line = make([]float64, s.intervals)
	}
	for _, r := range rates {
		times[0].setTimes(r.At, r.WaitedP50, r.WaitedP95)
		times[1].setTimes(r.At, r.RanP50, r.RanP95)
	}
	return numbers, times
}

// setTimes sets the times of an interval, and the present ones if it is the last that has some.
func (c *chart) setTimes(at time.Time, half, most *float64) {
	if half == nil || most == nil {
		return
	}
	c.set(at, *half)
	upper := chart{span: c.span, since: c.since, points: c.line}
	upper.set(at, *most)
	c.Now, c.NowMost = *half, *most
}

// Alarms tells whether there are failures now, at least so many that their number is not rounded to nothing.
func (c chart) Alarms() bool { return c.Bad && c.Now >= leastRate }

// Most is the highest number.
func (c chart) Most() string { return c.unit.text(slices.Max(c.points)) }

// Last is the present number.
func (c chart) Last() string {
	if c.line != nil && c.NowMost == 0 {
		return "–"
	}
	return c.unit.text(c.Now)
}

// Aside is a text beside the present number.
func (c chart) Aside() string {
	if c.line == nil {
		return "at most " + c.Most()
	}
	if c.NowMost == 0 {
		return "no job"
	}
	return "half of them, 95 of 100 within " + c.unit.text(c.NowMost)
}

package page

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// The axis has round steps, at most three of them, and reaches beyond all numbers but spikes.
func TestScale(t *testing.T) {
	t.Parallel()
	steady := slices.Repeat([]float64{90, 110, 0}, 20)
	spiky := slices.Concat(steady, []float64{50_000})
	for name, c := range map[string]struct {
		points    []float64
		unit      unit
		top, step float64
		clips     bool
	}{
		"nothing":      {make([]float64, 60), perSecond, 1, 1, false},
		"steady":       {steady, perSecond, 150, 50, false},
		"a spike":      {spiky, perSecond, 150, 50, true},
		"one number":   {[]float64{0, 7, 0}, perSecond, 10, 5, false},
		"a fraction":   {[]float64{0.03}, perSecond, 0.03, 0.01, false},
		"milliseconds": {[]float64{0.13, 0.2}, inSeconds, 0.2, 0.1, false},
		"minutes":      {[]float64{200, 500}, inSeconds, 600, 300, false},
		"hours":        {[]float64{30_000}, inSeconds, 32_400, 10_800, false},
		"days":         {[]float64{86_400 * 12}, inSeconds, 86_400 * 15, 86_400 * 5, false},
	} {
		s := scaleOf(c.points, c.unit)
		if math.Abs(s.top-c.top) > 1e-6*c.top || math.Abs(s.step-c.step) > 1e-6*c.step || s.clips != c.clips {
			t.Errorf("%s: the scale is %+v, not up to %v by %v", name, s, c.top, c.step)
		}
		if ticks := s.ticks(); len(ticks) > 4 || ticks[0] != 0 || math.Abs(ticks[len(ticks)-1]-s.top) > 1e-6*s.top {
			t.Errorf("%s: the ticks are %v", name, ticks)
		}
	}
}

func TestTicksAreShort(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0/s", 0.05: "0.05/s", 20: "20/s", 1500: "1,500/s", 20_000: "20k/s", 1.5e6: "1.5M/s"} {
		if got := perSecond.tick(value); got != want {
			t.Errorf("%v is written %q, not %q", value, got, want)
		}
	}
	for value, want := range map[float64]string{0: "0 s", 0.005: "5 ms", 0.5: "500 ms", 2: "2 s", 30: "30 s", 600: "10 min", 21_600: "6 h"} {
		if got := inSeconds.tick(value); got != want {
			t.Errorf("%v is written %q, not %q", value, got, want)
		}
	}
}

// A spike does not flatten the rest: it is cut off, marked, and its number stands above it.
func TestChartMarksSpikes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	var rates []admin.Rate
	for i := range 60 {
		r := admin.Rate{At: now.Truncate(time.Minute).Add(-time.Duration(i) * time.Minute), Seconds: 60, Published: 6000}
		if i == 30 {
			r.Published = 6_000_000
		}
		rates = append(rates, r)
	}
	rates[0].Seconds, rates[0].Published = 30, 3000
	chart := chartsOf(spans[0], rates, now)[0]
	svg := string(chart.SVG())
	for _, want := range []string{`class="bar over"`, `class="over"`, ">100k/s</text>", ">150/s</text>", ">11:45 UTC</text>", `data-at="2026-03-01T11:30:00Z"`, "published in the last hour: 100/s now, 100,000/s at most"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart has no %s:\n%s", want, svg)
		}
	}
	if n := strings.Count(svg, `class="bar"`); n != 59 {
		t.Errorf("%d bars are not cut off, not 59", n)
	}
}

// The last interval has only begun. Until it says something, the one before it is the
// present.
func TestChartOfAnIntervalThatHasBegun(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for seconds, want := range map[float64]float64{5: 10, 30: 2} {
		rates := []admin.Rate{{At: minute.Add(-time.Minute), Seconds: 60, Published: 600}, {At: minute, Seconds: seconds, Published: 2 * seconds}}
		if got := chartsOf(spans[0], rates, minute.Add(time.Duration(seconds*1e9)))[0].Now; got != want {
			t.Errorf("after %v seconds the present rate is %v, not %v", seconds, got, want)
		}
	}
}

// Failures now are in red, unless their number is rounded to nothing.
func TestFewFailuresAreNoAlarm(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for failed, want := range map[float64]bool{0: false, 5: false, 6: true} {
		charts := chartsOf(spans[0], []admin.Rate{{At: minute, Seconds: 60, Published: 600, Failed: failed}}, minute.Add(59*time.Second))
		if got := charts[2].Alarms(); got != want || charts[0].Alarms() {
			t.Errorf("%v failures in a minute are an alarm: %v; %s", failed, got, charts[2].Last())
		}
	}
}

// Charts of jobs end with the last sample, also if nothing has become of a job for a while. A stroke above the bar of an
// interval says within which time 95 of 100 jobs were done.
func TestJobCharts(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	half, most := 1.5, 6.0
	rates := []admin.JobRate{
		{At: minute.Add(-10 * time.Minute), Seconds: 60, Enqueued: 600, Completed: 300, Failed: 60, WaitedP50: &half, WaitedP95: &most},
		{At: minute, Seconds: 30},
	}
	numbers, times := jobCharts(spans[0], rates)
	for i, want := range []string{"enqueued in the last hour: 0/s now, 10/s at most", "completed in the last hour: 0/s now, 5.0/s at most", "failed for good in the last hour: 0/s now, 1.0/s at most"} {
		if svg := string(numbers[i].SVG()); !strings.Contains(svg, want) {
			t.Errorf("the chart does not say %q:\n%s", want, svg)
		}
	}
	if numbers[0].points[49] != 10 {
		t.Errorf("the jobs of ten minutes ago are not there: %v", numbers[0].points)
	}
	svg := string(times[0].SVG())
	for _, want := range []string{"waited for a worker in the last hour: 1.5 s, half of them, 95 of 100 within 6 s", `class="line"`, "95 of 100 within 6 s</title>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart has no %s:\n%s", want, svg)
		}
	}
	if svg := string(times[1].SVG()); !strings.Contains(svg, "ran in the last hour: –, no job") {
		t.Errorf("a chart of times without jobs is %s", svg)
	}
}

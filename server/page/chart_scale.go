package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// unit says how numbers of a chart are written, and which steps of an axis are round.
type unit struct {
	text func(float64) string // in a sentence
	tick func(float64) string // at an axis
	step func(float64) float64
}

var (
	perSecond  = unit{func(v float64) string { return rate(v) + "/s" }, func(v float64) string { return brief(v) + "/s" }, func(v float64) float64 { return math.Max(0.001, roundUp(v)) }}
	inSeconds  = unit{took, took, roundUpTime}
	inRequests = unit{func(v float64) string { return count(v) }, brief, func(v float64) float64 { return math.Max(1, roundUp(v)) }}
)

func percent(v float64) string {
	if v > 0 && v < 0.1 {
		return "< 0.1%"
	}
	if v < 10 && v != math.Trunc(v) || v > 99 && v < 100 {
		return strconv.FormatFloat(math.Trunc(v*10)/10, 'f', 1, 64) + "%"
	}
	return count(v) + "%"
}

// took is a period in words, which may be shorter than a second.
func took(seconds float64) string {
	switch {
	case seconds == 0:
		return "0 s"
	case seconds < 0.9995:
		return strconv.FormatFloat(math.Max(seconds*1000, 1), 'f', 0, 64) + " ms"
	case seconds < 120:
		return strconv.FormatFloat(seconds, 'g', 3, 64) + " s"
	}
	return period(seconds)
}

// brief is a number of few digits.
func brief(v float64) string {
	switch {
	case v >= 1e9:
		return brief(v/1e9) + "G"
	case v >= 1e6:
		return brief(v/1e6) + "M"
	case v >= 1e4:
		return brief(v/1e3) + "k"
	case v >= 1e3:
		return count(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// roundUp returns the next round number: 1, 2 or 5 and zeros.
func roundUp(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if base*factor >= v*(1-1e-9) {
			return base * factor
		}
	}
	return base * 10
}

// roundUpTime returns the next round number of seconds, minutes, hours or days.
func roundUpTime(v float64) float64 {
	const minute, hour, day = 60, 3600, 86400
	switch {
	case v <= 1:
		return roundUp(v)
	case v > 5*day:
		return day * roundUp(v/day)
	}
	for _, t := range []float64{2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute, hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 5 * day} {
		if t >= v {
			return t
		}
	}
	return 5 * day
}

// scale is the vertical axis of a chart.
type scale struct {
	top, step float64
	clips     bool // some numbers are higher than top
}

// A chart is cut off when its highest number is this many times as high as most of the
// others: else it would show that number, and nothing of the rest.
const (
	mostPoints = 0.95
	tooHigh    = 4.0
	headroom   = 1.25
)

// scaleOf chooses the axis for some numbers, with round steps, of which there are at most
// three.
func scaleOf(points []float64, u unit) scale {
	high := slices.DeleteFunc(slices.Clone(points), func(p float64) bool { return p <= 0 })
	if len(high) == 0 {
		return scale{top: 1, step: 1}
	}
	slices.Sort(high)
	limit, usual := high[len(high)-1], high[int(mostPoints*float64(len(high)-1))]
	s := scale{clips: limit > tooHigh*usual}
	if s.clips {
		limit = headroom * usual
	}
	s.step = u.step(limit / 3)
	s.top = s.step * math.Ceil(limit/s.step*(1-1e-9))
	return s
}

// ticks are the numbers at the axis.
func (s scale) ticks() []float64 {
	var ticks []float64
	for i := 0; float64(i)*s.step <= s.top*(1+1e-9); i++ {
		ticks = append(ticks, float64(i)*s.step)
	}
	return ticks
}

// place is the number of a coordinate in a drawing.
func place(v float64) string { return fmt.Sprintf("%.1f", v) }

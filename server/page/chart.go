package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// chart is a line over the last hour.
type chart struct {
	ID, Name string
	Now      float64 // per second
	Bad      bool    // it counts failures
	points   []float64
}

const (
	chartMinutes   = 60 // the width of a chart
	shortestSample = 15 // seconds
)

// chartsOf makes the charts of the overview.
func chartsOf(rates []admin.Rate, now time.Time) []chart {
	charts := []chart{{ID: "published", Name: "published"}, {ID: "handled", Name: "handled, all groups"}, {ID: "failed", Name: "failed attempts", Bad: true}}
	for i := range charts {
		charts[i].points = make([]float64, chartMinutes)
	}
	measured := false // the newest minute
	for n, r := range rates {
		// The last one has only begun. When it is very short, the one before says more.
		if n == len(rates)-1 && n > 0 && r.Seconds < shortestSample {
			break
		}
		numbers := [...]int64{r.Published, r.Handled, r.Failed}
		minute := chartMinutes - 1 - int(now.Sub(r.At)/time.Minute)
		measured = measured || minute == chartMinutes-1
		for i := range charts {
			perSecond := float64(numbers[i]) / math.Max(r.Seconds, 1)
			if minute >= 0 && minute < chartMinutes {
				charts[i].points[minute] = math.Max(charts[i].points[minute], perSecond)
			}
			charts[i].Now = perSecond
		}
	}
	for _, c := range charts {
		if !measured {
			c.points[chartMinutes-1] = c.points[chartMinutes-2]
		}
	}
	return charts
}

// Most is the highest point.
func (c chart) Most() float64 {
	most := 0.0
	for _, p := range c.points {
		most = math.Max(most, p)
	}
	return most
}

// SVG draws the chart.
func (c chart) SVG() template.HTML {
	class := "chart"
	if c.Bad {
		class += " bad"
	}
	return line54(c.points, class, fmt.Sprintf("%s in the last hour: %s per second now, %s at most", c.Name, rate(c.Now), rate(c.Most())))
}

// line54 draws a line of 300 by 54 with an area below it.
func line54(points []float64, class, label string) template.HTML {
	const width, height, top = 300.0, 54.0, 4.0
	most := 0.0
	for _, p := range points {
		most = math.Max(most, p)
	}
	var path strings.Builder
	for i, p := range points {
		x, y := float64(i)*width/math.Max(float64(len(points)-1), 1), height-1
		if most > 0 {
			y -= p / most * (height - 1 - top)
		}
		letter := byte('L')
		if i == 0 {
			letter = 'M'
		}
		fmt.Fprintf(&path, "%c%.1f %.1f", letter, x, y)
	}
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 300 54" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<path class="area" d="%sL300 54L0 54Z"/><path class="line" d="%s"/></svg>`,
		class, template.HTMLEscapeString(label), path.String(), path.String()))
}

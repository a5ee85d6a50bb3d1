package page

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

// The drawing is scaled as a whole, so that its texts keep their form.
const (
	chartWidth, chartHeight         = 340.0, 138.0
	chartLeft, chartTop, chartRight = 46.0, 18.0, 6.0
	chartFloor                      = chartHeight - 20.0
	labelWidth                      = 44.0 // of the number at a spike
)

// SVG draws the chart. It has a bar for each interval; one that is too high for the scale is
// cut off and marked, and its number stands above it.
func (c chart) SVG() template.HTML {
	class := "chart"
	if c.Bad {
		class += " bad"
	}
	s := scaleOf(slices.Concat(c.points, c.line), c.unit)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="%s" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, class, chartWidth, chartHeight, template.HTMLEscapeString(c.label()))
	c.drawScale(&b, s)
	c.drawTimes(&b)
	c.drawBars(&b, s)
	c.drawLine(&b, s)
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func (c chart) label() string {
	if c.line != nil {
		return fmt.Sprintf("%s in the last %s: %s, %s", c.Name, c.span.Name, c.Last(), c.Aside())
	}
	return fmt.Sprintf("%s in the last %s: %s now, %s at most", c.Name, c.span.Name, c.Last(), c.Most())
}

// drawLine draws the times within which 95 of 100 were, a stroke for each interval that has one.
func (c chart) drawLine(b *strings.Builder, s scale) {
	width := c.x(1) - c.x(0)
	for i, p := range c.line {
		if p <= 0 {
			continue
		}
		y := chartFloor - min(p/s.top, 1)*(chartFloor-chartTop)
		fmt.Fprintf(b, `<path class="line" d="M%s %sh%s"><title>%s</title></path>`,
			place(c.x(float64(i))), place(y), place(width*0.86), template.HTMLEscapeString("95 of 100 within "+c.unit.text(p)))
	}
}

func (c chart) drawScale(b *strings.Builder, s scale) {
	for _, tick := range s.ticks() {
		y := chartFloor - tick/s.top*(chartFloor-chartTop)
		fmt.Fprintf(b, `<path class="grid" d="M%s %sH%s"/>`, place(chartLeft), place(y), place(chartWidth-chartRight))
		fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="end">%s</text>`, place(chartLeft-5), place(y+3.5), template.HTMLEscapeString(c.unit.tick(tick)))
	}
}

// drawTimes draws the time axis, in UTC. The script writes the times in the zone of the
// person.
func (c chart) drawTimes(b *strings.Builder) {
	end := c.since.Add(c.span.period)
	form, layout := "clock", "15:04 UTC"
	if c.span.every > 12*time.Hour {
		form, layout = "day", "Mon 15:04 UTC"
	}
	for at := c.since.Truncate(c.span.every); at.Before(end); at = at.Add(c.span.every) {
		x := c.x(float64(at.Sub(c.since)) / float64(c.span.width()))
		if x < chartLeft+20 || x > chartWidth-chartRight-20 {
			continue // its text would not fit
		}
		fmt.Fprintf(b, `<path class="grid" d="M%s %sv4"/><text x="%s" y="%s" text-anchor="middle" data-at="%s" data-form="%s">%s</text>`,
			place(x), place(chartFloor), place(x), place(chartHeight-4), at.UTC().Format(time.RFC3339), form, at.UTC().Format(layout))
	}
}

// x is where an interval begins.
func (c chart) x(i float64) float64 {
	return chartLeft + i/float64(len(c.points))*(chartWidth-chartLeft-chartRight)
}

func (c chart) drawBars(b *strings.Builder, s scale) {
	var spikes []int
	width := c.x(1) - c.x(0)
	for i, p := range c.points {
		if p <= 0 {
			continue
		}
		height, class := p/s.top*(chartFloor-chartTop), "bar"
		if p > s.top*(1+1e-9) {
			height, class = chartFloor-chartTop, "bar over"
			spikes = append(spikes, i)
		}
		height = max(height, 1) // something is not nothing
		fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`, class,
			place(c.x(float64(i))), place(chartFloor-height), place(width*0.86), place(height), template.HTMLEscapeString(c.unit.text(p)))
	}
	slices.SortStableFunc(spikes, func(i, j int) int { return cmp.Compare(c.points[j], c.points[i]) })
	var taken []float64
	for _, i := range spikes {
		x := c.x(float64(i) + 0.43)
		fmt.Fprintf(b, `<path class="over" d="M%s %sl-4 5h8z"/>`, place(x), place(chartTop-5))
		text := min(max(x, chartLeft+labelWidth/2), chartWidth-chartRight-labelWidth/2)
		if slices.ContainsFunc(taken, func(other float64) bool { return other-text < labelWidth && text-other < labelWidth }) {
			continue // the number of a higher one stands there
		}
		taken = append(taken, text)
		fmt.Fprintf(b, `<text class="over" x="%s" y="%s" text-anchor="middle">%s</text>`, place(text), place(chartTop-8), template.HTMLEscapeString(c.unit.tick(c.points[i])))
	}
}

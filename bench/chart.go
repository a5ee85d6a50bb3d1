package main

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
)

// chartBar says where the values of a row stand in the charts.
type chartBar struct{ chart, group string }

// chart is a picture of groups of bars.
type chart struct {
	name, title, note string
	groups            []chartGroup
}

// chartGroup is a group of bars with a scale of its own.
type chartGroup struct {
	label string
	unit  string
	bars  []bar
}

// bar is a system's median, with the spread of the rounds.
type bar struct {
	system              string
	median, least, most float64
}

// charts are the charts that have bars, from the results.
func charts(results []result) (all []chart) {
	const more, less = "Longer is better.", "Shorter is better."
	for _, c := range []chart{
		{name: "work", title: "Work done once by competing workers, per second", note: more},
		{name: "enqueue", title: "Work added, per second", note: more},
		{name: "fan-out", title: "Events read by one, five and fifty groups, per second in all", note: more},
		{name: "latency", title: "Milliseconds until a handler runs", note: less},
		{name: "bytes", title: "Bytes of one job or event", note: less},
		{name: "recovery", title: "Seconds until work flows again after a kill", note: less},
	} {
		for _, r := range results {
			if r.row.chart.chart == c.name && r.Skipped == "" {
				c.add(r)
			}
		}
		if len(c.groups) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// add adds the sides of a result. Rows of one sitting share a side.
func (c *chart) add(r result) {
	i := slices.IndexFunc(c.groups, func(g chartGroup) bool { return g.label == r.row.chart.group })
	if i < 0 {
		i = len(c.groups)
		c.groups = append(c.groups, chartGroup{label: r.row.chart.group, unit: r.Unit})
	}
	g := &c.groups[i]
	for k, values := range [][]float64{r.OursValues, r.PeerValues} {
		if k >= len(r.row.systems) {
			break
		}
		system := r.row.systems[k]
		if slices.ContainsFunc(g.bars, func(b bar) bool { return b.system == system }) {
			continue
		}
		g.bars = append(g.bars, bar{system, median(values), slices.Min(values), slices.Max(values)})
	}
}

// Pictures have no background, so that they are readable on a light page and on a dark
// one.
const chartStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.group { font-weight: 600 }
.note { fill: #59636e }
.ours { fill: #0969da }
.peer { fill: #9198a1 }
.spread, .axis { stroke: #1f2328; stroke-width: 1.5 }
.axis { stroke-width: 0.5 }
.line { fill: none; stroke-width: 2 }
.posthorn { stroke: #0969da } .events { stroke: #0a7a3e } .river { stroke: #bc4c00 } .graphile { stroke: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.note { fill: #9198a1 }
.ours { fill: #4493f8 }
.peer { fill: #656c76 }
.spread, .axis { stroke: #f0f6fc }
.posthorn { stroke: #4493f8 } .events { stroke: #3fb950 } .river { stroke: #f0883e } .graphile { stroke: #ab7df8 }
}
</style>
`

const (
	chartWidth = 800
	barsFrom   = 190 // where bars begin
	barsWidth  = 360 // of the longest bar
	barHeight  = 20
)

// svg is a picture that is being written.
type svg struct {
	strings.Builder
	y int
}

// add adds an element.
func (s *svg) add(format string, values ...any) { fmt.Fprintf(s, format+"\n", values...) }

func (s *svg) text(x, y int, class, text string) {
	s.add(`<text x="%d" y="%d" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

// heading writes the title and the note of a picture.
func (s *svg) heading(title, note string) {
	s.text(10, 24, "title", title)
	s.text(10, 44, "note", note)
	s.y = 58
}

// group writes the heading of a part.
func (s *svg) group(label string) {
	s.text(10, s.y+24, "group", label)
	s.y += 32
}

// finish returns the picture with the height that it has reached.
func (s *svg) finish(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<title>%s</title>
%s%s</svg>
`, chartWidth, s.y, chartWidth, s.y, html.EscapeString(title), chartStyle, s.String())
}

// picture draws the chart as SVG.
func (c chart) picture() string {
	s := &svg{}
	s.heading(c.title, c.note+" Each bar is a median, the thin line in it the spread of the rounds. Each group has a scale of its own.")
	for _, g := range c.groups {
		s.group(g.label)
		longest := slices.MaxFunc(g.bars, func(a, b bar) int { return cmp.Compare(a.most, b.most) }).most
		for _, b := range g.bars {
			b.write(s, longest, g.unit)
		}
	}
	s.y += 10
	return s.finish(c.title)
}

// write draws a bar to the scale of the longest of its group.
func (b bar) write(s *svg, longest float64, unit string) {
	at := func(value float64) float64 {
		if longest == 0 {
			return barsFrom
		}
		return barsFrom + barsWidth*value/longest
	}
	class, value := "peer", figure(b.median)+unit
	if isOurs(b.system) {
		class = "ours"
	}
	if b.least != b.most {
		value += fmt.Sprintf(" (%s–%s)", figure(b.least), figure(b.most))
	}
	s.text(10, s.y+14, "", labelOf(b.system))
	s.add(`<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`, barsFrom, s.y+2, max(at(b.median)-barsFrom, 1), barHeight-4, class)
	s.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="spread"/>`, at(b.least), s.y+barHeight/2, at(b.most), s.y+barHeight/2)
	s.text(int(at(b.most))+8, s.y+14, "", value)
	s.y += barHeight
}

const (
	panelHeight = 120
	panelWidth  = 620
)

// sustainedPicture draws the samples of the row at a fixed rate over time.
func sustainedPicture(samples map[string][]sample) string {
	s := &svg{}
	title := fmt.Sprintf("%s jobs or events a second, over time", figure(sustainedRate))
	s.heading(title, "Each line is a system.")
	systems := slices.DeleteFunc([]string{jobsSystem, eventsSystem, riverSystem, graphileSystem},
		func(system string) bool { return len(samples[system]) == 0 })
	for i, system := range systems {
		x := 10 + i*180
		s.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" class="line %s"/>`, x, s.y+12, x+24, s.y+12, system)
		s.text(x+30, s.y+16, "", labelOf(system))
	}
	s.y += 24
	for _, p := range []struct {
		label string
		value func(sample) float64
	}{
		{"done per second", func(one sample) float64 { return one.Done }},
		{"megabytes on disk", func(one sample) float64 { return one.Bytes / 1e6 }},
		{"dead rows", func(one sample) float64 { return one.Dead }},
	} {
		s.group(p.label)
		s.panel(systems, samples, p.value)
	}
	s.y += 24
	return s.finish(title)
}

// panel draws one value of all systems.
func (s *svg) panel(systems []string, samples map[string][]sample, value func(sample) float64) {
	longest, most := 1.0, 1.0
	for _, system := range systems {
		for _, one := range samples[system] {
			longest, most = max(longest, one.Seconds), max(most, value(one))
		}
	}
	const left = 90
	bottom := s.y + panelHeight
	s.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" class="axis"/>`, left, bottom, left+panelWidth, bottom)
	s.text(10, s.y+10, "note", figure(float64(int(most))))
	s.text(10, bottom, "note", "0")
	s.text(left+panelWidth-50, bottom+16, "note", figure(float64(int(longest)))+" seconds")
	for _, system := range systems {
		var points []string
		for _, one := range samples[system] {
			points = append(points, fmt.Sprintf("%.1f,%.1f", left+panelWidth*one.Seconds/longest, float64(bottom)-panelHeight*value(one)/most))
		}
		s.add(`<polyline points="%s" class="line %s"/>`, strings.Join(points, " "), system)
	}
	s.y = bottom
}

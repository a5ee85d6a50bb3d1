package page

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// The timeline has a line for each bar: its name, the bar, and how long it took. The numbers of its axis are the time since
// the first bar began.
const (
	timelineWidth               = 1000.0
	timelineLine                = 22.0
	barLeft, barRight           = 262.0, 905.0
	nameLength                  = 36 // characters that fit beside a bar
	stepIndent                  = 12.0
	leastBar                    = 2.0
	nowRoom                     = 50.0 // of the axis, for the word
	fewestSteps                 = 5.0  // of the axis
	timelineTop, timelineBottom = 4.0, 24.0
)

// heights are those of bars by the first of their classes.
var heights = map[string]float64{"run": 14, "step": 8, "rest": 5, "queue": 5, "moment": 14}

// SVG draws the timeline.
func (t timeline) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="timeline" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, timelineWidth, t.floor()+timelineBottom, template.HTMLEscapeString(t.label()))
	t.drawAxis(&b)
	for i, bar := range t.Bars {
		t.drawBar(&b, timelineTop+float64(i)*timelineLine, bar)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func (t timeline) label() string {
	return fmt.Sprintf("%s in %s. The list below says the same in words.", things(len(t.Bars), "bar"), took(t.length().Seconds()))
}

func (t timeline) floor() float64 { return timelineTop + float64(len(t.Bars))*timelineLine }

// length is the time that the picture shows. It is not 0, so that everything has a place.
func (t timeline) length() time.Duration { return max(t.to.Sub(t.from), time.Millisecond) }

// x is the place of a time.
func (t timeline) x(at time.Time) float64 {
	return barLeft + (barRight-barLeft)*float64(at.Sub(t.from))/float64(t.length())
}

func (t timeline) drawAxis(b *strings.Builder) {
	length := t.length().Seconds()
	step := roundUpTime(length / fewestSteps)
	now := barRight + nowRoom // of the line, if there is one
	if t.planned {
		now = t.x(t.now)
		fmt.Fprintf(b, `<path class="now" d="M%s %sV%s"/><text x="%s" y="%s" text-anchor="middle">now</text>`, place(now), place(timelineTop), place(t.floor()+4), place(now), place(t.floor()+18))
	}
	for i := 0; float64(i)*step <= length; i++ {
		x := barLeft + (barRight-barLeft)*float64(i)*step/length
		if x > now-nowRoom {
			break
		}
		fmt.Fprintf(b, `<path class="grid" d="M%s %sV%s"/><text x="%s" y="%s" text-anchor="middle">%s</text>`, place(x), place(timelineTop), place(t.floor()+4),
			place(x), place(t.floor()+18), template.HTMLEscapeString(took(float64(i)*step)))
	}
}

func (t timeline) drawBar(b *strings.Builder, y float64, bar bar) {
	height := heights[classes[bar.Kind]]
	x := min(max(t.x(bar.From), barLeft), barRight-leastBar)
	width := min(max(t.x(bar.To)-x, leastBar), barRight-x)
	middle := y + timelineLine/2
	indent, room := 0.0, nameLength
	if bar.Kind == admin.PartStep { // of the attempt above
		indent, room = stepIndent, nameLength-2
	}
	fmt.Fprintf(b, `<g class="%s"><title>%s</title><rect class="line" x="0" y="%s" width="%.0f" height="%s"/><text class="name" x="%s" y="%s">%s</text>`,
		bar.Class(), template.HTMLEscapeString(inTitle(bar.Text(), someText)), place(y), timelineWidth, place(timelineLine), place(6+indent), place(middle+4), template.HTMLEscapeString(beside(bar.Name, room)))
	fmt.Fprintf(b, `<rect class="bar" x="%s" y="%s" width="%s" height="%s"/>`, place(x), place(middle-height/2), place(width), place(height))
	if took := cmp.Or(bar.Took(), bar.SoFar); took != "" {
		fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="end">%s</text>`, place(timelineWidth-6), place(middle+4), template.HTMLEscapeString(took))
	}
	b.WriteString(`</g>`)
}

// beside is the beginning of a name, as long as there is room for so many characters.
func beside(name string, most int) string {
	name = inTitle(name, someText) // which writes out invisible characters
	if beginning := cut(name, most); beginning != name {
		return strings.TrimRight(beginning, " ") + "…"
	}
	return name
}

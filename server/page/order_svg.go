package page

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

// order has the jobs around a job: those that must be completed before it, and those that wait for it.
type order struct {
	Before, After         []admin.JobWait // up to shownWaits of each
	MoreBefore, MoreAfter int
	job                   admin.JobStatus
}

// shownWaits bounds the jobs that are shown on each side of a job, and mostWaits those that are counted.
const shownWaits, mostWaits = 50, 500

// orderOf sorts the jobs around a job by their sides.
func orderOf(job admin.JobStatus, waits []admin.JobWait) order {
	o := order{job: job}
	for _, w := range waits {
		side, more := &o.Before, &o.MoreBefore
		if w.Side == "after" {
			side, more = &o.After, &o.MoreAfter
		}
		if len(*side) < shownWaits {
			*side = append(*side, w)
		} else {
			*more++
		}
	}
	return o
}

// Shown are the jobs on both sides.
func (o order) Shown() []admin.JobWait {
	return append(append([]admin.JobWait{}, o.Before...), o.After...)
}

// Most is the number of jobs up to which those of a side are counted.
func (o order) Most() int { return mostWaits - shownWaits }

// The graph has three columns of boxes: the jobs before, the job itself, and the jobs behind it.
const (
	orderWidth       = 1000.0
	orderLine        = 32.0
	boxWidth, boxTop = 300.0, 24.0 // boxTop is the height of a box
	boxName          = 26          // characters
)

// SVG draws the graph.
func (o order) SVG() template.HTML {
	rows := max(len(o.Before), len(o.After), 1)
	height := float64(rows) * orderLine
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="order" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, orderWidth, height, template.HTMLEscapeString(o.label()))
	middle, own := height/2, (orderWidth-boxWidth)/2
	for i, w := range o.Before {
		y := middle + (float64(i)-float64(len(o.Before)-1)/2)*orderLine
		drawEdge(&b, boxWidth, y, own, middle)
		drawBox(&b, 0, y, classOf(w), w.ID, w.Title, w.Status)
	}
	for i, w := range o.After {
		y := middle + (float64(i)-float64(len(o.After)-1)/2)*orderLine
		drawEdge(&b, own+boxWidth, middle, orderWidth-boxWidth, y)
		drawBox(&b, orderWidth-boxWidth, y, classOf(w), w.ID, w.Title, w.Status)
	}
	drawBox(&b, own, middle, "own", o.job.ID, o.job.Title, o.job.Status)
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func (o order) label() string {
	return fmt.Sprintf("Job %d waits for %s, and %s for it. The table below says the same in words.",
		o.job.ID, things(len(o.Before)+o.MoreBefore, "job"), waiters(len(o.After)+o.MoreAfter))
}

func waiters(n int) string {
	if n == 1 {
		return "1 job waits"
	}
	return things(n, "job") + " wait"
}

func classOf(w admin.JobWait) string {
	switch {
	case w.Blocks():
		return "bad"
	case w.Status == admin.JobCompleted:
		return "done"
	}
	return "open"
}

// drawEdge draws a line from the right side of a box to the left side of another one.
func drawEdge(b *strings.Builder, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<path class="edge" d="M%s %sC%s %s %s %s %s %s"/>`, place(x1), place(y1), place((x1+x2)/2), place(y1), place((x1+x2)/2), place(y2), place(x2), place(y2))
}

// drawBox draws a job, with its middle at a height.
func drawBox(b *strings.Builder, x, y float64, class string, id int64, title, status string) {
	name := strings.TrimSpace(fmt.Sprintf("%d %s", id, title))
	fmt.Fprintf(b, `<g class="%s"><title>%s</title><rect class="box" x="%s" y="%s" width="%s" height="%s" rx="5"/>`, class,
		template.HTMLEscapeString(inTitle("job "+name+": "+status, someText)), place(x+1), place(y-boxTop/2), place(boxWidth-2), place(boxTop))
	fmt.Fprintf(b, `<text class="name" x="%s" y="%s">%s</text><text x="%s" y="%s" text-anchor="end">%s</text></g>`,
		place(x+9), place(y+4), template.HTMLEscapeString(beside(name, boxName)), place(x+boxWidth-9), place(y+4), template.HTMLEscapeString(strings.ToLower(status)))
}

package page

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// timeline is the picture of the life of a job.
type timeline struct {
	Spent   string
	Bars    []bar // by their beginnings
	Earlier int   // the number of bars before these, which are not shown
	More    bool  // there are attempts before the first bar
	from    time.Time
	to      time.Time
	now     time.Time
	planned bool // something goes on until a time that is known; the picture ends before that
}

// mostBars bounds a timeline: a job may have a thousand steps, and sleep and wake for years.
const mostBars = 100

// bar is a part of the life of a job.
type bar struct {
	admin.JobPart
	SoFar string // of a bar that goes on until To: how long it has gone on
}

// classes are the CSS classes of the kinds of bars.
var classes = map[string]string{
	admin.PartAttempt: "run", admin.PartStep: "step", admin.PartSleep: "rest", admin.PartWait: "rest", admin.PartDelay: "rest",
	admin.PartQueue: "queue", admin.PartMoment: "moment",
}

// Class has the CSS classes of the bar.
func (b bar) Class() string {
	class := classes[b.Kind]
	if b.Failed {
		class += " bad"
	}
	if b.Open {
		class += " open"
	}
	return class
}

// Text is shown when the pointer is on the bar, and read by screen readers.
func (b bar) Text() string {
	ending := b.Ending()
	text := b.JobPart.Text()
	if ending != "" {
		text = b.Beginning()
	}
	if took := b.Took(); took != "" {
		text += ", " + took
	}
	if ending != "" {
		text += ", then " + ending
	}
	if b.SoFar != "" {
		text += fmt.Sprintf(", %s so far, until %s", b.SoFar, b.To.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	return text
}

// Took is the length of a period that is over.
func (b bar) Took() string {
	if b.Open || !b.To.After(b.From) {
		return ""
	}
	return took(b.Seconds)
}

// Part is the share of a period that is over in the time of the job.
func (b bar) Part() string {
	if b.Took() == "" {
		return ""
	}
	return shareOf(b.Share)
}

// timelineOf makes the picture of the newest parts.
func timelineOf(j admin.JobTimeline) timeline {
	t := timeline{Spent: j.Spent, Earlier: max(0, len(j.Parts)-mostBars), More: j.More, now: j.Now}
	for _, part := range j.Parts[t.Earlier:] {
		t.Bars = append(t.Bars, bar{JobPart: part})
	}
	t.from = t.Bars[0].From
	// An attempt that runs is shown however many steps it has saved.
	if i := slices.IndexFunc(j.Parts[:t.Earlier], func(p admin.JobPart) bool { return p.Open }); i >= 0 {
		t.Bars[0] = bar{JobPart: j.Parts[i]}
		t.from = t.Bars[1].From
	}
	present := t.drawnUntil(t.now)
	for i := range t.Bars {
		b := &t.Bars[i]
		if b.Open && b.To.After(t.now) {
			b.SoFar = took(present.Sub(b.From).Seconds())
			t.planned, t.to = true, later(t.to, present)
			continue
		} else if b.Open {
			b.To = present
		}
		t.to = later(t.to, b.To)
	}
	if t.planned { // a wait of hours would leave no room for the past
		t.to = t.to.Add(t.length() / plannedShare)
	}
	return t
}

// plannedShare is the part of the past that is drawn after the present.
const plannedShare = 20

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// drawnUntil is a time soon after now, so that a page which somebody follows is not drawn anew for each second.
func (t timeline) drawnUntil(now time.Time) time.Time {
	since := max(now.Sub(t.from), 0)
	step := time.Duration(1) << max(bits.Len64(uint64(since))-7, 0)
	return t.from.Add((since/step + 1) * step)
}

package page

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// second is a time some seconds after noon.
func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// part is a part of the life of a job, in seconds after noon.
func part(kind, words string, from, to int, open bool) admin.JobPart {
	return admin.JobPart{Kind: kind, Name: words, Words: words, From: second(from), To: second(to), Open: open, Seconds: float64(to - from)}
}

// lifeOf is the life of a job until now.
func lifeOf(now int, parts ...admin.JobPart) admin.JobTimeline {
	return admin.JobTimeline{Now: second(now), Parts: parts}
}

// A job of many steps has a bounded picture, of the newest ones, and says how many it leaves out.
func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	life := lifeOf(2000, part(admin.PartMoment, "enqueued", 0, 0, false), part(admin.PartAttempt, "attempt 1", 0, 2000, true))
	for i := range 1000 {
		life.Parts = append(life.Parts, part(admin.PartStep, fmt.Sprint("step s", i), i, i+1, false))
	}
	timeline := timelineOf(life)
	if len(timeline.Bars) != mostBars || timeline.Earlier != 1002-mostBars || timeline.Bars[mostBars-1].Name != "step s999" {
		t.Errorf("%d bars, %d left out, the last is %s", len(timeline.Bars), timeline.Earlier, timeline.Bars[mostBars-1].Name)
	}
	if first := timeline.Bars[0]; first.Class() != "run open" {
		t.Errorf("the attempt that runs is left out: the first bar is %s", first.Name)
	}
	svg := string(timeline.SVG())
	if n := strings.Count(svg, `class="bar"`); n != mostBars {
		t.Errorf("the picture has %d bars", n)
	}
	for _, found := range regexp.MustCompile(`class="bar" x="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		if x, err := strconv.ParseFloat(found[1], 64); err != nil || x < barLeft {
			t.Errorf("a bar begins at %s, over the names", found[1])
		}
	}
}

// A wait of hours leaves the room to the past: the picture ends soon after the present.
func TestTimelineEndsAfterThePresent(t *testing.T) {
	t.Parallel()
	timeline := timelineOf(lifeOf(100, part(admin.PartMoment, "enqueued", 0, 0, false), part(admin.PartAttempt, "attempt 1", 0, 50, false), part(admin.PartSleep, "night", 50, 86400, true)))
	if end := timeline.to.Sub(noon).Seconds(); end < 100 || end > 107 {
		t.Errorf("the picture ends %v seconds after its beginning, at which 100 have gone by", end)
	}
	found := regexp.MustCompile(`class="bar" x="[^"]*" y="[^"]*" width="([^"]*)"`).FindAllStringSubmatch(string(timeline.SVG()), -1)
	if width, err := strconv.ParseFloat(found[1][1], 64); err != nil || width < 250 {
		t.Errorf("the attempt, half of the past, is %s wide", found[1][1])
	}
}

// The picture escapes all texts, writes out invisible characters, and marks the present if something is planned.
func TestTimelineDrawing(t *testing.T) {
	t.Parallel()
	failed := part(admin.PartAttempt, "attempt 1 on <b>\u202e&</b>: failed: <script>", 0, 1, false)
	failed.Failed = true
	timeline := timelineOf(lifeOf(3600, part(admin.PartMoment, "enqueued", 0, 0, false), failed, part(admin.PartStep, "<i>"+strings.Repeat("long ", 50), 0, 1, false),
		part(admin.PartDelay, "put off: <script>", 1, 7200, true)))
	svg := string(timeline.SVG())
	for _, want := range []string{
		`<g class="run bad"><title>attempt 1 on &lt;b&gt;\u202e&amp;&lt;/b&gt;: failed: &lt;script&gt;, 1 s</title>`, `class="rest open"><title>put off: &lt;script&gt;, 60 min so far, until 2026-03-01 14:00:00 UTC</title>`,
		`<path class="now"`, ">now</text>", `aria-label="4 bars in 63 min. The list below says the same in words."`, ">30 min</text>", "long l…</text>",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %s:\n%s", want, svg)
		}
	}
	if !strings.Contains(svg, `x="18.0" y="63.0">&lt;i&gt;`) {
		t.Errorf("the step is not indented:\n%s", svg)
	}
	for _, bad := range []string{"<b>", "<i>", "<script", "\u202e", "NaN", "Inf", `width="-`} {
		if strings.Contains(svg, bad) {
			t.Errorf("the picture has %q:\n%s", bad, svg)
		}
	}
}

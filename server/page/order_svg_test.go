package page

import (
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
)

// The graph has up to fifty jobs on each side, the others as a number, and each name as text.
func TestOrderOfJobs(t *testing.T) {
	t.Parallel()
	waits := []admin.JobWait{
		{Side: "before", ID: 3, Title: "<script>\u202e" + strings.Repeat("long ", 90), Status: "FAILED"},
		{Side: "before", ID: 4, Title: "charge", Status: "COMPLETED"},
		{Side: "before", ID: 5, Status: "DELETED"},
	}
	for i := range int64(shownWaits + 7) {
		waits = append(waits, admin.JobWait{Side: "after", ID: 100 + i, Title: "mail", Status: "PENDING"})
	}
	o := orderOf(admin.JobStatus{ID: 9, Title: "ship", Status: "PENDING"}, waits)
	if len(o.Before) != 3 || o.MoreBefore != 0 || len(o.After) != shownWaits || o.MoreAfter != 7 || len(o.Shown()) != 3+shownWaits {
		t.Errorf("%d and %d more before, %d and %d more after", len(o.Before), o.MoreBefore, len(o.After), o.MoreAfter)
	}
	svg := string(o.SVG())
	if boxes, edges := strings.Count(svg, `class="box"`), strings.Count(svg, `class="edge"`); boxes != 4+shownWaits || edges != 3+shownWaits {
		t.Errorf("%d boxes and %d edges", boxes, edges)
	}
	for _, want := range []string{
		`aria-label="Job 9 waits for 3 jobs, and 57 jobs wait for it.`, `<g class="bad"><title>job 3 &lt;script&gt;\u202elong`, `<g class="done"><title>job 4 charge: COMPLETED</title>`,
		`<g class="bad"><title>job 5: DELETED</title>`, `<g class="own"><title>job 9 ship: PENDING</title>`, `>149 mail</text>`, ">completed</text>",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the graph has no %s:\n%s", want, svg)
		}
	}
	for _, bad := range []string{"<script", "\u202e", "NaN", `y="-`, `>150 mail`} {
		if strings.Contains(svg, bad) {
			t.Errorf("the graph has %q:\n%s", bad, svg)
		}
	}
	if label := orderOf(admin.JobStatus{ID: 9}, waits[3:4]).label(); !strings.HasPrefix(label, "Job 9 waits for 0 jobs, and 1 job waits for it.") {
		t.Error(label)
	}
}

package page

import (
	"io/fs"
	"regexp"
	"slices"
	"testing"
)

var (
	rowsOfTables = regexp.MustCompile(`(?s)<tbody>.*?</tbody>`)
	exactTime    = regexp.MustCompile(`\{\{at [^}]+\}\}`)
)

// In lists a time is the distance from now, which one reads at a glance, and the time itself is shown on hover. The log of a
// job is a story, in which the order counts.
func TestTimesInListsAreRelative(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(templateFiles, "*.html")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, name := range names {
		source, err := fs.ReadFile(templateFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range rowsOfTables.FindAllString(string(source), -1) {
			lists++
			for _, found := range exactTime.FindAllString(rows, -1) {
				if name != "job.html" {
					t.Errorf("%s: a list shows %s", name, found)
				}
			}
		}
	}
	if lists < 20 {
		t.Errorf("only %d lists were found", lists)
	}
}

var (
	tables   = regexp.MustCompile(`(?s)<table id="(\w[\w-]*)"( class="stack")?>.*?<thead>(.*?)</thead>.*?<tbody>(.*?)</tbody>`)
	headings = regexp.MustCompile(`<th [^>]*>([^<]*)<|\{\{template "sorted" list \$ "[^"]*" "([^"]*)"`)
	cells    = regexp.MustCompile(`<td(?: data-label="([^"]*)")?[ >{]|<th scope="row"`)
)

// On a phone each row of a list is a box, without the headings, so each cell behind the first has its own.
func TestListsAreBoxes(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(templateFiles, "*.html")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, name := range names {
		if slices.Contains([]string{"job.html", "webhook.html", "busy.html"}, name) { // their boxes are sentences
			continue
		}
		source, err := fs.ReadFile(templateFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range tables.FindAllStringSubmatch(string(source), -1) {
			lists++
			heads, row := headings.FindAllStringSubmatch(list[3], -1), cells.FindAllStringSubmatch(list[4], -1)
			if list[2] == "" || len(heads) != len(row) {
				t.Errorf("%s: list %s is no box, or has %d headings over %d cells", name, list[1], len(heads), len(row))
				continue
			}
			for i := 1; i < len(row); i++ {
				if want := heads[i][1] + heads[i][2]; row[i][1] != want {
					t.Errorf("%s: a cell under %q of list %s has the heading %q", name, want, list[1], row[i][1])
				}
			}
		}
	}
	if lists < 20 {
		t.Errorf("only %d lists were found", lists)
	}
}

func TestWhoReads(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 processes read", 1: "1 process reads", 3: "3 processes read"} {
		if got := whoReads(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

package page

import (
	"io/fs"
	"regexp"
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

func TestWhoReads(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 processes read", 1: "1 process reads", 3: "3 processes read"} {
		if got := whoReads(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

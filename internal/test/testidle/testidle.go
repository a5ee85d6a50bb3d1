// Package testidle counts the statements that a process executes while it has nothing to do, and
// compares them with the table of docs/operations.md.
package testidle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testprogram"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// While statements are counted, another process does its upkeep clockTicks times. In ten seconds it
// does so about 40 times. Before, in settleTicks, the counted processes start, and their watches of
// the log slow down.
const (
	settleTicks = 12
	clockTicks  = 24
)

// claims are the functions that take work. No process calls them more than mostClaims times in ten
// seconds while it has none.
var claims = []string{
	"take_jobs", "claim_jobs", "take", "claim", "take_relay", "take_aside", "take_webhooks", "due_webhooks", "plan_archive", "lease_archive_stream",
}

const mostClaims = 20

// Process is an idle process, or several of one database.
type Process struct {
	Kind       string // as the table of docs/operations.md names it
	Statements *testpg.Statements
	Processes  int // how many processes this is; 0 is one
}

// Check counts the statements of idle processes, all at the same time, each in a subtest of the name
// that is its key. A subtest fails if they are more than the table says, or if the process claims too
// often. A slow machine makes them fewer, so the numbers are compared with the time that has passed.
func Check(t *testing.T, processes map[string]Process) {
	t.Helper()
	database := posthorntest.Database(t)
	clock := testpg.CountStatements(t, database)
	testworld.Open(t, posthorn.Config{DatabaseURL: clock.URL(t)}).Start()
	tick := func(n int) {
		await.True(t, fmt.Sprintf("another process has done upkeep %d times", n), func() bool { return clock.Counts()["tend"] >= n })
	}
	tick(settleTicks)
	began, before := time.Now(), count(processes)
	tick(settleTicks + clockTicks)
	after, tenSeconds := count(processes), float64(time.Since(began))/float64(10*time.Second)
	for name, process := range processes {
		t.Run(name, func(t *testing.T) { check(t, process, before[name], after[name], tenSeconds) })
	}
}

func count(processes map[string]Process) map[string]map[string]int {
	counts := map[string]map[string]int{}
	for name, process := range processes {
		counts[name] = process.Statements.Counts()
	}
	return counts
}

func check(t *testing.T, process Process, before, after map[string]int, tenSeconds float64) {
	kind, most := process.Kind, mostClaims*max(process.Processes, 1)
	all, claimed, told := 0, 0, ""
	for _, statement := range slices.Sorted(maps.Keys(after)) {
		n := after[statement] - before[statement]
		if n == 0 {
			continue
		}
		all += n
		if slices.Contains(claims, statement) {
			claimed += n
		}
		told += fmt.Sprintf("\n%7.1f %s", float64(n)/tenSeconds, statement)
	}
	t.Logf("%s: %.0f statements in ten seconds%s", kind, float64(all)/tenSeconds, told)
	if float64(claimed) > float64(most)*tenSeconds+float64(max(process.Processes, 1)) { // each may claim at both ends of the time
		t.Errorf("%s claims %.0f times in ten seconds, want at most %d", kind, float64(claimed)/tenSeconds, most)
	}
	if most := documented(t, kind); float64(all) > float64(most)*tenSeconds*1.1+5 {
		t.Errorf("%s: %.0f statements in ten seconds, and docs/operations.md says %d", kind, float64(all)/tenSeconds, most)
	}
}

// documented returns the number of statements in the row of a kind of process.
func documented(t *testing.T, kind string) int {
	t.Helper()
	root, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(kind) + ` \| ([\d,]+) \|`).FindSubmatch(page)
	if row == nil {
		t.Fatalf("the table of docs/operations.md has no row for %q", kind)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(string(row[1]), ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

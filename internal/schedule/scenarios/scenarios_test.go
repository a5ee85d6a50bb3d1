package scenarios

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
)

var budget = flag.Duration("schedules.for", 40*time.Second, "the time of all scenarios together")

// No schedule of any scenario breaks a promise: first those with at most one preemption, then
// random ones, which each commit has of its own. The seed is printed with a failure.
func TestSchedules(t *testing.T) {
	server, err := schedule.StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	d := schedule.NewDriver(server)
	defer d.Close(t.Context())
	functions, err := schedule.Checkout{Root: "../../.."}.Functions()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Use(t.Context(), false, functions...); err != nil {
		t.Fatal(err)
	}
	seed := seedOfCommit(t)
	ends := time.Now().Add(*budget)
	all := All()
	for i, sc := range all {
		t.Run(sc.Name, func(t *testing.T) {
			share := time.Until(ends) / time.Duration(len(all)-i)
			for _, found := range sc.Found {
				explore(t, d, sc, schedule.Replay(found), 0)
			}
			took := explore(t, d, sc, schedule.Bounded(1), share*3/4)
			explore(t, d, sc, schedule.Random(seed), share-took)
		})
	}
}

// explore searches for some time, and at least one schedule.
func explore(t *testing.T, d *schedule.Driver, sc *schedule.Scenario, search schedule.Search, limit time.Duration) time.Duration {
	t.Helper()
	result, err := d.Explore(t.Context(), sc, search, schedule.Limit{Time: max(limit, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(result)
	if result.Broken > 0 {
		t.Error("a promise was broken")
	}
	return result.Took
}

func seedOfCommit(t *testing.T) uint64 {
	t.Helper()
	hash, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil || len(hash) < 8 {
		return 1 // no repository
	}
	seed, err := strconv.ParseUint(strings.ToLower(string(hash[:8])), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the seed is %d", seed)
	return seed
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, sc := range All() {
		if seen[sc.Name] || len(sc.Promises) == 0 {
			t.Errorf("%s is there twice, or holds no promise", sc.Name)
		}
		seen[sc.Name] = true
	}
}

var (
	guarantee = regexp.MustCompile(`(?m)^\| (\d+) \| .*$`)
	searched  = regexp.MustCompile(`Searched: ([^|]*)\.`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// Each guarantee names its scenarios.
func TestGuaranteesNameScenarios(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range guarantee.FindAllStringSubmatch(string(page), -1) {
		number, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		var named, want []string
		if list := searched.FindStringSubmatch(row[0]); list != nil {
			for _, name := range quoted.FindAllStringSubmatch(list[1], -1) {
				named = append(named, name[1])
			}
		}
		for _, sc := range All() {
			if slices.Contains(sc.Promises, number) {
				want = append(want, sc.Name)
			}
		}
		if !slices.Equal(named, want) {
			t.Errorf("guarantee %d names the scenarios %q, and these hold it: %q", number, named, want)
		}
	}
}

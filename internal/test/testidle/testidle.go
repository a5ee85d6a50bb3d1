// Package testidle counts the statements that a process executes while it has nothing to do, and
// compares them with the table of docs/operations.md.
package testidle

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testprogram"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
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

// Databases starts a server, and returns a function that creates a database of Posthorn there. Of the server that tests share,
// the watch of the log cannot tell which transactions are of its own database: each that was open when it began to watch
// may have made a job ready, and its end is one more claim.
func Databases(t testing.TB) (create func() (url string)) {
	t.Helper()
	server := testpg.StartPrimary(t, map[string]string{"max_connections": "500", "synchronous_commit": "off"})
	execute := func(database string, do func(conn *pgx.Conn) error) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), at(server.URL(), database))
		if err == nil {
			err = do(conn)
			_ = conn.Close(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	execute("postgres", func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "create database first")
		return err
	})
	execute("first", func(conn *pgx.Conn) error {
		_, err := schema.Migrate(t.Context(), conn, schema.Options{})
		if err == nil { // a copy shall not count as restored
			_, err = conn.Exec(t.Context(), "update posthorn.cluster set life = null, log = null")
		}
		return err
	})
	n := 0
	return func() string {
		t.Helper()
		n++
		name := fmt.Sprintf("idle_%d", n)
		execute("postgres", func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), "create database "+name+" template first")
			return err
		})
		return at(server.URL(), name)
	}
}

// at returns the URL of another database of a server.
func at(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // it is that of a server of ours
	}
	u.Path = "/" + database
	return u.String()
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

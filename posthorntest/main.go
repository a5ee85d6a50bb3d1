package posthorntest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// Main runs the tests of a package and ends the process. It fails if a goroutine is
// running after all tests. A test fails if it leaves open a connection whose
// application name begins with posthorn, as those of clients do.
//
//	func TestMain(m *testing.M) { posthorntest.Main(m) }
func Main(m *testing.M) {
	checkConnections.Store(true)
	code := m.Run()
	closeServer()
	if code == 0 {
		if left := untilNone(leftGoroutines); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "posthorntest: %d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// checkConnections makes open connections an error at the end of each test.
var checkConnections atomic.Bool

// untilNone calls remaining until it returns nothing, or the time limit is over.
func untilNone(remaining func() []string) []string {
	for began := time.Now(); ; await.PauseSince(began) {
		left := remaining()
		if len(left) == 0 || time.Since(began) > await.Limit {
			return left
		}
	}
}

// closeServer closes the connections of this package, whose goroutines would be
// reported.
func closeServer() {
	if !started.Load() {
		return
	}
	if s, err := processServer(); err == nil {
		if s.claim != nil {
			s.claim.Release()
		}
		s.admin.Close()
	}
}

// leftGoroutines returns the stacks of the goroutines that should have ended.
func leftGoroutines() []string {
	buffer := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buffer, true)
		if n < len(buffer) {
			buffer = buffer[:n]
			break
		}
		buffer = make([]byte, 2*len(buffer))
	}
	var left []string
	for i, stack := range strings.Split(strings.TrimSpace(string(buffer)), "\n\n") {
		if i > 0 && !isOurs(stack) { // the first goroutine is the current one
			left = append(left, stack)
		}
	}
	return left
}

// isOurs reports whether a goroutine may live as long as the process: one that waits
// for a shared server or the watchdog, or one of the runtime.
func isOurs(stack string) bool {
	for _, ours := range []string{
		"posthorn/localpg.", "posthorn/internal/test/testdir.", "created by os/exec.", "created by os/signal.", "created by testing.", "created by runtime.",
	} {
		if strings.Contains(stack, ours) {
			return true
		}
	}
	return false
}

// expectNoConnections fails the test if clients are connected to its database.
func (s *server) expectNoConnections(ctx context.Context, t testing.TB, database string) {
	left := untilNone(func() []string {
		found, err := s.connections(ctx, database)
		if err != nil {
			t.Error(err)
		}
		return found
	})
	if len(left) > 0 {
		t.Errorf("posthorntest: %d connections are open:\n%s", len(left), strings.Join(left, "\n"))
	}
}

// connections describes the connections of clients to a database.
func (s *server) connections(ctx context.Context, database string) ([]string, error) {
	rows, _ := s.admin.Query(ctx, `
		select format('%s, %s: %s', application_name, state, left(query, 200))
		from pg_stat_activity
		where datname = $1 and application_name like 'posthorn%'`, database)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

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

	"github.com/posthorn/posthorn/internal/await"
)

// Main runs the tests of a package and ends the process. It fails if a goroutine
// is left when all of them are done, and lets each test fail that leaves a
// connection of a client open: one whose application name begins with posthorn.
//
//	func TestMain(m *testing.M) { posthorntest.Main(m) }
func Main(m *testing.M) {
	watched.Store(true)
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

// watched: connections that tests leave are errors.
var watched atomic.Bool

// untilNone looks again and again until nothing is left, or the limit is over.
func untilNone(look func() []string) []string {
	for deadline := time.Now().Add(await.Limit); ; await.Pause() {
		left := look()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// closeServer closes our own connections, whose goroutines would be left.
func closeServer() {
	if !asked.Load() {
		return
	}
	if s, err := processServer(); err == nil {
		if s.claim != nil {
			s.claim.Release()
		}
		s.admin.Close()
	}
}

// leftGoroutines are the stacks of those that should have ended.
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
		if i > 0 && !isOurs(stack) { // the first is this one
			left = append(left, stack)
		}
	}
	return left
}

// isOurs tells goroutines that live as long as the process: those that wait for
// servers that all tests share and for the watchdog, and the runtime's.
func isOurs(stack string) bool {
	for _, ours := range []string{
		"posthorn/localpg.", "posthorn/internal/testdir.", "created by os/exec.", "created by os/signal.", "created by testing.", "created by runtime.",
	} {
		if strings.Contains(stack, ours) {
			return true
		}
	}
	return false
}

// expectNoConnections lets the test fail if clients are still connected to its
// database.
func (s *server) expectNoConnections(ctx context.Context, t testing.TB, database string) {
	left := untilNone(func() []string {
		found, err := s.connections(ctx, database)
		if err != nil {
			t.Error(err)
		}
		return found
	})
	if len(left) > 0 {
		t.Errorf("posthorntest: %d connections are left:\n%s", len(left), strings.Join(left, "\n"))
	}
}

// connections are those of clients to a database, in words.
func (s *server) connections(ctx context.Context, database string) ([]string, error) {
	rows, _ := s.admin.Query(ctx, `
		select format('%s, %s: %s', application_name, state, left(query, 200))
		from pg_stat_activity
		where datname = $1 and application_name like 'posthorn%'`, database)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

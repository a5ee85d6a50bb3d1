// Package testcost tells the program that runs the suite which test uses a database, a
// directory of servers or a process, so that their processor time is counted for the
// test. It does nothing in other runs.
package testcost

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
)

// File is the environment variable that names the file to which this package writes.
const File = "POSTHORN_TEST_COSTS"

// Label is the key of the profile's label that holds the name of the test.
const Label = "test"

// Kinds of things that a test uses.
const (
	KindDatabase  = "database"
	KindDirectory = "directory"
	KindProcess   = "process"
)

// Database says that a database is of a test. The processor time of its sessions is the
// test's.
func Database(t testing.TB, name string) { note(t, KindDatabase, name) }

// Directory says that a directory is of a test. The processor time of servers with the
// directory in their command line, and of their children, is the test's.
func Directory(t testing.TB, path string) { note(t, KindDirectory, path) }

// Process says that a process, with its children, is of a test.
func Process(t testing.TB, pid int) { note(t, KindProcess, fmt.Sprint(pid)) }

// Test is the name of a test without its subtests.
func Test(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// note writes one line, at once, since children of this process append to the same file.
func note(t testing.TB, kind, name string) {
	f := file()
	if f == nil {
		return
	}
	// Goroutines that this one starts inherit the label, so the profile of the processor
	// tells their test.
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(Label, Test(t))))
	_, _ = fmt.Fprintf(f, "%s\t%s\t%s\n", kind, name, Test(t)) // the report lacks the test then
}

var file = sync.OnceValue(func() *os.File {
	path := os.Getenv(File)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil
	}
	return f
})

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// sideBySide is the number of packages that run concurrently: two more than two
// processors, since tests often wait for the servers that they start.
const sideBySide = 4

// onNewest are the packages whose behaviour depends on the version of Postgres. They
// run a second time in make test-all, on the newest version. All other packages use Postgres through
// them.
var onNewest = []string{"./schema", "./internal/pg", "./internal/guarantee", "./internal/torture"}

// slowest are the packages that take longest, by their time beside others. They start first,
// so that a run does not end with one of them alone, and those with the longest single tests
// before those that have many short ones. The report at the end of a run shows their times.
var slowest = []string{
	"/internal/guarantee", "/server", "/internal/torture", "/bench", "/cmd/posthorn", "/clients/typescript", "/internal/judge",
	"/internal/consume", "/internal/idle", "/internal/outage", "/relay/nats", "/internal/schedule/scenarios", "/internal/webhook",
	"/internal/work", "/internal/importer", "/internal/pg", "/admin", "/archive",
}

// longest is a package whose tests take longer than half of a run if they get no more than
// their share of the processors. So more of them run at a time than of another package.
const longest = "/internal/guarantee"

// unit is the tests of a package on one version of Postgres. They are compiled once
// without the race detector, and once with it for every second round of stress.
type unit struct {
	name    string // for reports and counts
	path    string
	dir     string
	server  *server
	program string // path of the compiled tests
	race    bool
	costs   *costs // nil if processor time is not measured
}

// listUnits lists the packages with tests, of the module and of the benchmark.
func listUnits(ctx context.Context, on *servers) ([]unit, error) {
	units, err := list(ctx, on.installed, ".", "./...")
	if err != nil {
		return nil, err
	}
	if on.newest != nil {
		again, err := list(ctx, on.newest, ".", onNewest...)
		if err != nil {
			return nil, err
		}
		units = append(units, again...)
	}
	bench, err := list(ctx, on.installed, "bench", "./...")
	if err != nil {
		return nil, err
	}
	units = append(units, bench...)
	slices.SortStableFunc(units, func(a, b unit) int { return a.order() - b.order() })
	return units, nil
}

func list(ctx context.Context, on *server, dir string, packages ...string) ([]unit, error) {
	var units []unit
	format := "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, packages...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	for line := range strings.Lines(string(output)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			units = append(units, unit{name: path + " (" + on.version + ")", path: path, dir: dir, server: on})
		}
	}
	return units, nil
}

func (u unit) order() int {
	for i, suffix := range slowest {
		if strings.HasSuffix(u.path, suffix) {
			return i
		}
	}
	return len(slowest)
}

// compiled returns the units with the paths of their compiled tests in dir.
func compiled(units []unit, dir string, race bool) []unit {
	units = slices.Clone(units)
	for i := range units {
		u := &units[i]
		u.race, u.program = race, filepath.Join(dir, strings.ReplaceAll(u.path, "/", "."))
		if race {
			u.program += ".race"
		}
	}
	return units
}

// compiling has a mutex for each compiled program, since the units of two versions
// share one.
var compiling sync.Map

// compile compiles the tests, unless the program exists.
func (u unit) compile(ctx context.Context) error {
	mutex, _ := compiling.LoadOrStore(u.program, &sync.Mutex{})
	mutex.(*sync.Mutex).Lock()
	defer mutex.(*sync.Mutex).Unlock()
	if _, err := os.Stat(u.program); err == nil {
		return nil
	}
	args, env := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", u.program}, os.Environ() // without symbols, which takes a fifth less to link
	if u.race {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1") // the race detector is in C
	}
	cmd := exec.CommandContext(ctx, "go", append(args, u.path)...)
	cmd.Dir, cmd.Env = u.dir, env
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w: %s", u.path, err, output)
	}
	return nil
}

// test runs the tests of the unit whose names match a pattern. If the tests do not
// compile, the unit has failed.
func (u unit) test(ctx context.Context, pattern string) (*tested, error) {
	if err := u.compile(ctx); err != nil {
		p := newTested(u)
		p.failed, p.built = true, false
		p.output.WriteString(err.Error())
		return p, ctx.Err()
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", u.path, u.program,
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=60m", "-test.run="+pattern)
	if strings.HasSuffix(u.path, longest) {
		cmd.Args = append(cmd.Args, fmt.Sprintf("-test.parallel=%d", 3*runtime.GOMAXPROCS(0)))
	}
	cmd.Dir, cmd.Env, cmd.Stderr = u.dir, append(os.Environ(), u.server.env...), os.Stderr
	started := func(int) {}
	if u.costs != nil {
		started = u.costs.measure(u, cmd)
	}
	return u.run(cmd, started)
}

// each calls do for every unit, sideBySide at a time.
func each(ctx context.Context, units []unit, do func(u unit)) {
	waiting := make(chan unit, len(units))
	for _, u := range units {
		waiting <- u
	}
	close(waiting)
	var all sync.WaitGroup
	for range sideBySide {
		all.Go(func() {
			for u := range waiting {
				if ctx.Err() == nil {
					do(u)
				}
			}
		})
	}
	all.Wait()
}

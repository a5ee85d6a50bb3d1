package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// goTest is one run of go test.
type goTest struct {
	title    string
	dir      string
	packages []string
	args     []string
	env      []string
}

// tested is a package whose tests have run.
type tested struct {
	path    string
	elapsed time.Duration
	tests   map[string]*test // by name, subtests too
	output  strings.Builder  // that belongs to no test
	failed  bool
	built   bool
	again   []string // failed, and passed when they ran again
}

// test is one test, or subtest.
type test struct {
	action  string // pass, fail or skip; empty if it has not ended
	elapsed time.Duration
	output  strings.Builder
}

// event is a line that go test -json prints.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// do runs the tests and prints the packages as they end, with the output of
// those tests that have failed.
func (g goTest) do(ctx context.Context) ([]*tested, error) {
	args := append([]string{"test", "-json", "-vet=off", "-timeout=15m"}, g.args...)
	cmd := exec.CommandContext(ctx, "go", append(args, g.packages...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = g.dir, append(os.Environ(), g.env...), os.Stderr
	return run(cmd)
}

// run runs a command that prints events.
func run(cmd *exec.Cmd) ([]*tested, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	packages := collect(events)
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && slices.ContainsFunc(packages, func(p *tested) bool { return p.failed }) {
		err = nil // the packages say so
	}
	return packages, err
}

func collect(events io.Reader) []*tested {
	packages := map[string]*tested{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case err != nil:
			return slices.SortedFunc(maps.Values(packages), func(a, b *tested) int { return strings.Compare(a.path, b.path) })
		case json.Unmarshal(line, &e) != nil:
			fmt.Print(string(line))
		case e.ImportPath != "":
			fmt.Print(e.Output) // of the compiler
		default:
			p := packages[e.Package]
			if p == nil {
				p = &tested{path: e.Package, tests: map[string]*test{}, built: true}
				packages[e.Package] = p
			}
			p.take(e)
		}
	}
}

// take notes an event of the package.
func (p *tested) take(e event) {
	output := &p.output
	if e.Test != "" {
		t := p.tests[e.Test]
		if t == nil {
			t = &test{}
			p.tests[e.Test] = t
		}
		output = &t.output
		if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			t.action, t.elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
		}
	} else if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
		p.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		p.failed, p.built = e.Action == "fail", e.FailedBuild == ""
		p.print()
	}
	output.WriteString(e.Output)
}

// print prints the package at once, since others may print too.
func (p *tested) print() {
	var text strings.Builder
	switch {
	case p.failed:
		for name, t := range p.tests {
			if t.action != "pass" && t.action != "skip" {
				fmt.Fprintf(&text, "--- %s: %s\n%s", cmp.Or(t.action, "unfinished"), name, t.output.String())
			}
		}
		fmt.Fprintf(&text, "%s\nFAIL\t%s\t%.1fs\n", p.output.String(), p.path, p.elapsed.Seconds())
	case len(p.tests) > 0:
		fmt.Fprintf(&text, "ok  \t%s\t%.1fs\n", p.path, p.elapsed.Seconds())
	}
	fmt.Print(text.String())
}

// count counts the tests that are no subtests and ended in a way.
func (p *tested) count(action string) (n int) {
	for name, t := range p.tests {
		if t.action == action && !strings.Contains(name, "/") {
			n++
		}
	}
	return n
}

// failures are the tests that failed and are no subtests. Those that had not
// ended when the process died are not among them.
func (p *tested) failures() []string {
	var names []string
	for name, t := range p.tests {
		if t.action == "fail" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// died reports that the package's process ended before its tests did, or failed
// though no test did: TestMain found something that tests have left.
func (p *tested) died() bool {
	for _, t := range p.tests {
		if t.action == "" || strings.Contains(t.output.String(), "panic: ") {
			return true
		}
	}
	return p.failed && len(p.failures()) == 0
}

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// tested is a unit whose tests have run.
type tested struct {
	unit
	elapsed time.Duration
	tests   map[string]*test // by name, subtests too
	output  strings.Builder  // that belongs to no test
	failed  bool
	built   bool
	again   []string // failed, and passed when they ran again
}

func newTested(u unit) *tested { return &tested{unit: u, tests: map[string]*test{}, built: true} }

// test is one test, or subtest.
type test struct {
	action  string // pass, fail or skip; empty if it has not ended
	elapsed time.Duration
	output  strings.Builder
}

// event is a line that test2json prints.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// run runs a command that prints the events of the unit's tests.
func (u unit) run(cmd *exec.Cmd) (*tested, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p, began := newTested(u), time.Now()
	p.collect(events)
	err = cmd.Wait()
	p.elapsed = time.Since(began)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		p.failed, err = true, nil // a process that dies leaves no event of its end
	}
	return p, err
}

func (p *tested) collect(events io.Reader) {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e event
		if json.Unmarshal(line, &e) == nil {
			p.take(e)
		} else {
			p.output.Write(line)
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
	}
	output.WriteString(e.Output)
}

// print prints the unit in one piece, since others may print too, with the output of
// the tests that failed.
func (p *tested) print() {
	var text strings.Builder
	switch {
	case p.failed:
		for name, t := range p.tests {
			if t.action != "pass" && t.action != "skip" {
				fmt.Fprintf(&text, "--- %s: %s\n%s", cmp.Or(t.action, "unfinished"), name, t.output.String())
			}
		}
		fmt.Fprintf(&text, "%s\nFAIL\t%s\t%.1fs\n", p.output.String(), p.name, p.elapsed.Seconds())
	default:
		fmt.Fprintf(&text, "ok  \t%s\t%.1fs\n", p.name, p.elapsed.Seconds())
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

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tested is a unit after its tests have run.
type tested struct {
	unit
	elapsed       time.Duration
	tests         map[string]*test // by name, with subtests
	output        strings.Builder  // output of no particular test
	failed        bool
	built         bool
	passedOnRetry []string // failed tests that passed when they were retried
}

func newTested(u unit) *tested { return &tested{unit: u, tests: map[string]*test{}, built: true} }

// test is one test, or subtest.
type test struct {
	action  string // pass, fail or skip; empty if the test has not ended
	elapsed time.Duration
	output  strings.Builder
}

// event is a line of test2json's output.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// run runs a command that prints the test events of the unit. It calls started with the
// command's pid.
func (u unit) run(cmd *exec.Cmd, started func(pid int)) (*tested, error) {
	// The command is go tool, which starts test2json, which starts the tests: a signal to the
	// first alone would let the tests run on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started(cmd.Process.Pid)
	p, began := newTested(u), time.Now()
	p.collect(events)
	err = cmd.Wait()
	p.elapsed = time.Since(began)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		p.failed, err = true, nil // a process that dies prints no event of its end
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

// take processes one event.
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

// print prints the unit at once, since units are printed concurrently, with the
// output of the failed tests.
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

// count counts the tests, without subtests, that ended with an action.
func (p *tested) count(action string) (n int) {
	for name, t := range p.tests {
		if t.action == action && !strings.Contains(name, "/") {
			n++
		}
	}
	return n
}

// failures returns the failed tests, without subtests, and without tests that were
// running when the process died.
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

// died reports whether the process ended before its tests, or failed although no test
// did, for example because TestMain detected a leak.
func (p *tested) died() bool {
	for _, t := range p.tests {
		if t.action == "" || strings.Contains(t.output.String(), "panic: ") {
			return true
		}
	}
	return p.failed && len(p.failures()) == 0
}

package main

import (
	"context"
	"fmt"
	"strings"
)

// mostRetried is how many failed tests of a run may run again. If more have
// failed, chance is not the cause.
const mostRetried = 10

// retry runs each failed test once more, by itself. If it passes, its package
// has passed, and the report names the test as unstable. Where a process died
// or TestMain complained, the whole package runs again.
func retry(ctx context.Context, all []*tested) {
	failed := 0
	for _, p := range all {
		failed += len(p.failures())
	}
	if failed > mostRetried {
		return
	}
	for _, p := range all {
		if p.failed && p.built && !p.raced() {
			p.failed = !p.passesAgain(ctx)
		}
	}
}

func (p *tested) passesAgain(ctx context.Context) bool {
	if p.died() {
		return p.once(ctx, "the whole package", "^")
	}
	passes := true
	for _, name := range p.failures() {
		if p.once(ctx, name, "^"+name+"$") {
			p.tests[name].action = "pass"
		} else {
			passes = false
		}
	}
	return passes
}

func (p *tested) once(ctx context.Context, name, pattern string) bool {
	fmt.Printf("==> once more: %s of %s\n", name, p.name)
	again, err := p.test(ctx, pattern)
	if err != nil {
		fmt.Println(err)
		return false
	}
	again.print()
	if !again.failed {
		p.again = append(p.again, name)
	}
	return !again.failed
}

// raced reports that the race detector has found something. That is no chance.
func (p *tested) raced() bool {
	const found = "WARNING: DATA RACE"
	for _, t := range p.tests {
		if strings.Contains(t.output.String(), found) {
			return true
		}
	}
	return strings.Contains(p.output.String(), found)
}

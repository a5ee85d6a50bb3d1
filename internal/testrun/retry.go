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
func (g goTest) retry(ctx context.Context, packages []*tested) {
	failed := 0
	for _, p := range packages {
		failed += len(p.failures())
	}
	if failed > mostRetried {
		return
	}
	for _, p := range packages {
		if p.failed && p.built && !p.raced() {
			p.failed = !g.passesAgain(ctx, p)
		}
	}
}

func (g goTest) passesAgain(ctx context.Context, p *tested) bool {
	if p.died() {
		return g.once(ctx, p, "the whole package", "^")
	}
	passes := true
	for _, name := range p.failures() {
		if g.once(ctx, p, name, "^"+name+"$") {
			p.tests[name].action = "pass"
		} else {
			passes = false
		}
	}
	return passes
}

func (g goTest) once(ctx context.Context, p *tested, name, pattern string) bool {
	fmt.Printf("==> once more: %s of %s\n", name, p.path)
	g.packages, g.args = []string{p.path}, []string{"-count=1", "-run=" + pattern}
	again, err := g.do(ctx)
	if err != nil || len(again) != 1 || again[0].failed {
		return false
	}
	p.again = append(p.again, name)
	return true
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

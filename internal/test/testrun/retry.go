package main

import (
	"context"
	"fmt"
	"strings"
)

// mostRetried is the largest number of failed tests to retry. If more have failed,
// the cause is unlikely to be chance.
const mostRetried = 10

// retry runs each failed test once more, alone. If all pass, their package has
// passed, and the report lists them as unstable. If a process died or its TestMain
// failed, the whole package is retried.
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
			p.failed = !p.passesOnRetry(ctx)
		}
	}
}

func (p *tested) passesOnRetry(ctx context.Context) bool {
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
	fmt.Printf("==> retry: %s of %s\n", name, p.name)
	retried, err := p.test(ctx, pattern)
	if err != nil {
		fmt.Println(err)
		return false
	}
	retried.print()
	if !retried.failed {
		p.passedOnRetry = append(p.passedOnRetry, name)
	}
	return !retried.failed
}

// raced reports whether the race detector has found a race, which a retry must not
// hide.
func (p *tested) raced() bool {
	const found = "WARNING: DATA RACE"
	for _, t := range p.tests {
		if strings.Contains(t.output.String(), found) {
			return true
		}
	}
	return strings.Contains(p.output.String(), found)
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report summarizes the runs of go test.
type report struct {
	packages, tests         []timing
	unstable, skips         []string
	passed, failed, skipped int
}

// timing is the duration of a package or a test.
type timing struct {
	name    string
	elapsed time.Duration
}

func (r *report) add(packages []*tested) {
	for _, p := range packages {
		if len(p.tests) > 0 {
			r.packages = append(r.packages, timing{p.name, p.elapsed})
		}
		for _, name := range p.passedOnRetry {
			r.unstable = append(r.unstable, name+" of "+p.name)
		}
		for name, t := range p.tests {
			if !strings.Contains(name, "/") {
				r.tests = append(r.tests, timing{name + " of " + p.name, t.elapsed})
			}
			if t.action == "skip" {
				r.skips = append(r.skips, name+" of "+p.name)
			}
		}
		r.passed += p.count("pass")
		r.skipped += p.count("skip")
		if p.failed {
			r.failed += max(1, p.count("fail"))
		}
	}
}

func (r *report) print(w io.Writer, took time.Duration) {
	printSlowest(w, "packages", r.packages, len(r.packages))
	printSlowest(w, "tests", r.tests, mostTests)
	if slices.Sort(r.skips); len(r.skips) > 0 {
		fmt.Fprintf(w, "skipped:\n  %s\n", strings.Join(r.skips, "\n  "))
	}
	fmt.Fprintf(w, "in %v\n", took.Round(time.Second))
	for _, name := range r.unstable {
		fmt.Fprintf(w, "unstable: %s failed, and passed when it was retried\n", name)
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// mostTests is the number of tests that the report lists with their durations.
const mostTests = 20

func printSlowest(w io.Writer, title string, timings []timing, most int) {
	slices.SortFunc(timings, func(a, b timing) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Fprintf(w, "\n%s, slowest first:\n", title)
	for _, t := range timings[:min(len(timings), most)] {
		fmt.Fprintf(w, "%7.1fs  %s\n", t.elapsed.Seconds(), t.name)
	}
}

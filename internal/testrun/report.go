package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// report sums up the runs of go test.
type report struct {
	lines                   []packageTime
	unstable, skips         []string
	passed, failed, skipped int
}

type packageTime struct {
	name    string
	elapsed time.Duration
}

func (r *report) add(title string, packages []*tested) {
	for _, p := range packages {
		if len(p.tests) > 0 {
			r.lines = append(r.lines, packageTime{p.path + " (" + title + ")", p.elapsed})
		}
		for _, name := range p.again {
			r.unstable = append(r.unstable, fmt.Sprintf("%s of %s (%s)", name, p.path, title))
		}
		for name, t := range p.tests {
			if t.action == "skip" {
				r.skips = append(r.skips, fmt.Sprintf("%s of %s (%s)", name, p.path, title))
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
	slices.SortFunc(r.lines, func(a, b packageTime) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Fprintln(w, "\npackages, slowest first:")
	for _, line := range r.lines {
		fmt.Fprintf(w, "%7.1fs  %s\n", line.elapsed.Seconds(), line.name)
	}
	if slices.Sort(r.skips); len(r.skips) > 0 {
		fmt.Fprintf(w, "skipped:\n  %s\n", strings.Join(r.skips, "\n  "))
	}
	fmt.Fprintf(w, "in %v\n", took.Round(time.Second))
	for _, name := range r.unstable {
		fmt.Fprintf(w, "unstable: %s failed, and passed when it ran again\n", name)
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The tables of docs/performance.md stand between these lines.
const (
	partBegin = "<!-- Written by make bench; changes are lost. -->"
	partEnd   = "<!-- The end of what make bench writes. -->"
)

// write writes the tables of docs/performance.md, the charts, and the measurements that
// both are made of. Rows that this run has not measured keep their results.
func (r *report) write(root string, o options) {
	file := filepath.Join(root, "bench", "results.json")
	all := readReport(file)
	all.merge(r, rows(o))
	all.writeJSON(file)
	draw := func(name, picture string) {
		check(os.WriteFile(filepath.Join(root, "docs", "images", name), []byte(picture), 0o644))
	}
	drawn := charts(all.Results)
	for _, c := range drawn {
		draw(c.file(), c.picture())
	}
	if len(all.Samples) > 0 {
		draw(sustainedFile, sustainedPicture(all.Samples))
	}
	replacePart(filepath.Join(root, "docs", "performance.md"), all.page(drawn))
}

const sustainedFile = "bench-sustained.svg"

func (c chart) file() string { return "bench-" + c.name + ".svg" }

// readReport reads the results of earlier runs. There may be none.
func readReport(file string) *report {
	r := &report{}
	document, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}
	check(err)
	naming(file, func() { check(json.Unmarshal(document, r)) })
	return r
}

// merge takes over the results of a newer run, in the order of the rows. Results of
// rows that do not exist any more are dropped.
func (r *report) merge(newer *report, rows []row) {
	var merged []result
	for _, row := range rows {
		for _, from := range []*report{newer, r} {
			i := slices.IndexFunc(from.Results, func(one result) bool { return one.Work == row.work })
			if i < 0 {
				continue
			}
			one := from.Results[i]
			one.row = row
			merged = append(merged, one)
			break
		}
	}
	samples := r.Samples
	if len(newer.Samples) > 0 {
		samples = newer.Samples
	}
	*r = *newer
	r.Results, r.Samples = merged, samples
}

// page is the part of docs/performance.md that depends on results.
func (r *report) page(drawn []chart) string {
	var out strings.Builder
	var systems, others []result
	for _, one := range r.Results {
		if len(one.row.systems) == 2 && isPeer(one.row.systems[1]) {
			systems = append(systems, one)
		} else {
			others = append(others, one)
		}
	}
	r.writeSummary(&out)
	out.WriteString("\n## The tables\n\n### Where another system is ahead\n\n")
	ahead := 0
	for _, one := range systems {
		if one.Skipped == "" && one.behind() {
			ahead++
			fmt.Fprintf(&out, "- %s: %s (%s–%s)%s\n", one.Work, ratio(one.Median), ratio(slices.Min(one.Ratios)), ratio(slices.Max(one.Ratios)), one.doubt(1))
		}
	}
	if ahead == 0 {
		out.WriteString("In no row.\n")
	}
	runs := r.runs()
	out.WriteString("\nThe figures are ours divided by the other's, median and spread.\n\n### Charts\n\n")
	for _, c := range drawn {
		fmt.Fprintf(&out, "![%s](images/%s)\n\n", c.title, c.file())
	}
	if len(r.Samples) > 0 {
		fmt.Fprintf(&out, "![A fixed rate over time](images/%s)\n\n", sustainedFile)
	}
	out.WriteString("### Beside other systems\n\n")
	writeTable(&out, systems, runs)
	out.WriteString("\n### Beside the limits of Postgres, and alone\n\n")
	writeTable(&out, others, runs)
	out.WriteString("\nRuns:\n\n")
	for i, run := range runs {
		fmt.Fprintf(&out, "%d. %s\n", i+1, run)
	}
	return out.String()
}

// summary has the rows with which docs/performance.md begins, in the words of a reader who knows no other page.
var summary = []struct{ row, work, other string }{
	{"publish, batches of 1,000, beside an INSERT with one index", "publish events, 1,000 in a statement", "a bare INSERT"},
	{"publish, one per commit, 16 connections", "publish events, one in a transaction", "a bare INSERT"},
	{"take + settle, windows of 1,000, two workers", "read and settle events, 1,000 at a time", "a bare SELECT"},
	{"transactional handlers, one transaction each", "handle events, each in a transaction with an INSERT", "the same transaction by hand"},
	{"event latency at 100/s, p50", "from publishing an event to its handler, 100 events/s, median", ""},
	{"jobs that do nothing, one process, beside graphile-worker", "finish jobs that do nothing, in Go", "graphile-worker"},
	{"jobs in Node that do nothing, one process, beside graphile-worker", "finish jobs that do nothing, in Node", "graphile-worker"},
	{"jobs with an INSERT, one process, beside pg-boss", "finish jobs with an INSERT each", "pg-boss"},
	{"enqueue jobs 1,000 at once, beside graphile-worker", "enqueue jobs, 1,000 in a statement", "graphile-worker"},
	{"job latency at 100/s, p50, beside graphile-worker", "from enqueueing a job to its handler, 100 jobs/s, median", "graphile-worker"},
}

// writeSummary writes the table of ten rows with which the page begins.
func (r *report) writeSummary(out *strings.Builder) {
	out.WriteString("| work | Posthorn | best other | ratio (spread) | machine |\n|---|---|---|---|---|\n")
	for _, line := range summary {
		i := slices.IndexFunc(r.Results, func(one result) bool { return one.Work == line.row && one.Skipped == "" })
		if i < 0 {
			continue
		}
		cells := r.Results[i].cells()
		relation, ours, other := cells[3], cells[5], cells[6]
		if line.other == "" {
			other = "none measured"
		} else {
			other = line.other + ", " + other
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", line.work, ours, other, relation, machine(r.Results[i].Run))
	}
}

var packaging = regexp.MustCompile(` \([^)]*\)`)

// machine is the part of a run that says when and where it was.
func machine(run string) string {
	where, _, _ := strings.Cut(run, ";")
	return packaging.ReplaceAllString(where, "")
}

// isPeer reports whether a system is another one than Posthorn.
func isPeer(system string) bool { return labelOf(system) != "" && !isOurs(system) }

// runs are the runs that the results are from.
func (r *report) runs() (all []string) {
	for _, one := range r.Results {
		if !slices.Contains(all, one.Run) {
			all = append(all, one.Run)
		}
	}
	return all
}

// replacePart replaces the text between the two lines of a file.
func replacePart(file, part string) {
	before, rest, found := strings.Cut(string(must(os.ReadFile(file))), partBegin)
	_, after, ended := strings.Cut(rest, partEnd)
	if !found || !ended {
		fail("%s needs the lines %q and %q, between which results are written", file, partBegin, partEnd)
	}
	check(os.WriteFile(file, []byte(before+partBegin+"\n"+part+partEnd+after), 0o644))
}

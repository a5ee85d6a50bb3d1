package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The tables of docs/performance.md, and the chart of README.md, stand between these
// lines.
const (
	partBegin = "<!-- Written by make bench; changes are lost. -->"
	partEnd   = "<!-- The end of what make bench writes. -->"
)

// write writes the tables of docs/performance.md, the charts, and the measurements that
// both are made of. Rows that this run has not measured keep their results.
func (r *report) write(root string, o options) error {
	file := filepath.Join(root, "bench", "results.json")
	all, err := readReport(file)
	if err != nil {
		return err
	}
	all.merge(r, rows(o))
	if err := writeJSON(file, all); err != nil {
		return err
	}
	images := filepath.Join(root, "docs", "images")
	drawn := charts(all.Results)
	for _, c := range drawn {
		if err := os.WriteFile(filepath.Join(images, c.file()), []byte(c.picture()), 0o644); err != nil {
			return err
		}
	}
	if len(all.Samples) > 0 {
		if err := os.WriteFile(filepath.Join(images, sustainedFile), []byte(sustainedPicture(all.Samples)), 0o644); err != nil {
			return err
		}
	}
	if err := replacePart(filepath.Join(root, "docs", "performance.md"), all.page(drawn)); err != nil {
		return err
	}
	for _, c := range drawn {
		if c.name == "work" {
			part := fmt.Sprintf("[![%s](docs/images/%s)](docs/performance.md)\n", c.title, c.file())
			return replacePart(filepath.Join(root, "README.md"), part)
		}
	}
	return nil
}

const sustainedFile = "bench-sustained.svg"

func (c chart) file() string { return "bench-" + c.name + ".svg" }

// readReport reads the results of earlier runs. There may be none.
func readReport(file string) (*report, error) {
	document, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &report{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(document, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
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
	out.WriteString("### Where another system is ahead\n\n")
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

// isPeer reports whether a system is another one than Posthorn.
func isPeer(system string) bool {
	name := systemNames[system]
	return name != "" && !strings.HasPrefix(name, "Posthorn")
}

// runs are the runs that the results are from.
func (r *report) runs() (all []string) {
	for _, one := range r.Results {
		if !slices.Contains(all, one.Run) {
			all = append(all, one.Run)
		}
	}
	return all
}

func writeTable(out *strings.Builder, results []result, runs []string) {
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, one := range results {
		cells := one.cells()
		if len(runs) > 1 {
			cells[len(cells)-1] += fmt.Sprintf("; run %d", slices.Index(runs, one.Run)+1)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
}

// replacePart replaces the text between the two lines of a file.
func replacePart(file, part string) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(document), partBegin)
	_, after, ended := strings.Cut(rest, partEnd)
	if !found || !ended {
		return fmt.Errorf("%s needs the lines %q and %q, between which results are written", file, partBegin, partEnd)
	}
	return os.WriteFile(file, []byte(before+partBegin+"\n"+part+partEnd+after), 0o644)
}

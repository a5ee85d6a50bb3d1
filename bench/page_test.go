package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// measured is a result of an existing row, with the same values in two rounds.
func measured(work string, ours, peer float64) result {
	for _, r := range rows(options{}) {
		if r.work == work {
			one := result{row: r, Work: work, Unit: r.unit, Run: "today", rounds: []round{{ours, peer}, {ours, peer}}}
			one.sum()
			return one
		}
	}
	panic("no row " + work)
}

func TestPageAndChartsAreWritten(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	page := filepath.Join(root, "docs", "performance.md")
	for _, dir := range []string{"docs/images", "bench"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(page, []byte("before\n"+partBegin+"\nold\n"+partEnd+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const ahead, behind = "jobs that do nothing, one process, beside River", "enqueue jobs one by one, beside pg-boss"
	first := &report{Run: "today", Results: []result{measured(ahead, 30, 10), measured("event latency at 100/s, p50", 2, 1)}}
	first.Samples = map[string][]sample{jobsSystem: {{Seconds: 1, Done: 1000, Bytes: 1e6, Dead: 10}, {Seconds: 2, Done: 900, Bytes: 2e6}}}
	first.write(root, options{})
	second := &report{Run: "today", Results: []result{measured(behind, 10, 20)}}
	second.write(root, options{})
	document, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(document)
	for _, want := range []string{
		"before\n", "\nafter\n", "- " + behind + ": 0.50 (0.50–0.50)\n", "| " + ahead + " |", "(images/bench-work.svg)", "(images/bench-sustained.svg)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "old") || strings.Contains(got, "- "+ahead) {
		t.Errorf("got %s", got)
	}
	for file, label := range map[string]string{"work": "River", "enqueue": "pg-boss", "latency": "Posthorn, events", "sustained": "dead rows"} {
		if drawn := drawing(t, filepath.Join(root, "docs", "images", "bench-"+file+".svg")); !strings.Contains(drawn, label) {
			t.Errorf("no %q in %s", label, drawn)
		}
	}
}

// drawing returns the text of a picture, which must be well-formed.
func drawing(t *testing.T, file string) string {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var text strings.Builder
	for decoder := xml.NewDecoder(in); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if characters, ok := token.(xml.CharData); ok {
			text.Write(characters)
		}
	}
}

func TestQuickRowsExist(t *testing.T) {
	t.Parallel()
	o := options{}
	o.hurry()
	names := strings.Split(strings.Trim(quickRows, "^()"), "|")
	for _, name := range names {
		pattern := regexp.MustCompile("^" + name)
		found := false
		for _, r := range rows(o) {
			found = found || o.rows.MatchString(r.work) && pattern.MatchString(r.work)
		}
		if !found {
			t.Errorf("no row is called %q", name)
		}
	}
}

// The page in the tree is made of the results in the tree, and begins with ten rows.
func TestPageIsOfTheResults(t *testing.T) {
	t.Parallel()
	root := ".."
	all := readReport("results.json")
	all.merge(&report{}, rows(options{}))
	document, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(document), partBegin+"\n")
	part, _, _ = strings.Cut(part, partEnd)
	if want := all.page(charts(all.Results)); part != want {
		t.Errorf("the page has other tables than the results; it should have:\n%s", want)
	}
	var table strings.Builder
	all.writeSummary(&table)
	if lines := strings.Count(table.String(), "\n"); lines != 2+len(summary) || len(summary) != 10 {
		t.Errorf("the table has %d lines:\n%s", lines, table.String())
	}
}

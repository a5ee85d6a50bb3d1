package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

// module writes a module with one package for each entry of tests, and returns its
// units.
func module(t *testing.T, tests map[string]string) []unit {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	for name, text := range tests {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(name, "m_test.go"), "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n"+helper+text)
	}
	t.Setenv("GOWORK", "off")
	units, err := list(t.Context(), &server{version: "here"}, dir, "./...")
	if err != nil {
		t.Fatal(err)
	}
	return compiled(units, t.TempDir(), false)
}

// first reports whether it is called for the first time with this name.
const helper = `
func first(name string) bool { return os.Mkdir(name, 0o777) == nil }

func TestPasses(t *testing.T) { t.Run("subtest", func(t *testing.T) {}) }
`

func TestRetry(t *testing.T) {
	type outcome struct {
		failed  bool
		retried string
	}
	tests, want := map[string]string{}, map[string]outcome{}
	for name, pkg := range map[string]struct {
		tests string
		outcome
	}{
		"passes": {``, outcome{}},
		"once":   {`func TestOnce(t *testing.T) { if first("a") { t.Fatal("once") } }`, outcome{retried: "TestOnce"}},
		"twice": {`
			func TestOnce(t *testing.T) { if first("a") { t.Fatal("once") } }
			func TestTwice(t *testing.T) { if first("b") || first("c") { t.Fatal("twice") } }`, outcome{true, "TestOnce"}},
		"dies":     {`func TestPanics(t *testing.T) { if first("a") { panic("once") } }`, outcome{retried: "the whole package"}},
		"testmain": {`func TestMain(m *testing.M) { m.Run(); if first("a") { os.Exit(1) } }`, outcome{retried: "the whole package"}},
		"race":     {`func TestRaces(t *testing.T) { if first("a") { t.Fatal("WARNING: DATA RACE") } }`, outcome{failed: true}},
		"broken":   {`func TestBroken(t *testing.T) { broken }`, outcome{failed: true}},
	} {
		tests[name], want["m/"+name] = pkg.tests, pkg.outcome
	}
	packages, err := runAll(t.Context(), module(t, tests), "^")
	if err != nil {
		t.Fatal(err)
	}
	retry(t.Context(), packages)
	for _, p := range packages {
		if got := (outcome{p.failed, strings.Join(p.passedOnRetry, " ")}); got != want[p.path] {
			t.Errorf("%s: got %+v, want %+v", p.path, got, want[p.path])
		}
		delete(want, p.path)
	}
	if len(want) > 0 {
		t.Errorf("no result of %v", want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	skips, once := &test{action: "skip"}, &test{action: "pass", elapsed: 2 * time.Second}
	var r report
	r.add([]*tested{{unit: unit{name: "m (here)"}, elapsed: time.Second, tests: map[string]*test{"TestSkips": skips, "TestOnce": once}, passedOnRetry: []string{"TestOnce"}}})
	var text strings.Builder
	r.print(&text, time.Minute)
	for _, want := range []string{
		"1.0s  m (here)\n", "2.0s  TestOnce of m (here)\n", "skipped:\n  TestSkips of m (here)\n",
		"unstable: TestOnce of m (here) failed, and passed when it was retried\n", "tests: 1 passed, 0 failed, 1 skipped\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, text.String())
		}
	}
}

// An interrupted run ends the tests that run, which are processes of a process that it has
// started.
func TestInterruptEndsTheTests(t *testing.T) {
	units := module(t, map[string]string{"waits": `func TestWaits(t *testing.T) {
		first("runs")
		select {}
	}`})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = units[0].test(ctx, "^TestWaits$")
	}()
	await.True(t, "the test runs", func() bool {
		_, err := os.Stat(filepath.Join(units[0].dir, "runs"))
		return err == nil
	})
	cancel()
	await.Closed(t, "the run has ended, with all processes that write to its output", ended)
}

// Counts are loaded when an interrupted run continues.
func TestCountsAreKept(t *testing.T) {
	units := module(t, map[string]string{"p": `func TestAlways(t *testing.T) { t.Fatal("always") }`})
	c := readCounts(t, filepath.Join(t.TempDir(), "counts.json"))
	for round := 1; round <= 2; round++ {
		c.round(t.Context(), round, 3, units)
	}
	continued := readCounts(t, c.file)
	if continued.Rounds["m/p (here)"] != 2 || continued.Failures["m/p (here) TestAlways"] != 2 {
		t.Errorf("kept %v and %v, want two rounds and two failures", continued.Rounds, continued.Failures)
	}
	continued.round(t.Context(), 2, 3, units) // this round is complete
	if continued.Rounds["m/p (here)"] != 2 {
		t.Errorf("%d rounds, want 2", continued.Rounds["m/p (here)"])
	}
	if err := continued.print(units); err == nil {
		t.Error("a run with failures passes")
	}
}

func readCounts(t *testing.T, file string) *counts {
	t.Helper()
	c, err := loadCounts(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A package that was renamed would start late.
func TestSlowestPackagesExist(t *testing.T) {
	t.Parallel()
	for _, name := range append(slices.Clone(slowest), longest) {
		if _, err := os.Stat(filepath.Join("..", "..", "..", filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

// Tests have a minute to notice a mutant. A test that waits in vain fails before, so
// that it is named.
const (
	minute   = time.Minute
	waitFor  = "POSTHORN_TEST_WAIT=15s"
	baseline = 10 * time.Minute // for all tests together, without a mutant
)

// workshop has a Postgres server, the compiled tests of each package, and a searcher.
type workshop struct {
	searcher *searcher
	dir      *testdir.Dir
	server   *server
	programs map[string]string // by package
	verbose  bool
}

func newWorkshop(ctx context.Context, verbose bool) (*workshop, error) {
	dir, err := testdir.Make("mutants-")
	if err != nil {
		return nil, err
	}
	w := &workshop{dir: dir, programs: map[string]string{}, verbose: verbose}
	if w.server, err = startServer(ctx, dir); err == nil {
		w.searcher, err = newSearcher(ctx)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close stops the server and removes the directory.
func (w *workshop) close() {
	if w.searcher != nil {
		w.searcher.close()
	}
	_ = w.dir.Remove()
}

// tryAll tries the mutants one after another, after it has seen that the tests pass
// without any.
func (w *workshop) tryAll(ctx context.Context, mutants []mutant, kept *results) error {
	var tests []testName
	for _, m := range mutants {
		tests = append(tests, m.tests...)
	}
	for _, pkg := range packages(tests) {
		if err := w.checkBaseline(ctx, tests, pkg); err != nil {
			return err
		}
	}
	if err := w.server.findTemplate(ctx); err != nil {
		return err
	}
	for _, m := range mutants {
		began := time.Now()
		found := w.try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := kept.keep(m, time.Since(began), found); err != nil {
			return err
		}
	}
	return nil
}

// checkBaseline runs the tests of a package without a mutant.
func (w *workshop) checkBaseline(ctx context.Context, tests []testName, pkg string) error {
	program := filepath.Join(w.dir.Path, "tests."+strings.ReplaceAll(pkg, "/", "."))
	if err := compile(ctx, pkg, program, ""); err != nil {
		return err
	}
	w.programs[pkg] = program
	began := time.Now()
	output, err := w.runTests(ctx, pkg, trial{program, pattern(tests, pkg), "", baseline, true})
	if err != nil {
		return fmt.Errorf("without a mutant, tests of %s fail: %w\n%s", pkg, err, output)
	}
	for _, t := range tests {
		if t.pkg == pkg && !slices.Contains(ended(output, "PASS"), t.name) {
			return fmt.Errorf("%s has no test %s, or skips it", pkg, t.name)
		}
	}
	fmt.Printf("without a mutant, the tests of %s pass in %.1fs\n", pkg, time.Since(began).Seconds())
	return nil
}

// try searches the scenarios of a mutant, and runs its tests, until one notices it: the tests
// first with the sizes of make test, then with those of make test-all, which do all that the
// others do.
func (w *workshop) try(ctx context.Context, m mutant) result {
	text, err := m.mutate(".")
	if err != nil {
		return result{Error: err.Error()}
	}
	if r, err := w.searcher.search(ctx, m, text); err != nil || r.First != nil || len(m.tests) == 0 {
		return searched(r, err)
	}
	overlay := ""
	if m.isApplied() {
		err = w.server.apply(ctx, text)
	} else {
		err = w.server.restore(ctx)
		if err == nil {
			overlay, err = w.writeOverlay(m.file, text)
		}
	}
	if err != nil {
		return result{Error: err.Error()}
	}
	programs, err := w.compileMutant(ctx, m, overlay)
	if err != nil {
		return result{Error: err.Error()}
	}
	last := "no test failed"
	for _, all := range []bool{false, true} {
		for _, pkg := range packages(m.tests) {
			found := w.tryPackage(ctx, m, pkg, trial{programs[pkg], pattern(m.tests, pkg), overlay, minute, all})
			if found.Noticed != "" {
				found.All = all
				return found
			}
			last = found.Error
		}
	}
	return result{Error: last}
}

// compileMutant returns the tests' programs by package, which are compiled if there is an
// overlay.
func (w *workshop) compileMutant(ctx context.Context, m mutant, overlay string) (map[string]string, error) {
	if overlay == "" {
		return w.programs, nil
	}
	programs := map[string]string{}
	for _, pkg := range packages(m.tests) {
		programs[pkg] = filepath.Join(w.dir.Path, "mutant."+strings.ReplaceAll(pkg, "/", "."))
		if err := compile(ctx, pkg, programs[pkg], overlay); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// trial is a run of some tests of a package.
type trial struct {
	program, pattern, overlay string
	limit                     time.Duration
	all                       bool // with the sizes of make test-all
}

func (w *workshop) tryPackage(ctx context.Context, m mutant, pkg string, of trial) result {
	output, err := w.runTests(ctx, pkg, of)
	if w.verbose {
		fmt.Printf("%s\n", output)
	}
	if err == nil {
		return result{Error: "no test failed"}
	}
	for _, t := range m.tests {
		if slices.Contains(ended(output, "FAIL"), t.name) {
			return result{Noticed: t.name}
		}
	}
	if run := slices.DeleteFunc(slices.Clone(m.tests), func(t testName) bool { return t.pkg != pkg }); len(run) == 1 && panicked(output) {
		return result{Noticed: run[0].name} // a panic outside the test's goroutine names no test
	}
	return result{Error: fmt.Sprintf("%s: %s", err, lastLine(output))}
}

// writeOverlay writes the changed file, and the file that makes the compiler use it.
func (w *workshop) writeOverlay(file, text string) (string, error) {
	original, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(w.dir.Path, "changed"+filepath.Ext(file))
	overlay := filepath.Join(w.dir.Path, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	return overlay, errors.Join(err, os.WriteFile(changed, []byte(text), 0o644), os.WriteFile(overlay, replace, 0o644))
}

func compile(ctx context.Context, pkg, program, overlay string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", program, "./"+pkg)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w: %s", pkg, err, output)
	}
	return nil
}

// runTests runs some tests of a package, which share the server. Programs that they
// build have the change of the overlay, too.
func (w *workshop) runTests(ctx context.Context, pkg string, of trial) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, of.limit+minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, of.program, "-test.v", "-test.failfast", "-test.timeout="+of.limit.String(), "-test.run="+of.pattern)
	cmd.Dir, cmd.Env = pkg, append(os.Environ(), w.server.env...)
	cmd.Env = append(cmd.Env, testsize.Variable+"="+map[bool]string{true: "yes"}[of.all])
	if of.limit == minute {
		cmd.Env = append(cmd.Env, waitFor)
	}
	if of.overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+of.overlay)
	}
	cmd.WaitDelay = 10 * time.Second
	output := &firstFailure{stop: cancel}
	cmd.Stdout, cmd.Stderr = output, output
	err := cmd.Run()
	return output.text.String(), err
}

// firstFailure collects the output of tests, and stops them when one of them has failed:
// others may wait in vain after that.
type firstFailure struct {
	text bytes.Buffer
	stop context.CancelFunc
}

var failure = []byte("\n--- FAIL: ")

func (f *firstFailure) Write(p []byte) (int, error) {
	before := max(0, f.text.Len()-len(failure))
	n, err := f.text.Write(p)
	if seen := f.text.Bytes()[before:]; bytes.Contains(seen, failure) && bytes.HasSuffix(seen, []byte("\n")) {
		f.stop()
	}
	return n, err
}

var endOfTest = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// ended returns the tests that ended in a way, with subtests.
func ended(output, way string) (names []string) {
	for _, match := range endOfTest.FindAllStringSubmatch(output, -1) {
		if match[1] == way {
			names = append(names, match[2])
		}
	}
	return names
}

func panicked(output string) bool {
	return strings.Contains("\n"+output, "\npanic: ") && !strings.Contains(output, "\npanic: test timed out")
}

// lastLine returns the line that says why a process ended: its last one, or the test
// that ran when the minute was over.
func lastLine(output string) string {
	if _, after, timedOut := strings.Cut(output, "\npanic: test timed out"); timedOut {
		_, after, _ = strings.Cut(after, "running tests:\n")
		running, _, _ := strings.Cut(after, "\n")
		return "still running: " + strings.TrimSpace(running)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

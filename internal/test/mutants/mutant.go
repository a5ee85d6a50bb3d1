package main

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/internal/schedule/scenarios"
)

//go:embed *.txt
var data embed.FS

// mutant is a small change that breaks a promise.
type mutant struct {
	place       string // file and line of the data, for messages
	name        string
	file        string
	text        string // occurs once in file
	replacement string
	promise     string
	tests       []testName // those that ought to notice the change
	scenarios   []string   // of internal/schedule, which ought to notice it, too
	survives    string     // why no test notices it; mostly empty
	compiled    string     // why functions of SQL are compiled and not applied; mostly empty
}

// testName is a test, or a subtest after a slash.
type testName struct{ pkg, name string }

// loadMutants reads the data files.
func loadMutants(files fs.FS) ([]mutant, error) {
	names, err := fs.Glob(files, "*.txt")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		listed, err := parse(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, listed...)
	}
	return all, nil
}

// parse reads mutants in the format that the package's documentation shows.
func parse(file, text string) ([]mutant, error) {
	var all []mutant
	for n, line := range strings.Split(text, "\n") {
		place := fmt.Sprintf("%s:%d", file, n+1)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, begins := strings.CutPrefix(line, "mutant: "); begins {
			all = append(all, mutant{place: place, name: name})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: the first line is not like: mutant: name", place)
		}
		if !all[len(all)-1].take(line) {
			return nil, fmt.Errorf("%s: neither text nor a known field: %s", place, line)
		}
	}
	for i := range all {
		all[i].text = strings.TrimSuffix(all[i].text, "\n")
		all[i].replacement = strings.TrimSuffix(all[i].replacement, "\n")
	}
	return all, nil
}

// take adds one line of the data, and reports whether it is known.
func (m *mutant) take(line string) bool {
	field, value, _ := strings.Cut(line, " ")
	switch field {
	case "-":
		m.text += value + "\n"
	case "+":
		m.replacement += value + "\n"
	case "file:":
		m.file = value
	case "promise:":
		m.promise = value
	case "survives:":
		m.survives = value
	case "compiled:":
		m.compiled = value
	case "scenarios:":
		m.scenarios = strings.Fields(value)
	case "tests:":
		names := strings.Fields(value)
		for _, name := range names[min(1, len(names)):] {
			m.tests = append(m.tests, testName{names[0], name})
		}
	default:
		return false
	}
	return true
}

// mutate returns the file of root with the change.
func (m mutant) mutate(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(content), m.text); m.text == "" || n != 1 {
		return "", fmt.Errorf("the text occurs %d times in %s, not once", n, m.file)
	}
	return strings.Replace(string(content), m.text, m.replacement, 1), nil
}

// check returns the first error in a mutant: a file, text or test that does not exist.
func (m mutant) check(root string) error {
	if m.promise == "" || len(m.tests)+len(m.scenarios) == 0 && m.survives == "" {
		return fmt.Errorf("%s: %s: promise or tests are missing", m.place, m.name)
	}
	for _, name := range m.scenarios {
		if scenarios.Named(name) == nil || !m.isSQL() {
			return fmt.Errorf("%s: %s: there is no scenario %s, or it uses no functions of the file", m.place, m.name, name)
		}
	}
	if m.text == m.replacement {
		return fmt.Errorf("%s: %s changes nothing", m.place, m.name)
	}
	if _, err := m.mutate(root); err != nil {
		return fmt.Errorf("%s: %s: %w", m.place, m.name, err)
	}
	for _, t := range m.tests {
		if exists, err := t.exists(root); err != nil || !exists {
			return fmt.Errorf("%s: %s: %s has no test %s: %w", m.place, m.name, t.pkg, t.name, cmp.Or(err, fs.ErrNotExist))
		}
	}
	return nil
}

// checkAll checks all mutants, and that no two have one name or make the same change.
func checkAll(root string, all []mutant) (problems []error) {
	seen := map[string]string{}
	for _, m := range all {
		if err := m.check(root); err != nil {
			problems = append(problems, err)
		}
		for _, key := range []string{m.name, m.file + "\x00" + m.text + "\x00" + m.replacement} {
			if earlier, twice := seen[key]; twice {
				problems = append(problems, fmt.Errorf("%s: %s is at %s, too", m.place, m.name, earlier))
			}
			seen[key] = m.place
		}
	}
	return problems
}

// exists looks for the test in the package's files. Subtests are not looked for, since
// many have names that are computed.
func (t testName) exists(root string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(root, t.pkg, "*_test.go"))
	if err != nil {
		return false, err
	}
	name, _, _ := strings.Cut(t.name, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		if declared.Match(text) {
			return true, nil
		}
	}
	return false, nil
}

// isApplied reports whether the file has functions of SQL, which are applied to a
// database. Other files are compiled.
func (m mutant) isApplied() bool { return m.isSQL() && m.compiled == "" }

func (m mutant) isSQL() bool {
	matched, _ := path.Match("schema/functions/*/*/*.sql", m.file)
	return matched
}

// packages returns the packages of the tests, sorted.
func packages(tests []testName) []string {
	var names []string
	for _, t := range tests {
		names = append(names, t.pkg)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pattern is the argument of -test.run that selects the tests of a package.
func pattern(tests []testName, pkg string) string {
	var names []string
	for _, t := range tests {
		if t.pkg == pkg {
			names = append(names, "^"+strings.ReplaceAll(t.name, "/", "$/^")+"$")
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "|")
}

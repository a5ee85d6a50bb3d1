package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// findings are the violations that a checker found.
type findings struct {
	kinds      []string // all kinds that the checker can find, in the order of the report
	violations map[string][]string
}

func newFindings(kinds ...string) *findings {
	return &findings{kinds: kinds, violations: map[string][]string{}}
}

func (f *findings) report(kind, format string, args ...any) {
	f.violations[kind] = append(f.violations[kind], fmt.Sprintf(format, args...))
}

// verdicts lists the kinds with the number of their violations.
func (f *findings) verdicts() string {
	var verdicts []string
	for _, kind := range f.kinds {
		verdicts = append(verdicts, fmt.Sprintf("%s %d", kind, len(f.violations[kind])))
	}
	return strings.Join(verdicts, ", ")
}

// shown is the number of violations to list for each kind.
const shown = 10

// report ends the clients, runs the checks, and prints a summary in one line and the
// violations.
func (r *run) report(p part) {
	r.end()
	counts, found := p.check()
	var injected []string
	for _, name := range slices.Sorted(maps.Keys(r.injected)) {
		injected = append(injected, fmt.Sprintf("%s %d", name, r.injected[name]))
	}
	r.t.Logf("%s, seed %d, %s, %d kills (%s): %s; %s", r.t.Name(), r.seed, r.database.version, r.kills.Load(),
		strings.Join(injected, ", "), counts, found.verdicts())
	for kind, violations := range found.violations {
		r.t.Errorf("%s: %d, among them:", kind, len(violations))
		for _, v := range violations[:min(shown, len(violations))] {
			r.t.Error("\t" + v)
		}
	}
}

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// findings are the violations that a checker found.
type findings struct {
	kinds      []string // all that it looks for, in the order of the report
	violations map[string][]string
}

func newFindings(kinds ...string) *findings {
	return &findings{kinds: kinds, violations: map[string][]string{}}
}

func (f *findings) report(kind, format string, args ...any) {
	f.violations[kind] = append(f.violations[kind], fmt.Sprintf(format, args...))
}

// verdicts are the kinds with how often each was found.
func (f *findings) verdicts() string {
	var verdicts []string
	for _, kind := range f.kinds {
		verdicts = append(verdicts, fmt.Sprintf("%s %d", kind, len(f.violations[kind])))
	}
	return strings.Join(verdicts, ", ")
}

// shown is how many violations of a kind are listed.
const shown = 10

// report ends the clients, checks everything and prints one line, fit for documents,
// and the violations.
func (r *run) report(p part) {
	r.end()
	counts, found := p.check()
	var struck []string
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		struck = append(struck, fmt.Sprintf("%s %d", name, r.struck[name]))
	}
	r.t.Logf("%s, seed %d, PostgreSQL %s, %d kills (%s): %s; %s", r.t.Name(), r.seed, r.database.server.Version(), r.kills.Load(),
		strings.Join(struck, ", "), counts, found.verdicts())
	for kind, violations := range found.violations {
		r.t.Errorf("%s: %d, among them:", kind, len(violations))
		for _, v := range violations[:min(shown, len(violations))] {
			r.t.Error("\t" + v)
		}
	}
}

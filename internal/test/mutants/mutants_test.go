package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each mutant changes a text that is there once, and names tests that exist.
func TestMutantsAreValid(t *testing.T) {
	t.Parallel()
	all, err := loadMutants(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkAll("../../..", all) {
		t.Error(problem)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	all, err := parse("jobs.txt", `# Jobs.

mutant: a
file: a.sql
promise: holds
tests: internal/guarantee TestA TestB/C
tests: archive TestD
- one
-   two
+ three

mutant: b
file: b.go
survives: nobody can tell
- four
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []mutant{
		{
			place: "jobs.txt:3", name: "a", file: "a.sql", promise: "holds", text: "one\n  two", replacement: "three",
			tests: []testName{{"internal/guarantee", "TestA"}, {"internal/guarantee", "TestB/C"}, {"archive", "TestD"}},
		},
		{place: "jobs.txt:12", name: "b", file: "b.go", survives: "nobody can tell", text: "four"},
	}
	if diff := cmp.Diff(want, all, cmp.AllowUnexported(mutant{}, testName{})); diff != "" {
		t.Errorf("parsed (-want +got):\n%s", diff)
	}
	if got, want := pattern(all[0].tests, "internal/guarantee"), "^TestA$|^TestB$/^C$"; got != want {
		t.Errorf("pattern %q, want %q", got, want)
	}
	if _, err := parse("x.txt", "mutant: a\nfiel: b"); err == nil {
		t.Error("a field that is not known is accepted")
	}
}

func TestWrongMutantsAreRefused(t *testing.T) {
	t.Parallel()
	right := mutant{
		name: "right", file: "mutant.go", promise: "p", text: "package main", replacement: "package other",
		tests: []testName{{".", "TestParse"}},
	}
	if problems := checkAll(".", []mutant{right}); len(problems) > 0 {
		t.Error(problems)
	}
	for name, change := range map[string]func(m *mutant){
		"text that is missing": func(m *mutant) { m.text = "packages " + "main" },
		"text that is twice":   func(m *mutant) { m.text = "return" },
		"no change":            func(m *mutant) { m.replacement = m.text },
		"no promise":           func(m *mutant) { m.promise = "" },
		"no tests":             func(m *mutant) { m.tests = nil },
		"unknown test":         func(m *mutant) { m.tests[0].name = "TestPars" },
		"unknown file":         func(m *mutant) { m.file = "none.go" },
	} {
		wrong := right
		wrong.tests = []testName{{".", "TestParse"}}
		change(&wrong)
		if problems := checkAll(".", []mutant{wrong}); len(problems) != 1 {
			t.Errorf("%s: %v", name, problems)
		}
	}
	if problems := checkAll(".", []mutant{right, right}); len(problems) != 2 {
		t.Errorf("the same twice: %v", problems)
	}
}

// A run fails with a survivor, with too many that have a reason, and with too many that only
// make test-all notices.
func TestNumbers(t *testing.T) {
	t.Parallel()
	r := &results{all: map[string]result{"a": {Noticed: "TestA"}, "b": {Error: "no test failed"}, "d": {Noticed: "TestA", All: true}}}
	nineteen := make([]mutant, 0, 20)
	for i := range 19 {
		name := fmt.Sprint("like a ", i)
		nineteen = append(nineteen, mutant{name: name})
		r.all[name] = r.all["a"]
	}
	for _, test := range []struct {
		mutants []mutant
		line    string
		passes  bool
	}{
		{[]mutant{{name: "a"}}, "mutants: make test notices 1 of 1, make test-all 1; 0 survived with a reason, 0 survived\n", true},
		{[]mutant{{name: "a"}, {name: "b"}}, "mutants: make test notices 1 of 2, make test-all 1; 0 survived with a reason, 1 survived\n", false},
		{[]mutant{{name: "a"}, {name: "b", survives: "so"}}, "mutants: make test notices 1 of 2, make test-all 1; 1 survived with a reason, 0 survived\n", false},
		{[]mutant{{name: "a"}, {name: "c"}}, "mutants: make test notices 1 of 1, make test-all 1; 0 survived with a reason, 0 survived\n", false},
		{append(nineteen, mutant{name: "d"}), "mutants: make test notices 19 of 20, make test-all 20; 0 survived with a reason, 0 survived\n", true},
		{[]mutant{{name: "a"}, {name: "d"}}, "mutants: make test notices 1 of 2, make test-all 2; 0 survived with a reason, 0 survived\n", false},
	} {
		var text strings.Builder
		if err := r.print(&text, test.mutants); (err == nil) != test.passes || !strings.HasSuffix(text.String(), test.line) {
			t.Errorf("%v: %v\n%s", test.mutants, err, text.String())
		}
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	all := make([]mutant, 10)
	for i := range all {
		all[i].name = fmt.Sprint(i)
	}
	for every, want := range map[int]string{1: "0123456789", 3: "0369", 9: "09", 20: "0"} {
		some, err := sample(all, every)
		got := ""
		for _, m := range some {
			got += m.name
		}
		if err != nil || got != want {
			t.Errorf("every %d: got %s, %v, want %s", every, got, err, want)
		}
	}
	if _, err := sample(all, 0); err == nil {
		t.Error("a sample of every 0 is taken")
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// result tells how the tests took a mutant.
type result struct {
	Noticed string // the test that failed; empty if none did
	All     bool   // it failed with the sizes of make test-all only
	Error   string // why there is no failed test: "no test failed", a timeout, or a change that does not compile
	Seconds float64
}

// results are those of one commit. They are saved to a file, so that an interrupted
// run can be continued.
type results struct {
	file string
	all  map[string]result
}

func openResults(ctx context.Context) (*results, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").Output()
	if err != nil {
		return nil, fmt.Errorf("read the commit from git: %w", err)
	}
	name := strings.TrimSpace(string(commit))
	r := &results{file: filepath.Join(".cache", "mutants", name+".json"), all: map[string]result{}}
	if strings.HasSuffix(name, "-dirty") { // the same name may stand for other changes
		return r, os.MkdirAll(filepath.Dir(r.file), 0o755)
	}
	text, err := os.ReadFile(r.file)
	if errors.Is(err, os.ErrNotExist) {
		return r, os.MkdirAll(filepath.Dir(r.file), 0o755)
	}
	if err == nil {
		err = json.Unmarshal(text, &r.all)
	}
	return r, err
}

func (r *results) of(m mutant) (result, bool) {
	found, has := r.all[m.name]
	return found, has
}

func (r *results) keep(m mutant, took time.Duration, found result) error {
	found.Seconds = took.Seconds()
	r.all[m.name] = found
	fmt.Printf("%-8s %6.1fs  %s%s\n", found.verdict(m), found.Seconds, m.name, found.detail())
	text, err := json.MarshalIndent(r.all, "", "\t")
	if err == nil {
		err = os.WriteFile(r.file+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(r.file+".new", r.file)
	}
	return err
}

func (r result) verdict(m mutant) string {
	switch {
	case r.Noticed != "" && r.All:
		return "late"
	case r.Noticed != "":
		return "noticed"
	case m.survives != "":
		return "known"
	default:
		return "SURVIVED"
	}
}

func (r result) detail() string {
	if r.Noticed != "" {
		return ": " + r.Noticed
	}
	return ": " + r.Error
}

// enough is how many of a hundred mutants must be noticed, and how many of a hundred noticed
// ones make test must notice.
const enough = 95

// print lists the mutants that only make test-all notices, the survivors and the numbers. It
// returns an error if there is a survivor without a reason, or too many with one, or if make
// test notices too few.
func (r *results) print(w io.Writer, mutants []mutant) error {
	noticed, late, known, survivors := 0, 0, 0, 0
	for _, m := range mutants {
		found, has := r.of(m)
		if !has {
			continue
		}
		switch verdict := found.verdict(m); verdict {
		case "noticed", "late":
			noticed++
			if verdict == "late" {
				late++
				fmt.Fprintf(w, "\n%s: %s is noticed by make test-all only: %s\n", m.place, m.name, found.Noticed)
			}
			if m.survives != "" {
				fmt.Fprintf(w, "\n%s: %s is noticed now, so its reason to survive is out of date\n", m.place, m.name)
			}
		case "known":
			known++
			fmt.Fprintf(w, "\n%s: %s survives: %s\n", m.place, m.name, m.survives)
		default:
			survivors++
			fmt.Fprintf(w, "\n%s: %s (%s) SURVIVED: %s\n  promise: %s\n", m.place, m.name, m.file, found.Error, m.promise)
		}
	}
	tried := noticed + known + survivors
	fmt.Fprintf(w, "\nmutants: make test notices %d of %d, make test-all %d; %d survived with a reason, %d survived\n", noticed-late, tried, noticed, known, survivors)
	switch {
	case tried < len(mutants):
		return fmt.Errorf("%d mutants were not tried", len(mutants)-tried)
	case survivors > 0:
		return errors.New("there are survivors without a reason")
	case noticed*100 < enough*tried:
		return fmt.Errorf("fewer than %d of 100 are noticed", enough)
	case (noticed-late)*100 < enough*noticed:
		return fmt.Errorf("of those that make test-all notices, make test notices fewer than %d of 100", enough)
	}
	return nil
}

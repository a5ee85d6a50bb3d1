package testtree_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateDecisions = flag.Bool("update", false, "write docs/decisions/README.md")

var (
	decisionTitle = regexp.MustCompile(`^# (\d{4}): (.+)\n`)
	successor     = regexp.MustCompile(`(?m)^Replaced( in part)? by (\[.*?\)(?: and \[.*?\))?)`)
)

// The index of decisions has the title of each, and the decision that replaced it. A
// decision names its successor in the line below its title.
func TestDecisionsAreListed(t *testing.T) {
	files, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	index := "# Decisions\n\nWhy things are as they are. Where a decision has a successor, that one holds. `make generate` writes this page.\n\n" +
		"| | decision | state |\n|---|---|---|\n"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		title := decisionTitle.FindStringSubmatch(string(text))
		if title == nil || !strings.HasPrefix(filepath.Base(file), title[1]) {
			t.Fatalf("%s does not begin with its number and title", file)
		}
		state := "holds"
		if replaced := successor.FindStringSubmatch(string(text)); replaced != nil {
			state = fmt.Sprintf("replaced%s by %s", replaced[1], replaced[2])
		}
		index += fmt.Sprintf("| %s | [%s](%s) | %s |\n", title[1], title[2], filepath.Base(file), state)
	}
	const page = "docs/decisions/README.md"
	if *updateDecisions {
		if err := os.WriteFile(page, []byte(index), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if current, err := os.ReadFile(page); err != nil || string(current) != index {
		t.Errorf("the index of decisions is out of date (%v); run: make generate", err)
	}
}

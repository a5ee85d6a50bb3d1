package posthorn_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Go in the guides is taken from tests, so it compiles.
func TestGuidesShowCodeThatCompiles(t *testing.T) {
	code := testCode(t)
	guides, err := filepath.Glob("docs/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("guides %v, %v", guides, err)
	}
	blocks := 0
	for _, guide := range guides {
		if guide == "docs/design.md" {
			continue // its code shows shapes, not calls
		}
		page, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range goBlock.FindAllStringSubmatch(string(page), -1) {
			blocks++
			if !strings.Contains(code, flat(match[1])) {
				t.Errorf("%s shows what no test has:\n%s", guide, match[1])
			}
		}
	}
	if blocks < 10 {
		t.Errorf("found %d blocks of Go; the fences have changed", blocks)
	}
}

// testCode is all test files, flat.
func testCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		all.WriteString(flat(string(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// flat is code without indentation and empty lines.
func flat(code string) string {
	var out strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

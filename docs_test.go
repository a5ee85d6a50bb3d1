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

// Each block of Go in the guides is a part of a test file, so it compiles.
func TestGuidesShowCodeThatCompiles(t *testing.T) {
	code := testCode(t)
	guides, err := filepath.Glob("docs/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("guides %v, %v", guides, err)
	}
	blocks := 0
	for _, guide := range guides {
		page, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range goBlock.FindAllStringSubmatch(string(page), -1) {
			blocks++
			if !strings.Contains(code, flat(match[1])) {
				t.Errorf("%s shows code that no test has:\n%s", guide, match[1])
			}
		}
	}
	if blocks < 10 {
		t.Errorf("found %d blocks of Go; the fences have changed", blocks)
	}
}

// testCode returns all test files, as flat does.
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

// flat removes indentation and empty lines.
func flat(code string) string {
	var out strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Links between pages name existing pages and headings.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			if !strings.Contains(match[1], "://") && !leadsSomewhere(t, page, match[1]) {
				t.Errorf("%s links to %s, which is not there", page, match[1])
			}
		}
	}
}

func leadsSomewhere(t *testing.T, page, to string) bool {
	t.Helper()
	file, anchor, _ := strings.Cut(to, "#")
	if file = filepath.Join(filepath.Dir(page), file); strings.HasPrefix(to, "#") {
		file = page
	}
	if anchor == "" {
		_, err := os.Stat(file)
		return err == nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for _, match := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		words := dropped.ReplaceAllString(strings.ToLower(match[1]), "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}

var (
	inBackticks = regexp.MustCompile("`([^`\n]+)`")
	treePath    = regexp.MustCompile(`^(archive|bench|cmd|internal|localpg|posthorntest|relay|schema|seal|server)/[\w/.-]+$|^([a-z]+/)?\w+\.sql$|^[a-z_]+\.go$`)
	sqlName     = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
)

// The design pages name only files and SQL that exist.
func TestDesignNamesWhatExists(t *testing.T) {
	sql := schemaSQL(t)
	for _, name := range []string{"design", "log", "groups", "jobs", "pipeline"} {
		page, err := os.ReadFile(filepath.Join("docs", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range inBackticks.FindAllStringSubmatch(fenced.ReplaceAllString(string(page), ""), -1) {
			switch {
			case treePath.MatchString(match[1]) && !isInTree(match[1]):
				t.Errorf("docs/%s.md names the file %s, which is not there", name, match[1])
			case sqlName.MatchString(match[1]) && !strings.Contains(sql, match[1]):
				t.Errorf("docs/%s.md names %s, which no SQL has", name, match[1])
			}
		}
	}
}

var testName = regexp.MustCompile("`(Test[A-Z]\\w*)[`/]")

// The pages name only tests that exist: a guarantee without its test may be broken.
func TestPagesNameTestsThatExist(t *testing.T) {
	code := testCode(t)
	named := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %v, %v", pattern, pages, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range testName.FindAllStringSubmatch(string(text), -1) {
				named++
				if !strings.Contains(code, "func "+match[1]+"(") {
					t.Errorf("%s names %s, which is not a test", page, match[1])
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("found %d names of tests; the pages have changed", named)
	}
}

// isInTree finds files by their path, SQL also by folder or name alone, and Go also by name alone.
func isInTree(path string) bool {
	for _, pattern := range []string{path, "schema/functions/" + path, "schema/functions/*/" + path, "internal/*/" + path} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

func schemaSQL(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"schema/migrations/*.sql", "schema/functions/*/*.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(content)
		}
	}
	return all.String()
}

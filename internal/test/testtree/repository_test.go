package testtree_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// seed 000.65, 000.66: every option has a doc comment. The comments of tuning
// options name the cost of a higher and of a lower value, and the default.
func TestOptionsAreDocumented(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !regexp.MustCompile(`^[A-Z]\w*Config$|^Config$`).MatchString(spec.Name.Name) {
				return true
			}
			options, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			doc, line := "", 0
			for _, field := range options.Fields.List {
				switch {
				case field.Doc != nil:
					doc = field.Doc.Text()
				case files.Position(field.Pos()).Line != line+1:
					doc = "" // a field right below another one shares its comment
				}
				line = files.Position(field.End()).Line
				for _, name := range field.Names {
					docs[spec.Name.Name+"."+name.Name] = doc
				}
			}
			return false
		})
	}
	for option, doc := range docs {
		if doc == "" {
			t.Errorf("%s is not documented", option)
		}
	}
	tuning := []string{
		"Config.MaxConns", "Config.DrainFor",
		"GroupConfig.Concurrency", "GroupConfig.BatchSize", "GroupConfig.LeaseFor", "GroupConfig.IdlePoll", "GroupConfig.Slots",
	}
	tradeOff := regexp.MustCompile(`(?i)\b(more|fewer|longer|shorter|larger?|smaller?|how many)\b`)
	for _, option := range tuning {
		if doc := docs[option]; !tradeOff.MatchString(doc) || !regexp.MustCompile(`(?i)default`).MatchString(doc) {
			t.Errorf("%s names no cost or no default: %q", option, doc)
		}
	}
	for _, option := range slices.Concat(tuning, []string{
		"Config.DatabaseURL", "Config.Namespace", "Config.ApplicationName", "Config.Logger",
	}) {
		if _, ok := docs[option]; !ok {
			t.Errorf("%s does not exist", option)
		}
	}
}

// A program that imports this package gets the driver, the API of OpenTelemetry and their
// dependencies, but no dependencies of the command line or the server, and no SDKs.
func TestTheLibraryNeedsLittle(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"github.com/posthorn/posthorn/admin", "github.com/posthorn/posthorn/internal/", "github.com/posthorn/posthorn/schema", "github.com/posthorn/posthorn/seal",
		"github.com/jackc/", "golang.org/x/sync/", "golang.org/x/text/",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr/", "github.com/cespare/xxhash/",
	}
	refused := []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/posthorn/posthorn/internal/test", "github.com/posthorn/posthorn/seal/"}
	for _, path := range dependencies(t, ".") {
		isOf := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
		if path != "github.com/posthorn/posthorn" && !slices.ContainsFunc(allowed, isOf) || slices.ContainsFunc(refused, isOf) {
			t.Errorf("the library needs %s", path)
		}
	}
}

// New users wait for the compiler, so the program does not contain large clients that
// few users need: those of Prometheus, Google and Azure.
func TestTheProgramCompilesQuickly(t *testing.T) {
	t.Parallel()
	for _, path := range dependencies(t, "./cmd/posthorn") {
		for _, refused := range []string{"github.com/prometheus/", "cloud.google.com/", "github.com/Azure/"} {
			if strings.HasPrefix(path, refused) {
				t.Errorf("the program needs %s", path)
			}
		}
	}
}

// go install with a version refuses modules whose go.mod would mean something else there than
// in a clone.
func TestGoInstallTakesTheModule(t *testing.T) {
	t.Parallel()
	output, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Replace, Exclude []any }
	if err := json.Unmarshal(output, &module); err != nil {
		t.Fatal(err)
	}
	if len(module.Replace)+len(module.Exclude) > 0 {
		t.Errorf("go.mod replaces %v and excludes %v", module.Replace, module.Exclude)
	}
}

func dependencies(t *testing.T, args ...string) []string {
	t.Helper()
	list := []string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}
	output, err := exec.Command("go", append(list, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(output))
	if len(packages) < 10 {
		t.Fatalf("only %d packages: %v", len(packages), packages)
	}
	return packages
}

// testCode returns all test files.
func testCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
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
	for _, pattern := range []string{path, "schema/functions/*/" + path, "schema/functions/*/*/" + path, "internal/*/" + path} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

var (
	readingTotals = regexp.MustCompile(`(?s)\*\*Read in this order\*\*.*?([\d,]+) lines of SQL and\s+([\d,]+) of Go`)
	readingRow    = regexp.MustCompile(`(?m)^\| \d+ \| [^|]+ \| ([^|]+) \| ([\d,]+) \|$`)
	readingFile   = regexp.MustCompile("`([^`]+)`")
)

// The engine can be read in a day: the files that the overview lists exist, and have no more lines than it says.
func TestEngineCanBeReadInADay(t *testing.T) {
	text := readPage(t, "docs/design.md")
	sums := map[string]int{}
	for _, row := range readingRow.FindAllStringSubmatch(text, -1) {
		said, lines, language := number(t, row[2]), 0, ""
		for _, name := range readingFile.FindAllStringSubmatch(row[1], -1) {
			files := readingFiles(name[1])
			if len(files) == 0 {
				t.Errorf("%s is not in the tree", name[1])
			}
			for _, file := range files {
				lines += strings.Count(readPage(t, file), "\n")
				language = filepath.Ext(file)
			}
		}
		if lines > said {
			t.Errorf("%s: %d lines, and the page says %d", row[1], lines, said)
		}
		sums[language] += said
	}
	totals := readingTotals.FindStringSubmatch(text)
	if totals == nil || sums[".sql"] != number(t, totals[1]) || sums[".go"] != number(t, totals[2]) {
		t.Errorf("the rows have %v lines, and the text says %q", sums, totals)
	}
	if sums[".sql"] > 8000 || sums[".go"] > 13000 {
		t.Errorf("%v lines are more than a day's reading", sums)
	}
}

// readingFiles returns the files of a name in the list: a room or file of SQL in core, or a package or file of Go.
func readingFiles(name string) []string {
	const core = "schema/functions/core/"
	switch filepath.Ext(name) {
	case ".go":
		return []string{name}
	case ".sql":
		return []string{core + name}
	}
	if room, err := filepath.Glob(core + name + "*.sql"); err == nil && len(room) > 0 {
		return room
	}
	files, err := filepath.Glob(name + "*.go")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func schemaSQL(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"schema/migrations/*.sql", "schema/functions/*/*/*.sql"} {
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

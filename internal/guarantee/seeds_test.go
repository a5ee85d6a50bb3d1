package guarantee_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A seed is a list of what one of the systems that Posthorn unites could do. Every item
// has a test that names it, or a decision: testdata/seeds.txt says which.
func TestSeedsAreCovered(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for seed, last := range map[string]int{"000": 69, "001": 59, "002": 30, "003": 33, "004": 42} {
		for n := range last {
			missing[fmt.Sprintf("%s.%d", seed, n+1)] = true
		}
	}
	for line := range strings.Lines(string(table)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, " | ")
		if len(columns) != 3 {
			t.Errorf("not a line of the table: %s", line)
			continue
		}
		item, where := columns[0], columns[2]
		if !missing[item] {
			t.Errorf("%s is there twice, or is no item", item)
		}
		delete(missing, item)
		for place := range strings.FieldsSeq(where) {
			if named, err := named(place); err != nil {
				t.Errorf("%s: %v", item, err)
			} else if named != nil && !named[item] {
				t.Errorf("%s does not name seed %s", place, item)
			}
		}
	}
	for item := range missing {
		t.Errorf("%s is missing", item)
	}
}

// named are the items that a place names: a test as file:Test. For a decision they are nil.
func named(place string) (map[string]bool, error) {
	file, test, isTest := strings.Cut(filepath.Join("../..", place), ":")
	if !isTest {
		if !strings.HasPrefix(place, "docs/decisions/") {
			return nil, fmt.Errorf("%s is neither a test nor a decision", place)
		}
		_, err := os.Stat(file)
		return nil, err // decisions speak to readers who know no items
	}
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, declared := range source.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Name.Name != test || !strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(test, "Test") {
			continue
		}
		items := map[string]bool{}
		for _, comment := range source.Comments {
			if comment == f.Doc || f.Body.Pos() < comment.Pos() && comment.End() < f.Body.End() {
				for item := range itemsIn(comment.Text()) {
					items[item] = true
				}
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("%s does not exist", place)
}

// A mention is like: seed 000.7, 000.8–10, 12, seed 002.1
var mention = regexp.MustCompile(`\b[Ss]eed (\d{3})\.(\d+(?:[–-]\d+)?(?:, (?:(?:seed )?\d{3}\.)?\d+(?:[–-]\d+)?\b)*)`)

func itemsIn(text string) map[string]bool {
	items := map[string]bool{}
	for _, found := range mention.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
		seed := found[1]
		for part := range strings.SplitSeq(found[2], ", ") {
			if other, numbers, ok := strings.Cut(strings.TrimPrefix(part, "seed "), "."); ok {
				seed, part = other, numbers
			}
			from, to, isRange := strings.Cut(strings.ReplaceAll(part, "–", "-"), "-")
			if !isRange {
				to = from
			}
			first, _ := strconv.Atoi(from) // both are digits
			last, _ := strconv.Atoi(to)
			for n := first; n <= last; n++ {
				items[fmt.Sprintf("%s.%d", seed, n)] = true
			}
		}
	}
	return items
}

package testtree_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const readmeLines, sentenceWords, sentenceMean = 180, 35, 18

// A reader has two minutes for the README: it is short, and no sentence of it has to be read twice.
func TestReadmesAreShort(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "clients/typescript/README.md", "docs/first-steps.md", "docs/install.md"} {
		text := readPage(t, page)
		if lines := strings.Count(text, "\n"); page == "README.md" && lines > readmeLines {
			t.Errorf("%s has %d lines, more than %d", page, lines, readmeLines)
		}
		all := sentences(text)
		lengths, total := make([]int, len(all)), 0
		for i, sentence := range all {
			lengths[i] = words(sentence)
			total += lengths[i]
		}
		if total > sentenceMean*len(all) {
			t.Errorf("%s has %d sentences of %d words, more than %d each", page, len(all), total, sentenceMean)
		}
		sorted := slices.Sorted(slices.Values(lengths))
		for i, sentence := range all {
			if lengths[i] > sentenceWords {
				t.Errorf("%s has a sentence of %d words, where %d are the limit and %d the median: %s", page, lengths[i], sentenceWords, sorted[len(sorted)/2], sentence)
			}
		}
	}
}

var figure = regexp.MustCompile(`[\d,.]*\d(?:/s| ms| MB)`)

// The README has no figure of its own: each stands in the page that says how it was measured.
func TestReadmeFiguresAreMeasured(t *testing.T) {
	t.Parallel()
	measured := readPage(t, "docs/performance.md")
	figures := figure.FindAllString(strings.Join(sentences(readPage(t, "README.md")), "\n"), -1)
	if len(figures) < 8 {
		t.Fatalf("found only %q", figures)
	}
	for _, one := range figures {
		if !strings.Contains(measured, one) {
			t.Errorf("docs/performance.md does not have %s", one)
		}
	}
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	notProse    = regexp.MustCompile(`(?m)<!--.*?-->|^ {4}.*$|!\[[^]]*\]\([^)]*\)|^#+ .*$|^\|[-|]+$`)
	linkTarget  = regexp.MustCompile(`\]\([^)\s]*\)`)
	blockBreak  = regexp.MustCompile(`\n\n+|\n- |\|`)
	sentenceEnd = regexp.MustCompile(`[.?!](\s+|$)`)
	word        = regexp.MustCompile(`[\pL\pN]`)
)

// sentences are those of a page, of its lists and of the cells of its tables, without code.
func sentences(page string) (all []string) {
	page = notProse.ReplaceAllString(fenced.ReplaceAllString(page, ""), "")
	page = linkTarget.ReplaceAllString(page, "]")
	for _, block := range blockBreak.Split(page, -1) {
		for _, sentence := range sentenceEnd.Split(strings.Join(strings.Fields(block), " "), -1) {
			if words(sentence) > 0 {
				all = append(all, sentence)
			}
		}
	}
	return all
}

func words(sentence string) (n int) {
	for _, field := range strings.Fields(sentence) {
		if word.MatchString(field) {
			n++
		}
	}
	return n
}

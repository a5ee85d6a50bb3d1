// Package llms writes docs/llms.txt: the knowledge that a program, or an assistant that writes one, needs in one file.
package llms

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testgolden"
	"github.com/posthorn/posthorn/internal/test/testguide"
)

//go:generate go test -run ^TestLLMs$ . -update

const docs = "../../docs"

// llms.txt has the rules, the README's program, each SQL function and the guides. Functions of the operators are in
// the pages alone.
func TestLLMs(t *testing.T) {
	t.Parallel()
	text := read(t, "rules.md") + "\n## A program in Go\n\n```go\n" + program(t) + "```\n" +
		"\n## SQL functions for publishers and consumers\n" + functions(t) + "\n## Guides\n\n" + guides(t)
	testgolden.Check(t, filepath.Join(docs, "llms.txt"), text)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func program(t *testing.T) string {
	t.Helper()
	for _, e := range testguide.Examples(t, "../../README.md") {
		if strings.HasPrefix(e.Text, "package main\n") {
			return e.Text
		}
	}
	t.Fatal("the README has no program")
	return ""
}

var function = regexp.MustCompile("(?ms)^(## Functions: [a-z ]+)$|^### [a-z_0-9]+\n\n```\n([^`]+)```\n\n(.*?)$")

// functions are the signatures of the functions that publishers and consumers may call, with their first sentences.
func functions(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	folder := ""
	for _, match := range function.FindAllStringSubmatch(read(t, filepath.Join(docs, "sql.md")), -1) {
		if match[1] != "" {
			folder = strings.TrimPrefix(match[1], "## Functions: ")
			continue
		}
		if !strings.Contains(match[3], "Also for: ") {
			continue
		}
		if folder != "" {
			b.WriteString("\n### " + folder + "\n\n")
			folder = ""
		}
		signature := strings.Join(strings.Fields(match[2]), " ")
		b.WriteString("- `" + signature + "`: " + sentence(match[3]) + "\n")
	}
	if b.Len() < 10000 {
		t.Fatal("docs/sql.md has another form")
	}
	return b.String()
}

var end = regexp.MustCompile(`[.:](\s|$)`)

func sentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if at := end.FindStringIndex(text); at != nil {
		return text[:at[0]] + "."
	}
	return text
}

var (
	title = regexp.MustCompile(`^# (.*)\n`)
	links = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// guides are the pages, with the first sentence of each.
func guides(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, page := range pages {
		text := read(t, page)
		found := title.FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no title", page)
		}
		line := "- [" + found[1] + "](" + filepath.Base(page) + ")"
		for part := range strings.SplitSeq(text[len(found[0]):], "\n\n") {
			part = strings.TrimSpace(links.ReplaceAllString(part, "$1"))
			if part != "" && !strings.ContainsAny(part[:1], "|#`<!") && !strings.HasPrefix(part, "The examples need") {
				line += ": " + sentence(part)
				break
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

var name = regexp.MustCompile(`\bposthorn\.([A-Z]\w*)`)

// The rules name only things that the package has.
func TestRulesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, source := range sources {
		all.WriteString(read(t, source))
	}
	found := name.FindAllStringSubmatch(read(t, "rules.md"), -1)
	if len(found) < 5 {
		t.Fatal("the rules name nothing")
	}
	for _, match := range found {
		if !regexp.MustCompile(`(?m)^(func|type|\t)\s*` + match[1] + `\b`).MatchString(all.String()) {
			t.Errorf("there is no %s", match[0])
		}
	}
}

package page

import (
	"html"
	"regexp"
	"strings"
	"testing"
)

var markup = regexp.MustCompile(`<[^>]*>`)

// Of an error with a stack, lists and sentences show the line of the message. No line end is written out as \n.
func TestTextsOfManyLinesShowTheFirst(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"card declined": "card declined",
		"card declined\n\nError: card declined\n    at charge": "card declined",
		"\r\n\nlate\r\nnext":             "late",
		"\tgoroutine 1 [running]:\nmain": `\tgoroutine 1 [running]:`,
		"\n":                             "",
	} {
		for name, shown := range map[string]string{"short": string(short(value)), "text": string(text(value))} {
			line, _, _ := strings.Cut(shown, "</bdi>")
			line = strings.TrimSuffix(html.UnescapeString(markup.ReplaceAllString(line, "")), "…")
			if line != want {
				t.Errorf("%s shows %q of %q, want %q", name, line, value, want)
			}
			if strings.Contains(shown, `\n`) {
				t.Errorf("%s writes a line end out: %s", name, shown)
			}
			if all := strings.TrimLeft(value, "\r\n"); strings.Contains(all, "\n") && !strings.Contains(shown, "…</bdi>") {
				t.Errorf("%s does not say that there is more: %s", name, shown)
			}
		}
	}
	if whole := string(short("a\n\tb")); !strings.Contains(whole, "title=\"a\n\tb\"") {
		t.Errorf("on hover it shows %s", whole)
	}
}

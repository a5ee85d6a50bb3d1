package testguide

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*( ?[+-]\d\d:?\d\d|Z)?`)
	dashes = regexp.MustCompile(`-{3,}`)
	blanks = regexp.MustCompile(`[ \t]+`)
)

// CheckOutput compares what an example has printed with the block under it. In the block, … stands for any text, and
// alone on a line for any lines. Times may differ, and so may the widths of columns and empty lines.
func CheckOutput(printed, block string) error {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.Lines(block) {
		line = plain(line)
		if line == "" {
			continue
		}
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	pattern.WriteString(`\z`)
	var lines strings.Builder
	for line := range strings.Lines(printed) {
		if line = plain(line); line != "" {
			lines.WriteString(line + "\n")
		}
	}
	if !regexp.MustCompile(pattern.String()).MatchString(lines.String()) {
		return fmt.Errorf("it printed:\n%s\nthe page has:\n%s", printed, block)
	}
	return nil
}

func plain(line string) string {
	line = moment.ReplaceAllString(strings.TrimSpace(line), "TIME")
	return blanks.ReplaceAllString(dashes.ReplaceAllString(line, "---"), " ")
}

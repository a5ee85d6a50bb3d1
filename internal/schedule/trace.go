package schedule

import (
	"fmt"
	"strings"
)

// Trace is a schedule as it ran.
type Trace struct {
	lines []line
}

type line struct{ session, sql, said string }

// add adds a line, and returns its place.
func (t *Trace) add(session, sql string) int {
	t.lines = append(t.lines, line{session: session, sql: strings.Join(strings.Fields(sql), " ")})
	return len(t.lines) - 1
}

func (t *Trace) say(at int, text string) { t.lines[at].said += text }

// String prints the schedule for people who have psql and a new database: a terminal for each
// session, and the statements from top to bottom.
func (t *Trace) String() string {
	width := 0
	for _, l := range t.lines {
		width = max(width, len(l.session))
	}
	var b strings.Builder
	for _, l := range t.lines {
		end := ";"
		if strings.HasPrefix(l.sql, "--") {
			end = ""
		}
		fmt.Fprintf(&b, "%-*s  %s%s", width, l.session, l.sql, end)
		if l.said != "" {
			fmt.Fprintf(&b, "  --%s", strings.TrimRight(l.said, " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// describe prints an outcome in a line.
func (o Outcome) describe() string {
	if o.Err != nil {
		return " → " + o.Err.Error()
	}
	if len(o.Rows) == 0 {
		return " → " + o.Tag
	}
	var rows []string
	for _, row := range o.Rows {
		var values []string
		for _, v := range row {
			if v == nil {
				v = ""
			}
			values = append(values, fmt.Sprint(v))
		}
		rows = append(rows, strings.Join(values, "|"))
	}
	return " → " + strings.Join(rows, "; ")
}

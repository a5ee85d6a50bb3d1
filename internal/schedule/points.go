package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Points are places inside the functions of a checkout where a session may stand still: before
// each statement of PL/pgSQL that takes a snapshot, locks rows or takes an advisory lock, looks
// at a sequence, or writes a note that another session reads. So races inside one function
// become schedules, with the real locks and snapshots: each statement of a volatile function
// takes its own. Functions of SQL, and declarations, have no statements to stand between.

// marked is a line that deserves a point.
var marked = regexp.MustCompile(`pg_current_snapshot\(\)|posthorn\.snapshot\(\)|\bfor update\b|pg_advisory_xact_lock|` +
	`pg_sequence_last_value\(|\.last_value|nextval\('posthorn\.event_id'\)|` +
	`insert into posthorn\.(job_endings|await_places|awaited_jobs|blocked_jobs|ticks|leases)\b|delete from posthorn\.leases\b|` +
	`posthorn\.note_endings\(|if posthorn\.jobs_have_waited\(\)`)

// unmarked are files that no scenario can stop in: people look with them, or one session is
// alone while they run.
var unmarked = regexp.MustCompile(`^(look/|admin/rebase|admin/move_numbers|group/group_status)`)

// Checkout is the source of functions.
type Checkout struct {
	Root    string
	Points  bool   // with points
	Changed string // a file that has another text: that of a mutant
	Text    string
}

// Functions returns the files of functions that differ from those of the server: with points,
// with the times of the driver, or changed.
func (c Checkout) Functions() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(c.Root, "schema/functions/*/*/*.sql"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		original := string(content)
		text := original
		if c.Changed != "" && strings.HasSuffix(file, c.Changed) {
			text = c.Text
		}
		if c.Points {
			text, _ = withPoints(file, text)
		}
		if text = measured.ReplaceAllString(text, "sched.took($0)"); text != original {
			all = append(all, text)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("%s has no functions", c.Root)
	}
	return all, nil
}

// measured is a look that measures how long it took. The driver says it instead: no time at
// all, or long, as behind many dead rows.
var measured = regexp.MustCompile(`clock_timestamp\(\) - (keep_hint\.)?began\b`)

// withPoints returns the text of a file of functions with its points, and how many they are.
func withPoints(file, text string) (with string, points int) {
	if unmarked.MatchString(filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)) {
		return text, 0
	}
	const head = "create or replace function posthorn."
	chunks := strings.SplitAfter(text, head)
	for i, chunk := range chunks {
		header, body, has := strings.Cut(chunk, "$$")
		if i == 0 || !has || !strings.Contains(header, "language plpgsql") {
			continue
		}
		name, _, _ := strings.Cut(header, "(")
		stopping, n := stops(name, body)
		chunks[i] = header + "$$" + stopping
		points += n
	}
	return strings.Join(chunks, ""), points
}

var (
	comment = regexp.MustCompile(`--.*$`)
	ending  = regexp.MustCompile(`(;|\bthen|\belse|\bloop|\bbegin)\s*$`)
)

// stops puts a point before each marked statement of a body. A statement begins on a line of
// its own, as all of ours do.
func stops(function, body string) (with string, points int) {
	lines := strings.Split(body, "\n")
	inside, fresh, first, has := false, true, 0, false
	for i, line := range lines {
		code := strings.TrimSpace(comment.ReplaceAllString(line, ""))
		if !inside {
			inside = code == "begin"
			continue
		}
		if code == "" {
			continue
		}
		if fresh {
			first, fresh, has = i, false, false
		}
		if marked.MatchString(code) && !has {
			has = true
			points++
			lines[first] = fmt.Sprintf("perform sched.point('%s');\n", pointName(function, points, lines[first])) + lines[first]
		}
		fresh = ending.MatchString(code)
	}
	return strings.Join(lines, "\n"), points
}

// pointName fits into application_name.
func pointName(function string, n int, statement string) string {
	name := fmt.Sprintf("%s/%d: %s", function, n, strings.ReplaceAll(strings.TrimSpace(statement), "'", ""))
	return name[:min(len(name), 60)]
}

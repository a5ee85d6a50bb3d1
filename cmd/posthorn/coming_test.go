package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testredis"
)

const comingFrom = "../../docs/coming-from.md"

// Each row of docs/coming-from.md works, in the order of the page, on a database for each
// section. The statements that import waiting work are run in package guarantee.
func TestRowsOfComingFrom(t *testing.T) {
	t.Parallel()
	var sections []string
	rows := map[string][]testguide.Example{}
	for _, row := range testguide.Rows(t, comingFrom) {
		if rows[row.Section] == nil {
			sections = append(sections, row.Section)
		}
		rows[row.Section] = append(rows[row.Section], row)
	}
	if len(sections) != 5 {
		t.Fatalf("rows in the sections %q, want five", sections)
	}
	for _, section := range sections {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			g := newGuide(t, comingFrom)
			var server *process
			for _, row := range rows[section] {
				switch method, rest, _ := strings.Cut(row.Text, " "); method {
				case "posthorn":
					g.relays(row)
				case http.MethodGet, http.MethodPost:
					if server == nil {
						server = g.serverWith(row.Needs)
					}
					g.requests(server.url, method, rest)
				default:
					g.answers(row)
				}
			}
		})
	}
}

// Every row is run, or its second cell is a link to another guide, which other tests run.
func TestComingFromHasNoOtherRows(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(comingFrom)
	if err != nil {
		t.Fatal(err)
	}
	headsAndLines := regexp.MustCompile(`(?m)^\| there \| here \| what differs \|\n\|---\|---\|---\|$`)
	links := regexp.MustCompile(`(?m)^\|[^|\n]*\| \[[^|\n]*\]\([^|\n]*\)[^|\n]*\|[^|\n]*\|$`)
	lines := regexp.MustCompile(`(?m)^\|`)
	count := func(e *regexp.Regexp) int { return len(e.FindAll(text, -1)) }
	run := len(testguide.Rows(t, comingFrom))
	if got := count(lines) - 2*count(headsAndLines) - count(links) - run; got != 0 {
		t.Errorf("%d rows are neither run nor links; %d are run", got, run)
	}
	if run < 60 {
		t.Errorf("only %d rows are run", run)
	}
}

// answers runs the statement of a row, which must change or return a row. The first value must
// not be false or null, nor a single value 0.
func (g *guide) answers(row testguide.Example) {
	g.Helper()
	g.user.With(row.Needs)
	rows, err := g.session.Query(g.Context(), row.Text)
	if err != nil {
		g.Fatalf("%s\n%v", row.Text, err)
	}
	defer rows.Close()
	if rows.Next() {
		values, err := rows.Values()
		if err != nil {
			g.Fatalf("%s\n%v", row.Text, err)
		}
		if values[0] == nil || values[0] == false || len(values) == 1 && values[0] == int64(0) {
			g.Errorf("%s\nanswers %v", row.Text, values[0])
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		g.Fatalf("%s\n%v", row.Text, err)
	}
	if rows.CommandTag().RowsAffected() == 0 {
		g.Errorf("%s\nanswers nothing", row.Text)
	}
}

// requests makes the request of a row: a path, and a body if there is one. The answer must
// have a body, and no list in it may be empty.
func (g *guide) requests(server, method, request string) {
	g.Helper()
	path, body, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(g.Context(), method, server+path, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		g.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		g.Fatalf("%s %s\n%s %s", method, request, answer.Status, text)
	}
	if strings.Contains(string(text), `"events":[]`) && !strings.Contains(path, "stalled=true") { // no job is silent that long
		g.Errorf("%s %s\nfinds nothing: %s", method, request, text)
	}
}

// relays runs the relay of a row until it has written the two events of the rows before.
func (g *guide) relays(row testguide.Example) {
	g.Helper()
	broker := testredis.NewDatabase(g.T)
	row.Text = strings.Replace(row.Text, "redis://localhost:6379", broker.URL(), 1)
	g.background(row)
	g.eventually("the events are written", func() bool {
		return broker.Client.XLen(g.Context(), "stream:user:events").Val() == 2
	})
	g.eventually("the relay has noted it", g.holds("select count(*) = 0 from posthorn.outbox_event where published_at is null"))
}

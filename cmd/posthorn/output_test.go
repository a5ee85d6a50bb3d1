package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	var never *time.Time
	table := columns[[]any]{"group|error|since|lag", func(row []any) []any { return row }}
	if err := table.print(&out, [][]any{{"billing", "line one\nline\ttwo", never, 0}, {"mail", "", nil, 120000}}); err != nil {
		t.Fatal(err)
	}
	want := `GROUP    ERROR              SINCE  LAG
billing  line one line two  -      0
mail     -                  -      120000
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// A table has the message of an error, and not its stack.
func TestListsShowTheMessage(t *testing.T) {
	for text, want := range map[string]string{
		"card declined": "card declined", "\ncard declined\r\n\n    at charge": "card declined",
		"a long message\n    at charge": "a long me…", "": "",
	} {
		most := 60
		if want == "a long me…" {
			most = 10
		}
		if got := shorten(text, most); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}

func TestFormatTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 15, 999, time.FixedZone("", 3600))
	got, err := time.Parse("2006-01-02 15:04:05 -07:00", formatTime(at))
	if err != nil || !got.Equal(at.Truncate(time.Second)) {
		t.Errorf("formatTime(%v) = %v, %v", at, got, err)
	}
}

package tend

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each change is said once.
func TestComplaints(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	c := complaints{log: log, known: map[string]string{}}
	sweep := map[string]string{"sweep": "no room"}
	c.note(nil, nil)
	c.note(sweep, nil)
	c.note(sweep, nil)
	c.note(nil, errors.New("no database"))
	c.note(nil, errors.New("no database"))
	c.note(nil, io.ErrUnexpectedEOF)
	c.note(nil, io.ErrUnexpectedEOF)
	c.note(sweep, nil)
	c.note(nil, nil)
	c.note(nil, nil)
	want := []string{
		`level=WARN msg="upkeep has an error" part=sweep error="no room"`,
		`level=WARN msg="upkeep has an error" part="all of it" error="no database"`,
		`level=WARN msg="upkeep could not run" error="unexpected EOF"`,
		`level=INFO msg="upkeep works again" part="all of it"`,
		`level=INFO msg="upkeep works again" part=sweep`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

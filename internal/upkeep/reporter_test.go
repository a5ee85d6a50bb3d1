package upkeep

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each change is logged once.
func TestReporter(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	r := reporter{log: log, reported: map[string]string{}}
	sweep := map[string]string{"sweep": "no room"}
	r.report(nil, nil)
	r.report(sweep, nil)
	r.report(sweep, nil)
	r.report(nil, errors.New("no database"))
	r.report(nil, errors.New("no database"))
	r.report(nil, io.ErrUnexpectedEOF)
	r.report(nil, io.ErrUnexpectedEOF)
	r.report(sweep, nil)
	r.report(nil, nil)
	r.report(nil, nil)
	want := []string{
		`level=WARN msg="upkeep has an error" part=sweep error="no room"`,
		`level=WARN msg="upkeep has an error" part="all parts" error="no database"`,
		`level=WARN msg="upkeep could not run" error="unexpected EOF"`,
		`level=INFO msg="upkeep works again" part="all parts"`,
		`level=INFO msg="upkeep works again" part=sweep`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

package upkeep

import (
	"bytes"
	"encoding/json"
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
	call := func(report string, err error) {
		t.Helper()
		var done tended
		if wrong := json.Unmarshal([]byte(report), &done); wrong != nil {
			t.Fatal(wrong)
		}
		r.report(done, err)
	}
	const good, failed = `{"sweep": 0, "wake_jobs": null}`, `{"sweep": null, "errors": {"sweep": "no room"}}`
	call(good, nil)
	call(failed, nil)
	call(`{"wake_jobs": "busy"}`, nil)                // another process did the upkeep
	call(`{"sweep": "busy", "wake_jobs": null}`, nil) // or does it
	call(failed, nil)
	call(`{}`, errors.New("no database"))
	call(`{}`, errors.New("no database"))
	call(`{}`, io.ErrUnexpectedEOF)
	call(`{}`, io.ErrUnexpectedEOF)
	call(failed, nil)
	call(good, nil)
	call(good, nil)
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

package outage_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/outage"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// A broken connection is logged as usual while the database is reachable.
func TestABrokenConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	log, lines := logTo(t, posthorntest.EmptyDatabase(t))
	log.Warn("one", "error", io.ErrUnexpectedEOF)
	log.With("a", 1).WithGroup("g").Warn("two", "error", io.ErrUnexpectedEOF)
	if got := lines.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "cannot be reached") {
		t.Errorf("logged:\n%s", got)
	}
}

// During an outage, other errors and messages below the level of a warning are
// still logged.
func TestAnOutageHidesOnlyItsErrors(t *testing.T) {
	t.Parallel()
	log, lines := logTo(t, "postgres://127.0.0.1:1/nothing")
	for range 3 {
		log.Warn("hidden", "error", io.ErrUnexpectedEOF)
		log.With("a", 1).WithGroup("g").Error("hidden", "error", io.ErrUnexpectedEOF)
	}
	log.Warn("another error", "error", errors.New("of the handler"))
	log.Info("no warning", "error", io.ErrUnexpectedEOF)
	got := lines.String()
	if strings.Count(got, "\n") != 3 || strings.Count(got, "the database cannot be reached") != 1 || strings.Contains(got, "hidden") {
		t.Errorf("logged:\n%s", got)
	}
}

func logTo(t *testing.T, url string) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	t.Cleanup(func() { close(closed) })
	lines := &bytes.Buffer{}
	return slog.New(outage.NewHandler(slog.NewTextHandler(lines, nil), config, closed)), lines
}

package pg_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
)

// A process logs the warning of a call that has succeeded: a relay does not go back for the
// events of streams that it takes on.
func TestWarningsForPeopleAreLogged(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	pool, err := pg.Open(t.Context(), config, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "select posthorn.publish('default', 'a', '{}', stream => 'bills')"); err != nil {
		t.Fatal(err)
	}
	for _, streams := range [][]string{{"orders"}, {"orders", "bills"}, {"orders", "bills"}} {
		if _, err := pg.DefineRelay(t.Context(), pool, "default", "out", pg.RelayConfig{Streams: streams}); err != nil {
			t.Fatal(err)
		}
	}
	if text := logged.String(); strings.Count(text, "begins with bills now") != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "groups seek") {
		t.Errorf("logged: %s", text)
	}
}

package tend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
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
	c.note(sweep, nil)
	c.note(nil, nil)
	c.note(nil, nil)
	want := []string{
		`level=WARN msg="upkeep has an error" part=sweep error="no room"`,
		`level=WARN msg="upkeep has an error" part="all of it" error="no database"`,
		`level=INFO msg="upkeep works again" part="all of it"`,
		`level=INFO msg="upkeep works again" part=sweep`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestRunDeliversUntilTheEnd(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		Run(ctx, pool, slog.New(slog.DiscardHandler))
		close(ended)
	}()
	soon := time.Now().Add(50 * time.Millisecond)
	if _, err := pg.Publish(ctx, pool, "default", pg.Message{Type: "a", DeliverAt: &soon}); err != nil {
		t.Fatal(err)
	}
	for delivered := false; !delivered; {
		if err := pool.QueryRow(ctx, "select exists (select from posthorn.events)").Scan(&delivered); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-ended
}

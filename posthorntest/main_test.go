package posthorntest

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

func TestLeftGoroutines(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	began, ended := make(chan struct{}), make(chan struct{})
	go leakedOnPurpose(began, end, ended)
	<-began
	seen := func() bool {
		return slices.ContainsFunc(leftGoroutines(), func(stack string) bool { return strings.Contains(stack, "leakedOnPurpose") })
	}
	if !seen() {
		t.Error("a running goroutine is not reported")
	}
	close(end)
	<-ended
	await.True(t, "a goroutine that has ended is not reported", func() bool { return !seen() })
}

func leakedOnPurpose(began, end, ended chan struct{}) {
	defer close(ended)
	close(began)
	<-end
}

func TestConnectionsOfClients(t *testing.T) {
	t.Parallel()
	database := Database(t)
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	s, name := mustServer(t), strings.TrimPrefix(parsed.Path, "/")
	left := func() int {
		found, err := s.connections(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for application, want := range map[string]int{"posthorn": 1, "posthorn-worker": 1, "psql": 0} {
		config, err := pgx.ParseConfig(database)
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams["application_name"] = application
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if got := left(); got != want {
			t.Errorf("%s: %d connections, want %d", application, got, want)
		}
		conn.Close(context.Background())
		await.True(t, "a closed connection is not reported", func() bool { return left() == 0 })
	}
}

package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
)

// An outage of Postgres is two lines of the log, even if many requests and attempts fail
// meanwhile.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	config := testpg.Config(testdir.New(t, "outage-").Path, testpg.BinDir(), map[string]string{"shared_buffers": "32MB", "fsync": "off"})
	start := func() *localpg.Server {
		t.Helper()
		database, err := localpg.Start(await.Context(t), config)
		if err != nil {
			t.Fatal(err)
		}
		return database
	}
	database := start()
	t.Cleanup(func() { _ = database.Kill() }) // fails if the test has stopped it already

	lines := &testworld.Buffer{}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{
		DatabaseURL: database.URL(), Migrate: true, Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	handled := make(chan string, 100)
	ph.Group("group", posthorn.GroupConfig{Start: posthorn.Beginning}).Handle("handler", ">", func(_ context.Context, e posthorn.Event) error {
		handled <- e.Type
		return nil
	})
	ph.Work([]string{"tag"}, posthorn.WorkConfig{}, func(_ context.Context, j posthorn.Job) error {
		handled <- j.Title
		return nil
	})
	run, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := ph.Run(run); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	s := serveClient(t, ph, database.URL(), Options{Logger: ph.Logger()})

	publish := func(title string) {
		t.Helper()
		s.call(t, http.MethodPost, "/v1/events", map[string]any{"type": "event." + title, "payload": 1}).want(t, http.StatusCreated)
		s.call(t, http.MethodPost, "/events", map[string]any{"title": "job " + title, "tags": "tag", "payload": 1}).want(t, http.StatusCreated)
		for range 2 {
			await.Value(t, "event and job are handled", handled)
		}
	}
	publish("before")
	if err := database.Stop(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the outage is logged", func() bool { return lines.String() != "" })
	const callers, requests = 5, 40
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for i := range requests {
				path := []string{"/v1/groups", "/events", "/v1/nodes", "/events/subscribe?worker_id=w&tags=tag"}[i%4]
				if a := s.call(t, http.MethodGet, path, nil); a.status != http.StatusServiceUnavailable {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			}
		})
	}
	calling.Wait()
	database = start()
	await.True(t, "the return is logged", func() bool { return strings.Contains(lines.String(), "the database is back") })
	publish("after")

	logged := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(logged) != 2 || !strings.Contains(logged[0], "level=ERROR") || !strings.Contains(logged[1], "level=INFO") ||
		!strings.Contains(logged[1], "failed_requests=200 ") || strings.Contains(logged[1], "messages_left_out=0") {
		t.Errorf("the log of an outage with 200 failed requests:\n%s", strings.Join(logged, "\n"))
	}
}

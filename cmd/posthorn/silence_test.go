package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// A command that begins while the first address is silent uses the second one. A command
// that is running ends with an error.
func TestCommandsDoNotWaitForADatabaseThatIsSilent(t *testing.T) {
	t.Parallel()
	proxy := testpg.NewProxy(t, posthorntest.Database(t))
	run := func(ctx context.Context, out *testworld.Buffer, args ...string) error {
		a := &app{databaseURL: proxy.URL(t), namespace: "default", log: slog.New(slog.DiscardHandler)}
		cmd := newPublish(a)
		if args[0] == "tail" {
			cmd = newTail(a)
		}
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args[1:])
		cmd.SetOut(out)
		cmd.SetErr(out)
		return cmd.ExecuteContext(ctx)
	}
	tailed, ended := &testworld.Buffer{}, make(chan error, 1)
	go func() { ended <- run(t.Context(), tailed, "tail", "--from", "beginning") }()
	if err := run(t.Context(), &testworld.Buffer{}, "publish", "greeting"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "tail prints the event", func() bool { return strings.Contains(tailed.String(), "greeting") })
	proxy.Silence()
	const want = "does not answer"
	if err := await.Value(t, "tail ends", ended); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("tail ended with %v, want an error with %q", err, want)
	}
	if err := run(t.Context(), &testworld.Buffer{}, "publish", "greeting"); err != nil {
		t.Errorf("the second address was not used: %v", err)
	}
}

func TestServeGoesOnWhenTheDatabaseFallsSilent(t *testing.T) {
	t.Parallel()
	proxy := testpg.NewProxy(t, posthorntest.Database(t))
	server := startPosthorn(t, proxy.URL(t), "serve")
	publish := func() (status int) {
		answer, err := http.Post(server.url+"/v1/events", "application/json", strings.NewReader(`{"events": [{"type": "greeting"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // the body is not read
		return answer.StatusCode
	}
	first := publish()
	if first/100 != 2 {
		t.Fatalf("publishing is answered with %d", first)
	}
	proxy.Silence()
	await.True(t, "events are published as before", func() bool { return publish() == first })
	if !strings.Contains(server.stderr.String(), proxy.Address()) {
		t.Errorf("the server did not say which database is silent: %s", server.stderr)
	}
}

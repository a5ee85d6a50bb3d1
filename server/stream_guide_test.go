package server

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/posthorntest"
)

// serveGuide runs a server as a user with the rights that the guide names, and returns the
// examples of the guide in a language, with the address of the server.
func serveGuide(t *testing.T, language string) (s *served, examples []string) {
	t.Helper()
	database := posthorntest.Database(t)
	user := testguide.NewUser(t, database)
	for _, e := range testguide.Examples(t, "../docs/stream.md") {
		if e.Language != language {
			continue
		}
		if url := user.With(e.Needs); s == nil {
			s = serveClient(t, posthorntest.Open(t, posthorn.Config{DatabaseURL: url}), database)
		}
		examples = append(examples, strings.NewReplacer("$POSTHORN_URL", s.url, "http://127.0.0.1:8080", s.url).Replace(e.Text))
	}
	if s == nil {
		t.Fatal("found nothing; the fences have changed")
	}
	return s, examples
}

// The commands of the guide show a stream.
func TestStreamGuide(t *testing.T) {
	t.Parallel()
	s, examples := serveGuide(t, "sh")
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed"})
	wants := []string{`"type":"order.placed"`, "event: heartbeat\nid: "}
	for i, typed := range examples {
		cmd := exec.CommandContext(await.Context(t), "sh", "-e", "-c", strings.ReplaceAll(typed, "curl -N", "exec curl -N"))
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		for lines := bufio.NewScanner(output); !strings.Contains(shown.String(), wants[i]); {
			if !lines.Scan() {
				t.Errorf("%s%s%v", typed, shown.String(), lines.Err())
				break
			}
			shown.WriteString(lines.Text() + "\n")
		}
		stopProcess(cmd) // the command does not end by itself
	}
}

// EventSource, as the guide uses it, reconnects whenever the server ends the stream. It gets
// each event once, and no other message as an event.
func TestStreamInEventSource(t *testing.T) {
	t.Parallel()
	if exec.Command("node", "--experimental-eventsource", "-e", "EventSource").Run() != nil {
		t.Skip("there is no node that has EventSource")
	}
	s, examples := serveGuide(t, "js")
	s.server.openStreams.maxAge, s.server.openStreams.minReconnectIn = 200*time.Millisecond, time.Millisecond
	node := exec.Command("node", "--experimental-eventsource", "-e",
		examples[0]+"setInterval(() => {}, 1e6) // keeps the process alive between two connections")
	output, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	node.Stderr = t.Output()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer stopProcess(node)
	lines := bufio.NewScanner(output)
	open := func(n int64) func() bool {
		return func() bool { return s.server.openStreams.count.Load() == n }
	}
	await.True(t, "it comes", open(1))
	for range 2 {
		await.True(t, "its stream has ended", open(0))
		for _, id := range posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed", Key: "7"}, posthorn.Message{Type: "order.paid", Key: "8"}) {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), fmt.Sprint(id, " order.p")) {
				t.Fatalf("received %q, want event %d", lines.Text(), id)
			}
		}
	}
}

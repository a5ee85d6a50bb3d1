package server

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// streamGuide returns the snippets of the guide in a language, with the address of a
// server.
func streamGuide(t *testing.T, s *served, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/stream.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		found = append(found, strings.ReplaceAll(match[1], "http://127.0.0.1:8080", s.url))
	}
	if len(found) == 0 {
		t.Fatal("found nothing; the fences have changed")
	}
	return found
}

// The commands of the guide show a stream.
func TestStreamGuide(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed"})
	wants := []string{`"type":"order.placed"`, "event: heartbeat\nid: "}
	for i, typed := range streamGuide(t, s, "sh") {
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
	s := serve(t)
	s.server.openStreams.maxAge, s.server.openStreams.minReconnectIn = 200*time.Millisecond, time.Millisecond
	node := exec.Command("node", "--experimental-eventsource", "-e",
		streamGuide(t, s, "js")[0]+"setInterval(() => {}, 1e6) // keeps the process alive between two connections")
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

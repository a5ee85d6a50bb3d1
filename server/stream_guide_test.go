package server

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// streamGuide returns what the guide shows in a language, for a server.
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

// What the guide tells people to type shows a stream.
func TestStreamGuide(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed"})
	wants := []string{`"type":"order.placed"`, "event: heartbeat\nid: "}
	for i, typed := range streamGuide(t, s, "sh") {
		output, err := exec.Command("sh", "-e", "-c", strings.ReplaceAll(typed, "curl -N", "curl -N --max-time 2")).Output()
		ended, ok := errors.AsType[*exec.ExitError](err)
		const timedOut = 28 // of curl
		if !ok || ended.ExitCode() != timedOut || !strings.Contains(string(output), wants[i]) {
			t.Errorf("%s%s%v", typed, output, err)
		}
	}
}

// The EventSource of browsers, as the guide uses it, comes back whenever the
// server ends its stream, gets each event once, and takes nothing else for one.
func TestStreamInEventSource(t *testing.T) {
	t.Parallel()
	if exec.Command("node", "--experimental-eventsource", "-e", "EventSource").Run() != nil {
		t.Skip("there is no node that has EventSource")
	}
	s := serve(t)
	s.server.openStreams.lasts = 200 * time.Millisecond
	node := exec.Command("node", "--experimental-eventsource", "-e",
		streamGuide(t, s, "js")[0]+"setInterval(() => {}, 1e6) // between two connections nothing else keeps it alive")
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
	eventually(t, "it comes", open(1))
	for range 2 {
		eventually(t, "its stream has ended", open(0))
		for _, id := range posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed", Key: "7"}, posthorn.Message{Type: "order.paid", Key: "8"}) {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), fmt.Sprint(id, " order.p")) {
				t.Fatalf("heard %q, want event %d", lines.Text(), id)
			}
		}
	}
}

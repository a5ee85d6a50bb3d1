package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

const processURL, processAddress = "POSTHORN_TEST_SERVER_URL", "POSTHORN_TEST_SERVER_ADDRESS"

// TestServerProcess is the program of the process that TestStreamThroughKills kills.
func TestServerProcess(t *testing.T) {
	url := os.Getenv(processURL)
	if url == "" {
		t.Skip("run by others")
	}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", os.Getenv(processAddress))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nlistening %s\n", listener.Addr())
	t.Fatal(New(ph, Options{}).Serve(t.Context(), listener, nil))
}

// startProcess starts a process with a server at an address.
func startProcess(t *testing.T, url, address string) (process *exec.Cmd, listening string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestServerProcess$", "-test.v")
	cmd.Env = append(os.Environ(), processURL+"="+url, processAddress+"="+address)
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	lines := bufio.NewScanner(output)
	var said []string
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return cmd, at
		}
		said = append(said, lines.Text())
	}
	t.Fatalf("the server never listened:\n%s", strings.Join(said, "\n"))
	return nil, ""
}

func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
}

// The server is killed with -9 several times, while transactions commit in any order.
// Readers come back with their last event id: each gets every event once, and the events of
// a publisher in order.
func TestStreamThroughKills(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: database})
	process, address := startProcess(t, database, "127.0.0.1:0")

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	results := make([]*crashReader, 3)
	var reading, publishing sync.WaitGroup
	for i := range results {
		r := &crashReader{t: t, client: client, url: "http://" + address, seen: make(chan struct{}, 1)}
		results[i] = r
		reading.Go(r.run)
	}
	defer reading.Wait()
	for _, r := range results { // all readers have begun before the first event
		await.Value(t, "a reader's first connection", r.seen)
	}
	for round := range 3 {
		for n := range 3 {
			publishing.Go(func() { publishInTransactions(t, ph, n, round) })
		}
		results[round].await(20) // so the server is killed in the middle
		stopProcess(process)
		process, _ = startProcess(t, database, address)
		publishing.Wait()
	}
	posthorntest.Publish(t, ph, posthorn.Message{Type: "last"})
	reading.Wait()

	var want []string
	for e, err := range ph.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "e" {
			want = append(want, e.Key+" "+string(e.Payload))
		}
	}
	for _, r := range results {
		wantOrdered(t, r.got)
		slices.Sort(r.got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), r.got); diff != "" {
			t.Errorf("received %d events, want %d, each once (-want +got):\n%.2000s", len(r.got), len(want), diff)
		}
		t.Logf("%d events in %d connections", len(r.got), r.connections)
	}
}

// publishInTransactions publishes the events of a round in pairs, so that other
// transactions commit in between.
func publishInTransactions(t *testing.T, ph *posthorn.Client, publisher, round int) {
	const perRound = 100
	for n := round * perRound; n < (round+1)*perRound; n += 2 {
		tx, err := ph.Pool().Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for i := range 2 {
			if _, err := ph.Publish(t.Context(), tx, posthorn.Message{Type: "e", Key: fmt.Sprint(publisher), Payload: n + i}); err != nil {
				t.Error(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// crashReader is a client that reconnects whenever its stream has ended.
type crashReader struct {
	t           *testing.T
	client      *http.Client
	url         string
	got         []string
	connections int
	mu          sync.Mutex
	count       int
	seen        chan struct{} // receives when there are new events
}

func (r *crashReader) run() {
	ctx, cancel := context.WithTimeout(r.t.Context(), await.Limit)
	defer cancel()
	for last := ""; ctx.Err() == nil; await.Pause() {
		var headers []string
		if last != "" {
			headers = []string{"Last-Event-ID: " + last}
		}
		stream, err := openReader(r.t, r.client, r.url, "type=e,last", headers...)
		if err != nil {
			continue // the server is starting
		}
		r.connections++
		r.note(0)
		ended := r.follow(stream)
		last = stream.last
		stream.close()
		if ended {
			return
		}
	}
	r.t.Error("the last event never came")
}

// follow reads a stream until it ends, or has sent the last event.
func (r *crashReader) follow(stream *reader) bool {
	for {
		h, err := stream.next()
		switch {
		case err != nil:
			return false
		case !h.isEvent():
			continue
		}
		e := h.event(r.t)
		if e.Type == "last" {
			return true
		}
		r.got = append(r.got, e.Key+" "+string(e.Payload))
		r.note(1)
	}
}

func (r *crashReader) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count += n
	select {
	case r.seen <- struct{}{}:
	default:
	}
}

// await waits for n more events.
func (r *crashReader) await(n int) {
	r.mu.Lock()
	goal := r.count + n
	r.mu.Unlock()
	await.True(r.t, "more events came", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.count >= goal
	})
}

// wantOrdered fails the test unless the numbers of each publisher ascend.
func wantOrdered(t *testing.T, got []string) {
	t.Helper()
	before := map[int]int{}
	for _, text := range got {
		var publisher, n int
		if _, err := fmt.Sscan(text, &publisher, &n); err != nil {
			t.Fatal(err)
		}
		if n < before[publisher] {
			t.Errorf("publisher %d: %d came after %d", publisher, n, before[publisher])
		}
		before[publisher] = n
	}
}

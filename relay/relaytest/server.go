package relaytest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
)

// TestServer tests a sink while the server of its broker fails. Scenarios run one after the
// other, so that they can share a server.
func TestServer(t *testing.T, newServer func(t *testing.T) Server) {
	for _, scenario := range []struct {
		name string
		run  func(*testing.T, Server)
	}{
		{"the server is down", testDown},
		{"the server is killed while it writes", testKilled},
		{"the server hangs", testHangs},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.run(t, newServer(t)) })
	}
}

func testDown(t *testing.T, server Server) {
	s := open(t, server)
	write(t, s, Batch(Events("orders", 1, 10)...))
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, sink := range []Sink{s, open(t, server)} {
		if err := sink.Write(ctx, Batch(Events("orders", 11, 1000)...)); err == nil || errors.As(err, new(posthorn.EventErrors)) {
			t.Errorf("write without a server: %v, want one error for all events", err)
		}
	}
	server.Restart(t)
	persist(t, s, Batch(Events("orders", 11, 1000)...))
	wantIDs(t, server, "orders", upTo(1, 1000))
}

func testKilled(t *testing.T, server Server) {
	s := open(t, server)
	const batches, size = 30, 500
	persist(t, s, Batch(Events("orders", 1, size)...))
	half, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for b := int64(1); b < batches; b++ {
			if b == batches/2 {
				close(half)
			}
			if err := retry(t.Context(), s, Batch(Events("orders", 1+b*size, (b+1)*size)...)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case <-half:
	case err := <-done:
		t.Fatalf("write to a server that runs: %v", err)
	}
	server.Kill()
	server.Restart(t)
	if err := <-done; err != nil {
		t.Fatalf("write to a server that was killed and runs again: %v", err)
	}
	wantIDs(t, server, "orders", upTo(1, batches*size))
}

// retry writes again until the sink has written all, as a relay does. It returns the last
// error when it has tried for as long as tests wait, or when the test has ended.
func retry(ctx context.Context, s Sink, batch posthorn.SinkBatch) error {
	for began := time.Now(); ; await.PauseSince(began) {
		err := s.Write(ctx, batch)
		if err == nil || ctx.Err() != nil || time.Since(began) > await.Limit {
			return err
		}
	}
}

func testHangs(t *testing.T, server Server) {
	s := open(t, server)
	write(t, s, Batch(Events("orders", 1, 10)...))
	server.Pause()
	large := Events("orders", 11, 100) // more than the buffers of the sockets
	for i := range large {
		large[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Write(ctx, Batch(large...)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write to a server that hangs: %v", err)
	}
	server.Resume()
	persist(t, s, Batch(large...))
	wantIDs(t, server, "orders", upTo(1, 100))
}

package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

const relayURL = "POSTHORN_TEST_RELAY_URL"

// spawnRelay starts a process that relays.
func (w *world) spawnRelay() *testchild.Child {
	w.T.Helper()
	return testchild.Start(w.T, "TestRelayProcess", relayURL+"="+w.URL)
}

// TestRelayProcess runs in the processes that other tests kill or stop.
func TestRelayProcess(t *testing.T) {
	url := os.Getenv(relayURL)
	if url == "" {
		t.Skip("run by others")
	}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		t.Fatal(err)
	}
	config := soon()
	config.BatchSize = 20
	ph.Relay("out", config, &table{pool: ph.Pool(), name: fmt.Sprint(os.Getpid())})
	t.Fatal(ph.Run(t.Context()))
}

// leader waits until one of some processes leads, and finds it.
func (r *relaying) leader(children []*testchild.Child, not *testchild.Child) *testchild.Child {
	r.T.Helper()
	var found *testchild.Child
	await.True(r.T, "a process leads", func() bool {
		owner := r.relayStatus("out").Owner
		for _, c := range children {
			if c != not && c.Leads(owner) {
				found = c
			}
		}
		return found != nil
	})
	return found
}

// Seed 003.2, 003.16: processes that lead are killed with -9 while they write;
// others go on, in the order of each stream, and nothing is lost.
func TestRelaySurvivesItsProcesses(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	children := []*testchild.Child{r.spawnRelay(), r.spawnRelay()}
	for range await.Kills(4) {
		r.mix(10, 20, "a", "b", "c")
		n := testworld.Ask[int](r.world, "select count(*) from taken")
		leader := r.leader(children, nil)
		await.True(t, "it writes", func() bool { return testworld.Ask[int](r.world, "select count(*) from taken") > n })
		leader.Kill()
		posthorntest.Advance(t, r.Client, time.Minute) // its lead is over
		children = append(children, r.spawnRelay())
	}
	r.awaitWritten()
	if n := testworld.Ask[int](r.world, "select count(distinct writer) from taken"); n < 2 {
		t.Errorf("%d processes have written", n)
	}
}

// Seed 003.17, 003.18: a process that is stopped for longer than its lead lasts
// finds another in its place when it goes on, and changes nothing.
func TestRelayIsFencedWhenItIsLate(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	children := []*testchild.Child{r.spawnRelay(), r.spawnRelay()}
	var late *testchild.Child
	for range 2 {
		late = r.leader(children, nil)
		wrote := func() int {
			return testworld.Ask[int](r.world, "select count(*) from taken where writer = $1", fmt.Sprint(late.Process.Pid))
		}
		n := wrote()
		r.mix(10, 20, "a", "b")
		await.True(t, "it writes", func() bool { return wrote() > n }) // so it knows that it leads
		if err := late.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		posthorntest.Advance(t, r.Client, time.Minute) // its lead is over
		next := r.leader(children, late)
		r.mix(5, 20, "a", "b")
		r.awaitWritten()
		if err := late.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		late.Prints("the lead was lost")
		if now := r.leader(children, nil); now != next {
			t.Error("it leads again, although another does")
		}
		late.Prints("stands by")
		r.mix(2, 20, "a", "b")
		r.awaitWritten()
	}
}

// shortLead runs a relay in this process whose lead soon ends unless it is renewed.
func (r *relaying) shortLead() *testworld.Buffer {
	r.T.Helper()
	logs := &testworld.Buffer{}
	w := &world{testworld.Open(r.T, posthorn.Config{DatabaseURL: r.URL, Logger: slog.New(slog.NewTextHandler(logs, nil))})}
	config := soon()
	config.LeaseFor, config.Timeout = 2*time.Second, time.Hour
	w.relay(config, r.sink)
	return logs
}

// says waits until a log has a text.
func says(t *testing.T, l *testworld.Buffer, what string) {
	t.Helper()
	await.True(t, "the log says: "+what, func() bool { return strings.Contains(l.String(), what) })
}

// A lead that ends while the process lists the streams set aside is lost like any other.
func TestRelayLosesALeadThatItHasJustTaken(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.send("a", 20)
	unlockStreams := testpg.Lock(t, r.Pool(), "streams") // which it asks for then
	logs := r.shortLead()
	says(t, logs, "this process leads")
	unlockRelays := testpg.Lock(t, r.Pool(), "relays") // nothing renews the lead
	says(t, logs, "the lead was lost")
	unlockRelays()
	unlockStreams()
	r.awaitWritten()
}

// Seed 003.16: when the database is away for longer than the lead lasts, nothing is
// written, and afterwards it goes on.
func TestRelayStopsWithItsLead(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	logs := r.shortLead()
	r.send("a", 20)
	r.awaitWritten()
	var hangs, calledOff atomic.Bool
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	r.sink.before(func(ctx context.Context, _ posthorn.SinkBatch) error {
		if calledOff.Load() {
			return nil
		}
		hangs.Store(true)
		select {
		case <-ctx.Done():
			calledOff.Store(true)
		case <-over:
		}
		return ctx.Err()
	})
	r.send("a", 1)
	await.True(t, "the sink hangs", hangs.Load)
	// Nothing renews the lead: the statement waits for the lock.
	unlock := testpg.Lock(t, r.Pool(), "relays")
	says(t, logs, "the lead was lost")
	await.True(t, "the sink is called off, long before its timeout", calledOff.Load)
	unlock()
	r.send("a", 20)
	r.awaitWritten()
}

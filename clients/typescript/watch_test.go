package typescript_test

import (
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// The client that watches for all notifies those that follow of events and jobs by plain SQL, each kind by
// itself, also while its own handlers are busy.
func TestClientTellsItsFollowers(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	for _, role := range []string{"idle reader", "hang"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			url := posthorntest.Database(t)
			conn := connect(t, url)
			publish(t, conn)
			leader := startWorker(t, url, role)
			leader.await("", 1)
			defer func() { leader.signal(syscall.SIGKILL); leader.ended() }() // one that hangs does not drain
			testpg.AwaitWatchTurn(t, conn, 0)
			follower := startWorker(t, url, "follower")
			awaitFollowers(t, conn, 1)
			for range 5 { // more than it may find at its first questions
				publish(t, conn)
				follower.await("events", 1)
			}
			for range 5 {
				execute(t, conn, "select posthorn.enqueue('default', 'j')")
				follower.await("jobs", 1)
			}
		})
	}
}

// When the client that has the turn of the watch is killed, stopped, or cut off in silence, the others
// look for news themselves, and one of them gets the turn.
func TestClientsOutliveTheOneThatWatchesForAll(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	for name, signals := range map[string][2]syscall.Signal{
		"killed":  {syscall.SIGKILL},
		"stopped": {syscall.SIGSTOP, syscall.SIGCONT},
		"cut off": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := posthorntest.Database(t)
			proxy := testpg.NewProxy(t, url)
			conn := connect(t, url)
			leader := startWorker(t, proxy.URL(t), "idle reader")
			pid := testpg.AwaitWatchTurn(t, conn, 0)
			other := startWorker(t, url, "idle reader")
			awaitFollowers(t, conn, 1)
			if signals[0] != 0 {
				leader.signal(signals[0])
				defer func() { // a process that is stopped does not end
					if leader.cmd != nil {
						leader.signal(syscall.SIGCONT)
					}
				}()
			} else {
				proxy.Hang()
			}
			publish(t, conn)
			other.await("event", 1)
			testpg.AwaitWatchTurn(t, conn, pid)
			publish(t, conn)
			other.await("event", 1)
			if signals[0] == syscall.SIGKILL {
				leader.ended()
				return
			}
			if signals[1] != 0 {
				leader.signal(signals[1])
			}
			awaitFollowers(t, conn, 1)
			leader.await("event", 2)
		})
	}
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	execute(t, conn, "select posthorn.publish('default', 'e', '{}')")
}

func awaitFollowers(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	await.True(t, "processes follow", func() bool { _, followers := testpg.WatchTurn(t, conn); return followers == n })
}

func (w *worker) signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// ended waits until the process has ended by a signal.
func (w *worker) ended() {
	for range w.lines {
	}
	_ = w.cmd.Wait() // it was killed
	w.cmd = nil
}

package logwatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

const watcherURL = "POSTHORN_TEST_WATCHER_URL"

// TestWatcherProcess runs in the processes that other tests kill or stop.
func TestWatcherProcess(t *testing.T) {
	url := os.Getenv(watcherURL)
	if url == "" {
		t.Skip("run by others")
	}
	w := logwatch.New(testworld.OpenPool(t, url), slog.New(slog.DiscardHandler))
	defer w.Close()
	w.Run(t.Context())
}

// watched is a database with plain SQL and with watchers.
type watched struct {
	*testing.T
	url  string
	conn *pgx.Conn
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{T: t, url: posthorntest.Database(t)}
	w.conn = w.connect()
	return w
}

func (w *watched) connect() *pgx.Conn {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), w.url)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (w *watched) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.conn.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *watched) publish() { w.exec("select posthorn.publish('default', 'e')") }

func (w *watched) enqueue() { w.exec("select posthorn.enqueue('default', 'j')") }

// lead runs a watcher that has the turn.
func (w *watched) lead(url string) *logwatch.Watcher {
	w.Helper()
	leader := watcher(w.T, url)
	w.Cleanup(leader.KeepRunning())
	testpg.AwaitWatchTurn(w, w.conn, 0)
	return leader
}

// follow runs a watcher while another has the turn, and returns its news after its first question.
func (w *watched) follow(pause time.Duration) (events, jobs <-chan struct{}) {
	w.Helper()
	follower := watcher(w.T, w.url)
	follower.SetFollowPause(pause)
	events, _ = follower.Subscribe(logwatch.Events)
	jobs, _ = follower.Subscribe(logwatch.Jobs)
	w.Cleanup(follower.KeepRunning())
	await.Value(w, "news of events, at the beginning", events)
	await.Value(w, "news of jobs, at the beginning", jobs)
	await.True(w, "it follows", func() bool { _, n := testpg.WatchTurn(w, w.conn); return n == 1 })
	return events, jobs
}

// awaitLooks waits until the watcher that has the turn has looked, and has begun to look again.
func (w *watched) awaitLooks() {
	w.Helper()
	var last, now time.Time
	for range 3 {
		await.True(w, "the watcher looks again", func() bool {
			pid, _ := testpg.WatchTurn(w, w.conn)
			if err := w.conn.QueryRow(w.Context(), "select query_start from pg_stat_activity where pid = $1", pid).Scan(&now); err != nil {
				w.Fatal(err)
			}
			return now.After(last)
		})
		last = now
	}
}

// The watcher that has the turn notifies the others of events and jobs by plain SQL, each kind by itself;
// also while its own subscribers have news that they have not read.
func TestWatcherTellsItsFollowers(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"it has time": false, "it is busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			leader := w.lead(w.url)
			if busy {
				unread, _ := leader.Subscribe(logwatch.Events)
				w.publish()
				await.True(t, "it has news that is not read", func() bool { return len(unread) == 1 })
			}
			events, jobs := w.follow(time.Hour)
			for range 3 {
				w.awaitLooks()
				w.publish()
				await.Value(t, "news of an event", events)
			}
			// Transactions of other tests, that were open when the watchers began, are news of jobs once they end.
			await.True(t, "an event that is no news of jobs", func() bool {
				select {
				case <-jobs:
				default:
				}
				w.awaitLooks()
				w.publish()
				await.Value(t, "news of an event", events)
				w.awaitLooks() // the follower wakes its own for both kinds, one after the other
				return len(jobs) == 0
			})
			for range 3 {
				w.awaitLooks()
				w.enqueue()
				await.Value(t, "news of a job", jobs)
			}
		})
	}
}

// A watcher that nobody follows sends no notifications.
func TestWatcherAloneTellsNobody(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	leader := w.lead(w.url)
	news, _ := leader.Subscribe(logwatch.Events)
	listener := w.connect()
	if _, err := listener.Exec(t.Context(), "listen posthorn"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.publish()
		await.Value(t, "news of an event", news)
	}
	w.exec("select pg_notify('posthorn', 'from the test')")
	n, err := listener.WaitForNotification(await.Context(t))
	if err != nil || n.Payload != "from the test" {
		t.Errorf("the first notification is %v, %v", n, err)
	}
}

// However the watcher that has the turn ends, another one takes the turn.
func TestAnotherWatcherTakesTheTurn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *watched, leader *logwatch.Watcher, pid int){
		"its connection is terminated": func(w *watched, _ *logwatch.Watcher, pid int) { w.exec("select pg_terminate_backend($1)", pid) },
		"it is closed":                 func(_ *watched, leader *logwatch.Watcher, _ int) { leader.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			leader := w.lead(w.url)
			events, _ := w.follow(10 * time.Millisecond)
			pid, _ := testpg.WatchTurn(t, w.conn)
			end(w, leader, pid)
			testpg.AwaitWatchTurn(t, w.conn, pid)
			w.publish()
			await.Value(t, "news of an event", events)
		})
	}
}

// When the watcher that has the turn is killed, stopped, or cut off in silence, the others look for
// news themselves, and Postgres gives the turn to one of them.
func TestWatchersOutliveTheOneWithTheTurn(t *testing.T) {
	t.Parallel()
	process := func(w *watched) *testchild.Child {
		c := testchild.Start(w, "TestWatcherProcess", watcherURL+"="+w.url)
		testpg.AwaitWatchTurn(w, w.conn, 0)
		return c
	}
	signal := func(c *testchild.Child, s syscall.Signal) {
		if err := c.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
	for name, start := range map[string]func(w *watched) (stop, goOn func()){
		"killed": func(w *watched) (stop, goOn func()) {
			c := process(w)
			return c.Kill, func() { testchild.Start(w, "TestWatcherProcess", watcherURL+"="+w.url) }
		},
		"stopped": func(w *watched) (stop, goOn func()) {
			c := process(w)
			return func() { signal(c, syscall.SIGSTOP) }, func() { signal(c, syscall.SIGCONT) }
		},
		"cut off": func(w *watched) (stop, goOn func()) {
			proxy := testpg.NewProxy(w, w.url)
			w.lead(proxy.URL(w))
			return proxy.Hang, func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			stop, goOn := start(w)
			events, _ := w.follow(10 * time.Millisecond)
			pid, _ := testpg.WatchTurn(t, w.conn)
			stop()
			w.publish()
			await.Value(t, "news of an event while nobody tells", events)
			testpg.AwaitWatchTurn(t, w.conn, pid)
			w.publish()
			await.Value(t, "news of an event", events)
			goOn()
			await.True(t, "the one that had the turn follows", func() bool { _, n := testpg.WatchTurn(t, w.conn); return n == 1 })
		})
	}
}

// Through a pooler, which has neither sessions' locks nor LISTEN, each watcher looks for itself.
func TestWatcherThroughPoolerTakesNoTurn(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	pooled := watcher(t, testpg.Pooler(t, w.url))
	events, _ := pooled.Subscribe(logwatch.Events)
	defer pooled.KeepRunning()()
	for range 3 {
		await.Value(t, "news of an event", events)
		w.publish()
	}
	if pid, followers := testpg.WatchTurn(t, w.conn); pid != 0 || followers != 0 {
		t.Errorf("%d has the turn, and %d follow", pid, followers)
	}
}

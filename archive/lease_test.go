package archive_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// messages is a log whose messages a test waits for.
type messages struct{ received chan string }

func (messages) Enabled(context.Context, slog.Level) bool { return true }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.received <- r.Message
	return nil
}

func (m messages) WithAttrs([]slog.Attr) slog.Handler { return m }

func (m messages) WithGroup(string) slog.Handler { return m }

// writing runs an archiver that has a stream, and cannot finish it before unlock.
func (w *world) writing(config archive.Config) (stop, unlock func(), logged <-chan string) {
	w.T.Helper()
	w.publish("orders", 5)
	m := messages{make(chan string, 100)}
	config.SegmentAge, config.Logger = time.Microsecond, slog.New(m)
	a := archive.New(w.db, w.store, config)
	if err := a.Define(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	await.True(w.T, "there is a segment to write", func() bool {
		w.Exec("select posthorn.plan_archive(id) from posthorn.archives")
		return testworld.Ask[bool](w, "select exists (select from posthorn.archive_streams where unwritten > 0)")
	})
	unlock = testpg.Lock(w.T, w.db, "archive_segments")
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.T.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	w.Await("select exists (select from posthorn.archive_streams where lease_until > posthorn.now())")
	return func() {
		cancel()
		if err := await.Value(w.T, "the archiver ends", ended); err != nil {
			w.T.Error(err)
		}
	}, unlock, m.received
}

// An archiver that stops gives its stream back: the next need not wait for the end of
// the lease.
func TestAnArchiverThatStopsGivesItsStreamBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop, unlock, _ := w.writing(archive.Config{LeaseFor: time.Hour})
	stop()
	unlock()
	if n := testworld.Ask[int](w, "select count(*)::int from posthorn.archive_streams where lease_until > posthorn.now()"); n > 0 {
		t.Errorf("%d streams are still leased", n)
	}
	w.archive(quick)
	w.verified(5)
}

// An archiver whose stream another has taken over stops writing it.
func TestAnArchiverThatLosesItsStreamStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop, unlock, logged := w.writing(archive.Config{LeaseFor: time.Second})
	await.True(t, "it stops writing", func() bool {
		// Once is not enough: on a busy machine its lease may end before that.
		w.Exec("update posthorn.archive_streams set owner_id = 'archiver-orders-other-1-0badcafe', attempt = attempt + 1, lease_until = posthorn.now()")
		for len(logged) > 0 {
			if <-logged == "another worker has taken the stream over" {
				return true
			}
		}
		return false
	})
	unlock()
	w.archived()
	stop()
	w.verified(5)
}

package guarantee

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// takes is a worker in the middle of a dense log, where a take that settles is one
// statement.
type takes struct {
	*session
	lease   int64
	attempt int
}

// dense publishes many events and takes the first two windows. The second take finds
// that the log is dense.
func dense(t *testing.T) (w *takes, events []int64) {
	t.Helper()
	s := database(t)
	s.define("{}")
	events = s.publishMany(1000)
	w = &takes{session: s}
	wantEvents(t, w.next(), events[:16]...)
	wantEvents(t, w.next(), events[16:32]...)
	if blind := value[int](s, "select blind from posthorn.cursors order by n desc limit 1"); blind <= 0 {
		t.Fatalf("the log is not seen to be dense: %d windows are taken blindly", blind)
	}
	return w, events
}

// next settles the current lease and returns the events of the next one, of sixteen
// events.
func (w *takes) next() []int64 {
	w.t.Helper()
	held := w.lease
	var settle, attempt any
	if held != 0 {
		settle, attempt = held, w.attempt
	}
	w.lease, w.attempt = 0, 0
	err := w.conn.QueryRow(w.t.Context(), `select t.lease, t.attempt
		from posthorn.groups g, posthorn.take(g.id, 'worker', 16, '1 minute', gen_random_uuid(), $1, $2) t`, settle, attempt).
		Scan(&w.lease, &w.attempt)
	if err != nil && err != pgx.ErrNoRows {
		w.t.Fatalf("take: %v", err)
	}
	if held != 0 && value[bool](w.session, "select exists (select from posthorn.leases where id = $1)", held) {
		w.t.Errorf("lease %d is not settled", held)
	}
	return column[int64](w.session, "select e.event_id from posthorn.leases l, posthorn.lease_events(l.token) e where l.id = $1", w.lease)
}

// rest takes and settles until nothing is left, and returns the events.
func (w *takes) rest() (events []int64) {
	w.t.Helper()
	for {
		batch := w.next()
		if len(batch) == 0 {
			return events
		}
		events = append(events, batch...)
	}
}

func TestDenseLogIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	w, events := dense(t)
	wantEvents(t, w.rest(), events[32:]...)
	equal(t, "leases", value[int](w.session, "select count(*) from posthorn.leases"), 0)
}

func TestDenseLogRefusesALateWorker(t *testing.T) {
	t.Parallel()
	w, events := dense(t)
	late := *w
	w.exec("update posthorn.leases set until = posthorn.now() - interval '1 hour' where id = $1", late.lease)
	w.lookAgain()
	taken := w.claim(16)
	wantEvents(t, taken.Events, events[16:32]...)
	w.lease, w.attempt = 0, 0
	wantEvents(t, w.next(), events[32:48]...)
	before := w.state()
	w.refused("PH003", `select posthorn.take(g.id, 'late', 16, '1 minute', gen_random_uuid(), $1, $2) from posthorn.groups g`,
		late.lease, late.attempt)
	w.refused("PH003", `select posthorn.take(g.id, 'late', 16, '1 minute', gen_random_uuid(), $1, null) from posthorn.groups g`,
		taken.ID)
	equal(t, "state", w.state(), before)
}

func TestDenseLogDoesNotHideOtherWork(t *testing.T) {
	t.Parallel()
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		w, events := dense(t)
		w.exec("update posthorn.groups set paused = true")
		if got := w.next(); len(got) > 0 {
			t.Errorf("a paused group yields %v", got)
		}
		w.exec("update posthorn.groups set paused = false")
		wantEvents(t, w.next(), events[32:48]...)
	})
	t.Run("retry", func(t *testing.T) {
		t.Parallel()
		w, events := dense(t)
		failed := lease{ID: w.lease, Attempt: w.attempt}
		w.lease = 0
		wantEvents(t, w.next(), events[32:48]...)
		w.settle(failed, failure{Event: events[20], RetryIn: "0"})
		wantEvents(t, w.next(), events[20])
		wantEvents(t, w.next(), events[48:64]...)
		equal(t, "retries", value[int](w.session, "select count(*) from posthorn.retries"), 0)
	})
	t.Run("retry of a lease that is settled blindly", func(t *testing.T) {
		t.Parallel()
		w, events := dense(t)
		w.settle(lease{ID: w.lease, Attempt: w.attempt}, failure{Event: events[20], RetryIn: "0"})
		w.lease = 0
		wantEvents(t, w.next(), events[20])
		w.exec("update posthorn.cursors set blind = 9 where n = (select max(n) from posthorn.cursors)")
		wantEvents(t, w.next(), events[32:48]...)
		equal(t, "retries", value[int](w.session, "select count(*) from posthorn.retries"), 0)
	})
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		w, events := dense(t)
		w.exec("update posthorn.leases set until = posthorn.now() - interval '1 hour' where id = $1", w.lease)
		w.lease = 0
		wantEvents(t, w.next(), events[32:48]...)
		w.turnClock(15 * time.Second) // looks are seconds apart, more if they take long
		wantEvents(t, w.next(), events[16:32]...)
	})
}

// The time of an event determines which part of the log is searched for it. A clock
// that is set back by days must not hide events, even before a tick has noticed it.
func TestDenseLogIsReadThoughTheClockWentBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	w := &takes{session: s}
	// Transactions in other databases of the server delay that.
	await.True(t, "something bounds where the group looks for events", func() bool {
		before := s.publishMany(1)
		s.exec("select posthorn.tick()")
		wantEvents(t, w.next(), before...)
		if got := w.next(); len(got) > 0 {
			t.Fatalf("events %v came twice", got)
		}
		return value[bool](s, "select base_since is not null from posthorn.cursors order by n desc limit 1")
	})
	s.turnClock(-72 * time.Hour)
	events := s.publishMany(200)
	wantEvents(t, w.rest(), events...)
}

// A session remembers that it may use the fast statement and that its settings are
// right, but not if the settings were set only for one transaction.
func TestDenseLogIsReadWithAnySettings(t *testing.T) {
	t.Parallel()
	w, events := dense(t)
	equal(t, "the remembered state of the session", value[string](w.session, "select current_setting('posthorn.session', true)"), "verified")
	w.exec("set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off; set enable_bitmapscan = off")
	wantEvents(t, w.next(), events[32:48]...)
	w.exec("update posthorn.cursors set looked_at = null")
	wantEvents(t, w.next(), events[48:64]...)
	equal(t, "the remembered state of the session", value[string](w.session, "select current_setting('posthorn.session', true)"), "ready")
	w.exec("reset all")
	wantEvents(t, w.next(), events[64:80]...)
	equal(t, "the remembered state of the session", value[string](w.session, "select current_setting('posthorn.session', true)"), "verified")
}

// Leases that a crash has undone are detected before the fast statement is used: no
// session survives a crash, so a new session checks.
func TestDenseLogAsksForACrashFirst(t *testing.T) {
	t.Parallel()
	w, events := dense(t)
	w.crashed()
	next := &takes{session: w.another()}
	wantEvents(t, next.next(), events[32:48]...)
	if next.lease < w.lease+1_000_000_000 {
		t.Errorf("after a crash, lease %d follows lease %d, which may have been drawn before it", next.lease, w.lease)
	}
	wantEvents(t, next.next(), events[48:64]...)
}

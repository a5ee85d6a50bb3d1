package pg_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
)

// looker asks for news again and again.
type looker struct {
	*testing.T
	pool *pg.Pool
	last pg.News
}

func (l *looker) next() pg.News {
	l.Helper()
	l.last = must(pg.AwaitNews(l.Context(), l.pool, l.last, 0))(l.T)
	return l.last
}

func (l *looker) events(when string, want bool) {
	l.Helper()
	if got := l.next().Events; got != want {
		l.Errorf("%s: events %v, want %v", when, got, want)
	}
}

func (l *looker) jobs(when string) {
	l.Helper()
	if !l.next().Jobs {
		l.Errorf("%s: no news of jobs", when)
	}
}

// noJobs waits until there is no news of jobs. Transactions in databases of other tests
// may be taken for writers of jobs.
func (l *looker) noJobs(when string) {
	l.Helper()
	await.True(l.T, when+": no news of jobs", func() bool { return !l.next().Jobs })
}

// Workers wake when an event has become visible, and not before.
func TestAwaitNewsOfEvents(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := defineGroup(t, pool, "g", pg.GroupConfig{})
		l := &looker{T: t, pool: pool}
		l.events("the first query may have missed something", true)
		l.events("nothing has happened", false)

		open := must(pool.Begin(t.Context()))(t)
		defer func() { _ = open.Rollback(t.Context()) }()
		id := must(pg.Publish(t.Context(), open, ns, pg.Message{Type: "late"}))(t)
		before := l.last
		l.events("it is not committed", false)
		if l.last.Drawn != id || !l.last.Moved(before) {
			t.Errorf("%d was drawn last, not %d", id, l.last.Drawn)
		}
		publish(t, pool, pg.Message{Type: "a"})
		l.events("published while another is open", true)
		l.events("the event was reported before", false)

		lease := take(t, pool, group)
		if len(lease.Events) != 1 {
			t.Fatalf("took %v", lease)
		}
		l.events("taken", false)
		if err := pg.Settle(t.Context(), pool, lease); err != nil {
			t.Fatal(err)
		}
		l.events("settled", false)

		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.events("committed late", true)
		l.events("the late event was reported before", false)

		undone := must(pool.Begin(t.Context()))(t)
		must(pg.Publish(t.Context(), undone, ns, pg.Message{Type: "undone"}))(t)
		l.events("it is open", false)
		if err := undone.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.events("rolled back", false)
	})
}

// Workers wake when a job is enqueued, and when the transaction has ended in which it
// was enqueued.
func TestAwaitNewsOfJobs(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		l := &looker{T: t, pool: pool}
		l.jobs("the first query may have missed something")
		bystander := must(pool.Begin(t.Context()))(t)
		defer func() { _ = bystander.Rollback(t.Context()) }()
		must(pg.Publish(t.Context(), bystander, ns, pg.Message{Type: "open"}))(t)

		open := must(pool.Begin(t.Context()))(t)
		defer func() { _ = open.Rollback(t.Context()) }()
		before := l.last
		must(pg.Enqueue(t.Context(), open, ns, pg.NewJob{Title: "late"}))(t)
		l.jobs("the sequence has moved")
		if !l.last.Moved(before) {
			t.Error("it has not moved")
		}
		l.noJobs("the move was reported before")
		publish(t, pool, pg.Message{Type: "a"})
		l.noJobs("a transaction that began later has ended")
		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.jobs("committed")
		l.noJobs("the commit was reported before")

		must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "at once"}))(t)
		l.jobs("enqueued and committed")
		if jobs := must(pg.ClaimJobs(t.Context(), pool, ns, "w", nil, 10, time.Minute))(t); len(jobs) != 2 {
			t.Fatalf("claimed %d jobs", len(jobs))
		}
		l.noJobs("claimed")
	})
}

// It waits on the server, and ends when an event arrives, or a job.
func TestAwaitNewsWaits(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		now := must(pg.AwaitNews(t.Context(), pool, pg.News{}, 0))(t)
		heard := make(chan error, 1)
		wait := func(isNews func(n pg.News) bool) {
			var err error
			for now.Events, now.Jobs = false, false; err == nil && !isNews(now); {
				now, err = pg.AwaitNews(t.Context(), pool, now, time.Hour)
			}
			heard <- err
		}
		go wait(func(n pg.News) bool { return n.Events })
		publish(t, pool, pg.Message{Type: "a"})
		if err := <-heard; err != nil {
			t.Fatal(err)
		}
		go wait(func(n pg.News) bool { return n.Jobs })
		must(pg.Enqueue(t.Context(), pool, ns, pg.NewJob{Title: "j"}))(t)
		if err := <-heard; err != nil {
			t.Fatal(err)
		}
	})
}

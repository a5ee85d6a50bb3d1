package upkeep_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestRunDeliversUntilTheEnd(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended, announced := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		upkeep.Run(ctx, pool, slog.New(slog.DiscardHandler), noNews, func(events, jobs bool) {
			if jobs {
				t.Error("jobs are announced")
			}
			if events {
				announced <- struct{}{}
			}
		})
		close(ended)
	}()
	inAnHour := time.Now().Add(time.Hour)
	if _, err := pg.Publish(ctx, pool, "default", pg.Message{Type: "a", DeliverAt: &inAnHour}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create or replace function posthorn.now() returns timestamptz
		language sql volatile parallel safe return clock_timestamp() + interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the event is delivered", func() (delivered bool) {
		if err := pool.QueryRow(ctx, "select exists (select from posthorn.events)").Scan(&delivered); err != nil {
			t.Fatal(err)
		}
		return delivered
	})
	await.Value(t, "the announcement of events", announced)
	cancel()
	await.Closed(t, "upkeep ends", ended)
}

// lines are the lines of a log.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// If a part of upkeep fails, its error is logged.
func TestRunLogsErrors(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "alter table posthorn.delayed rename to hidden"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	logged, ended := make(lines, 100), make(chan struct{})
	go func() {
		upkeep.Run(ctx, pool, slog.New(slog.NewTextHandler(logged, nil)), noNews, nobody)
		close(ended)
	}()
	await.True(t, "the error is logged", func() bool {
		select {
		case line := <-logged:
			return strings.Contains(line, "part=deliver_delayed") && strings.Contains(line, "does not exist")
		default:
			return false
		}
	})
	cancel()
	await.Closed(t, "upkeep ends", ended)
}

func nobody(_, _ bool) {}

// noNews is the news of a log for which nobody watches.
func noNews() (news <-chan struct{}, end func()) { return nil, func() {} }

// A process that another one leaves no upkeep calls once a second; one that has just had its turn goes on calling often.
func TestPauseOfUpkeep(t *testing.T) {
	t.Parallel()
	for without, want := range map[time.Duration]time.Duration{
		0: 250 * time.Millisecond, 900 * time.Millisecond: 250 * time.Millisecond, time.Second: time.Second, time.Hour: time.Second,
	} {
		if got := upkeep.PauseAfter(without); got != want {
			t.Errorf("%v after its last turn, the pause is %v, want %v", without, got, want)
		}
	}
}

// The report of a call shows whether the call had the turn, and whether there may be events, or jobs that are ready.
func TestReportOfUpkeep(t *testing.T) {
	t.Parallel()
	type outcome struct{ skipped, events, jobs bool }
	for report, want := range map[string]outcome{
		`{}`: {}, `{"wake_jobs": "busy"}`: {}, `{"skipped": true, "wake_jobs": null}`: {skipped: true},
		`{"deliver_delayed": 1, "news": ["events"]}`: {events: true}, `{"news": ["events", "jobs"]}`: {events: true, jobs: true},
	} {
		var got outcome
		if got.skipped, got.events, got.jobs = upkeep.ReadReport(t, report); got != want {
			t.Errorf("%s: %+v, want %+v", report, got, want)
		}
	}
}

// The news of a call are what its parts have made for workers.
func TestNewsOfUpkeep(t *testing.T) {
	t.Parallel()
	const job = "select posthorn.enqueue('default', 'a job')"
	for name, test := range map[string]struct{ before, part, want string }{
		"nothing":  {"select", "sweep", "none"},
		"delayed":  {"select posthorn.publish('default', 'e', deliver_at => now() + interval '1 hour')", "deliver_delayed", `["events"]`},
		"schedule": {"select posthorn.schedule('default', 's', '@daily', 'e')", "fire_schedules", `["events", "jobs"]`},
		"waiting":  {"select posthorn.enqueue('default', 'a job', run_at => now() + interval '1 hour')", "promote_jobs", `["jobs"]`},
		"lost":     {job + "; select posthorn.claim_jobs('default', 'w', '{}')", "expire_jobs", `["jobs"]`},
		"awaited": {job + "; select posthorn.await_event(c.id, 'w', 'paid', 't', 'k', '7 days') from posthorn.claim_jobs('default', 'w', '{}') c; " +
			"select posthorn.publish('default', 't', key => 'k')", "wake_jobs", `["jobs"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := testworld.New(t)
			for sql := range strings.SplitSeq(test.before, "; ") {
				w.Exec(sql)
			}
			w.TurnClock(48 * time.Hour)
			var did, news string
			if err := w.Pool().QueryRow(t.Context(), "select coalesce(r->>$1, ''), coalesce(r->>'news', 'none') from posthorn.tend() r", test.part).Scan(&did, &news); err != nil {
				t.Fatal(err)
			}
			if did == "" || did == "0" && name != "nothing" {
				t.Errorf("%s did %q", test.part, did)
			}
			testworld.Equal(t, "news", news, test.want)
		})
	}
}

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
		`{"deliver_delayed": 1}`: {events: true}, `{"promote_jobs": 2}`: {jobs: true}, `{"expire_jobs": 1, "wake_jobs": 0}`: {jobs: true},
		`{"fire_schedules": 1}`:                    {events: true, jobs: true},
		`{"settle_endings": 1, "wake_jobs": null}`: {}, // it has looked at one
	} {
		var got outcome
		if got.skipped, got.events, got.jobs = upkeep.ReadReport(t, report); got != want {
			t.Errorf("%s: %+v, want %+v", report, got, want)
		}
	}
}

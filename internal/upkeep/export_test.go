package upkeep

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

type Upkeep = upkeep

func New(db pg.DB, together, alone time.Duration) *Upkeep {
	return &upkeep{db: db, together: together, alone: alone}
}

func (u *upkeep) Tend(ctx context.Context) (map[string]string, error) {
	t, err := u.tend(ctx)
	return t.Errors, err
}

// FollowNews wakes jobs after each news, until no job waits for an event.
func (u *upkeep) FollowNews(ctx context.Context, news News) { u.followNews(ctx, news) }

// PauseAfter returns the pause of a process after its last turn of upkeep.
func PauseAfter(withoutTurn time.Duration) time.Duration { return pauseAfter(withoutTurn) }

// ReadReport returns the outcome of a call by its report: whether it had no turn, and whether events and jobs are announced.
func ReadReport(t testing.TB, report string) (skipped, events, jobs bool) {
	var done tended
	if err := json.Unmarshal([]byte(report), &done); err != nil {
		t.Fatal(err)
	}
	return done.Skipped, done.has("events"), done.has("jobs")
}

func (u *upkeep) Apart() bool { return u.apart }

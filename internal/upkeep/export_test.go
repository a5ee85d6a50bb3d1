package upkeep

import (
	"context"
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

func (u *upkeep) Apart() bool { return u.apart }

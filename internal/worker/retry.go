package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// TroubleWait is the pause after an error of the database that passes. It is a
// variable for tests, which set it before they begin.
var TroubleWait = 2 * time.Second

// LastWords is how long a process that ends tries to record results and give leases
// back.
const LastWords = 10 * time.Second

// Retry says how to repeat statements that the database refuses for a moment. The
// zero value repeats after collisions alone, without end.
type Retry struct {
	Collisions int           // how often to try, with collisions; 0 for no limit
	Outages    bool          // repeat after all errors that are not [pg.IsFinal], after a pause
	Each       time.Duration // deadline of each attempt; 0: the context's
	Trouble    *Trouble      // reports errors that are repeated after a pause; may be nil
}

// collisionWait is how long to wait for the other transaction, at first, at most.
const collisionWait = 10 * time.Millisecond

// Do calls a function until it succeeds, its error is not one to be repeated, or
// ctx ends. It returns the last error.
func (r Retry) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	collisions := 0
	for {
		err := r.once(ctx, fn)
		switch {
		case err == nil:
			r.Trouble.Over()
			return nil
		case pg.IsCollision(err):
			if collisions++; collisions == r.Collisions {
				return err
			}
			wait := collisionWait * time.Duration(min(collisions, 100))
			if !Pause(ctx, rand.N(wait)) {
				return err
			}
			continue
		case !r.Outages || pg.IsFinal(err) || ctx.Err() != nil:
			return err
		}
		r.Trouble.Report(err)
		if !Pause(ctx, TroubleWait) {
			return err
		}
	}
}

func (r Retry) once(ctx context.Context, fn func(ctx context.Context) error) error {
	if r.Each > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Each)
		defer cancel()
	}
	return fn(ctx)
}

// Outlast returns a context for statements that have to be made although ctx has
// ended, or may end meanwhile: it keeps the values of ctx, and ends when d has
// passed, or a while after ctx.
func Outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(LastWords, cancel) })
	return longer, func() { forget(); cancel() }
}

// Pause waits, and reports whether ctx still holds.
func Pause(ctx context.Context, d time.Duration) bool { return Rest(ctx, d, nil) }

// Rest waits for news, for that long at most, and reports whether ctx still holds.
func Rest(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-timer.C:
	}
	return true
}

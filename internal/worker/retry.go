package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// TroubleWait is the pause after an error of the database that passes. It is a
// variable for tests, which set it before they begin.
var TroubleWait = 2 * time.Second

// waitAfter returns the pause after an error. A namespace stays closed for longer than most
// other trouble lasts.
func waitAfter(err error) time.Duration {
	if errors.Is(err, pg.ErrMoved) {
		return 5 * TroubleWait
	}
	return TroubleWait
}

// LastWords is how long a process that is stopping tries to record results and to give
// leases back.
const LastWords = 10 * time.Second

// Retry repeats statements after temporary errors. The zero value repeats them after
// collisions only, without limit.
type Retry struct {
	Collisions int           // most attempts, if they collide; 0: no limit
	Outages    bool          // repeat after all errors that are not [pg.IsFinal], after a pause
	Each       time.Duration // deadline of each attempt; 0: the context's
	Trouble    *Trouble      // reports errors that are repeated after a pause; may be nil
}

// collisionWait is the longest pause after the first collision.
const collisionWait = 10 * time.Millisecond

// Do calls a function until it succeeds, until its error is not temporary, or until ctx
// ends. It returns the last error.
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
		case errors.Is(err, pg.ErrUnconfirmed): // it is committed, and the next call finds that
			r.Trouble.Unconfirmed(err)
			continue
		}
		r.Trouble.Report(err)
		if !Pause(ctx, waitAfter(err)) {
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

// Outlast returns a context for statements that must run even if ctx has ended. It has
// the values of ctx, and ends after d, or [LastWords] after the end of ctx.
func Outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(LastWords, cancel) })
	return longer, func() { forget(); cancel() }
}

// Pause waits for d. It returns false when ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool { return Rest(ctx, d, nil) }

// Rest waits for a notification, at most for d. It returns false when ctx has ended.
func Rest(ctx context.Context, d time.Duration, notified <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-notified:
	case <-timer.C:
	}
	return true
}

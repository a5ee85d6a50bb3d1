package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Kind is a kind of work. B is what one lane has in hand, such as a lease; the
// zero B is nothing.
type Kind[B comparable] interface {
	// Room returns how much to take next. It may wait, and returns 0 when stop has
	// ended.
	Room(stop context.Context) int
	// Take finishes what is done, if anything is, and takes up to n more, if there
	// is any. When it fails with [pg.ErrLeaseLost], it was done that was lost.
	Take(work context.Context, n int, done B) (B, error)
	// Lane returns what runs batches, one after another, in a lane. It reports
	// whether the batch went well and is yet to be finished.
	Lane(lane *Lane) func(work context.Context, batch B) (finish bool)
	// Finish finishes a batch that went well. It repeats what the database refuses
	// for a moment.
	Finish(work context.Context, batch B)
	// Release gives back a batch that was not begun.
	Release(work context.Context, batch B)
	// Lost reports a batch that was lost although it went well.
	Lost(batch B)
	// KeepAlive extends what is in hand until ctx ends.
	KeepAlive(ctx context.Context)
	// Rest waits until there may be more to take. It reports whether stop still holds.
	Rest(stop context.Context) bool
}

// Config says how to work.
type Config struct {
	Lanes int // batches in hand, and things that run at once, at most
	Log   *slog.Logger
	Ends  func(err error) bool // errors of Take that end the work; nil: none does
}

// worker works through what a kind of work has.
type worker[B comparable] struct {
	Config
	kind    Kind[B]
	slots   chan struct{} // for the things that run
	turn    chan struct{} // the lane that holds it may take
	trouble Trouble
	end     func()
	ended   error // that ended all lanes; of the lane that holds the turn
}

// Run works until stop ends. Then it takes nothing more, and returns when what is
// in hand is finished or given back; when work ends too, that should be soon. The
// error is one of Take that ended it.
func Run[B comparable](stop, work context.Context, kind Kind[B], config Config) error {
	stop, end := context.WithCancel(stop)
	defer end()
	w := &worker[B]{
		Config: config, kind: kind, slots: make(chan struct{}, config.Lanes), turn: make(chan struct{}, 1), end: end,
		trouble: Trouble{Log: config.Log, What: "cannot take work yet"},
	}
	keeping, enough := context.WithCancel(context.WithoutCancel(work))
	var heart, lanes sync.WaitGroup
	heart.Go(func() { kind.KeepAlive(keeping) })
	for range config.Lanes {
		lanes.Go(func() { w.lane(stop, work) })
	}
	lanes.Wait()
	enough()
	heart.Wait()
	return w.ended
}

// lane takes batches and runs them, one at a time. A batch that went well is
// finished with the next take.
func (w *worker[B]) lane(stop, work context.Context) {
	l := NewLane(w.slots)
	run := w.kind.Lane(l)
	var done, none B
	for {
		batch, ok := w.next(l, stop, work, done)
		if !ok {
			return
		}
		if done = none; run(work, batch) {
			done = batch
		}
		l.Leave()
	}
}

// next finishes the last batch and takes another. It returns with a slot in hand,
// or reports that it was told to stop.
func (w *worker[B]) next(l *Lane, stop, work context.Context, done B) (batch B, ok bool) {
	var none B
	if !w.awaitTurn(stop, work, &done) {
		return none, false
	}
	defer func() { <-w.turn }()
	for {
		if done != none && (stop.Err() != nil || len(w.slots) == cap(w.slots)) {
			w.kind.Finish(work, done)
			done = none
		}
		n := w.kind.Room(stop)
		if n == 0 || !l.Enter(stop) {
			return none, false
		}
		batch, err := w.kind.Take(work, n, done)
		if err == nil {
			w.trouble.Over()
			done = none
			if batch != none && stop.Err() == nil {
				return batch, true
			}
			if batch != none {
				w.kind.Release(work, batch)
			}
		}
		l.Leave()
		if done = w.went(stop, done, err); err == nil && !w.kind.Rest(stop) {
			return none, false
		}
	}
}

// went looks at how a take went, and returns what is still to be finished.
func (w *worker[B]) went(stop context.Context, done B, err error) B {
	var none B
	switch {
	case err == nil || pg.IsCollision(err):
	case errors.Is(err, pg.ErrLeaseLost) && done != none:
		w.kind.Lost(done)
		return none
	case w.Ends != nil && w.Ends(err):
		w.ended = err
		w.end()
	default:
		if stop.Err() == nil {
			w.trouble.Report(err)
		}
		Pause(stop, TroubleWait)
	}
	return done
}

// patience is how long a batch that is done waits for the take it can go with.
const patience = 5 * time.Millisecond

// awaitTurn waits until this lane may take.
func (w *worker[B]) awaitTurn(stop, work context.Context, done *B) bool {
	select {
	case w.turn <- struct{}{}:
		return true
	default:
	}
	var none B
	if *done != none {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case w.turn <- struct{}{}:
			return true
		case <-timer.C:
		case <-stop.Done():
		}
		w.kind.Finish(work, *done)
		*done = none
	}
	select {
	case w.turn <- struct{}{}:
		return true
	case <-stop.Done():
		return false
	}
}

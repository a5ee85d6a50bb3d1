package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Kind is a kind of work. B is the batch of one worker, such as a lease; the zero B
// means no batch.
type Kind[B comparable] interface {
	// Room returns the number of items to take next. It may wait, and returns 0 when
	// stop has ended.
	Room(stop context.Context) int
	// Take finishes the batch done, unless it is zero, and takes up to n more items. If
	// there are none it returns the zero B. [pg.ErrLeaseLost] means that done was lost.
	// Without news, only the time of Rest has passed, so most likely there are none.
	Take(work context.Context, n int, done B, news bool) (B, error)
	// Runner returns a function that runs batches, one after another, on a worker. The
	// function reports whether the batch succeeded and has to be finished.
	Runner(w *Worker) func(work context.Context, batch B) (finish bool)
	// Finish finishes a batch that succeeded. It retries after temporary errors.
	Finish(work context.Context, batch B)
	// Release gives back a batch that was not started.
	Release(work context.Context, batch B)
	// Lost is called with a batch that succeeded but was lost before it was finished.
	Lost(batch B)
	// KeepAlive extends leases until ctx ends.
	KeepAlive(ctx context.Context)
	// Rest returns what to wait for after a take that found nothing: a notification, and
	// a time after which to look without one.
	Rest() (time.Duration, <-chan struct{})
}

// Config configures a loop.
type Config struct {
	Workers int  // most batches, and most items, that run at once
	Takes   int  // most takes at once; default: 1
	Chained bool // the end of a batch may make another one free
	Log     *slog.Logger
	Ends    func(err error) bool // reports whether an error of Take ends the loop; nil: none does
}

// loop is one run of a kind of work.
type loop[B comparable] struct {
	Config
	kind    Kind[B]
	slots   chan struct{} // has one entry for each item that runs
	turn    chan struct{} // has one entry for each worker that takes a batch, or rests
	relief  chan struct{} // a worker that rests gives its turn to the one that sends here
	trouble Trouble
	end     context.CancelCauseFunc // ends the loop with an error
}

// Run works until stop ends. Then it takes no more batches, and returns when the
// batches of its workers are finished or given back. The end of work tells them to
// hurry. Run returns the error of Take that ended the loop.
func Run[B comparable](stop, work context.Context, kind Kind[B], config Config) error {
	stop, end := context.WithCancelCause(stop)
	defer end(nil)
	l := &loop[B]{
		Config: config, kind: kind, slots: make(chan struct{}, config.Workers), turn: make(chan struct{}, max(config.Takes, 1)), relief: make(chan struct{}), end: end,
		trouble: Trouble{Log: config.Log, Message: "cannot take work yet"},
	}
	keeping, enough := context.WithCancel(context.WithoutCancel(work))
	var heartbeat, workers sync.WaitGroup
	heartbeat.Go(func() { kind.KeepAlive(keeping) })
	for range config.Workers {
		workers.Go(func() { l.runWorker(stop, work) })
	}
	workers.Wait()
	enough()
	heartbeat.Wait()
	if cause, ok := errors.AsType[*endError](context.Cause(stop)); ok {
		return cause.error
	}
	return nil
}

// endError is the error of a take that ended the loop.
type endError struct{ error }

// runWorker takes batches and runs them, one at a time. A batch that succeeded is
// finished by the next take, in the same round trip.
func (l *loop[B]) runWorker(stop, work context.Context) {
	w := &Worker{slots: l.slots}
	run := l.kind.Runner(w)
	var done, none B
	for hurry := false; ; hurry = l.Chained {
		batch, ok := l.next(w, stop, work, done, hurry)
		if !ok {
			return
		}
		if done = none; run(work, batch) {
			done = batch
		}
		w.releaseSlot()
	}
}

// next finishes the last batch and takes another. It acquires a slot for the batch, or
// returns false when stop has ended. In a hurry it does not wait for a worker that rests.
func (l *loop[B]) next(w *Worker, stop, work context.Context, done B, hurry bool) (batch B, ok bool) {
	var none B
	for l.awaitTurn(stop, work, &done, hurry) {
		batch, more, relieved := l.take(w, stop, work, &done)
		if !relieved {
			<-l.turn
		}
		if batch != none || !more {
			return batch, batch != none
		}
		hurry = false
	}
	return none, false
}

// take is the part of next for which a worker needs its turn. Relieved, it has none any more.
func (l *loop[B]) take(w *Worker, stop, work context.Context, done *B) (batch B, more, relieved bool) {
	var none B
	for news := true; ; {
		if *done != none && (stop.Err() != nil || len(l.slots) == cap(l.slots)) {
			l.kind.Finish(work, *done)
			*done = none
		}
		n := l.kind.Room(stop)
		if n == 0 || !w.acquireSlot(stop) {
			if *done != none { // the stop has come since the look above
				l.kind.Finish(work, *done)
				*done = none
			}
			return none, false, false
		}
		batch, err := l.kind.Take(work, n, *done, news)
		if err == nil {
			if batch != none || *done == none { // in a closed namespace the batch done may still be finished
				l.trouble.Over()
			}
			*done = none
			if batch != none && stop.Err() == nil {
				return batch, true, false
			}
			if batch != none {
				l.kind.Release(work, batch)
			}
		}
		w.releaseSlot()
		*done = l.judge(stop, *done, err)
		if err != nil {
			continue
		}
		if more, relieved, news = l.rest(stop); !more || relieved {
			return none, more, relieved
		}
	}
}

// rest waits until there may be more work, and returns false when stop has ended. It ends
// early, relieved, if another worker needs the turn.
func (l *loop[B]) rest(stop context.Context) (more, relieved, news bool) {
	atMost, notified := l.kind.Rest()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-stop.Done():
	case <-notified:
		news = true
	case <-timer.C:
	case <-l.relief:
		relieved = true
	}
	return stop.Err() == nil, relieved, news
}

// judge handles the error of a take, and returns the batch that still has to be
// finished.
func (l *loop[B]) judge(stop context.Context, done B, err error) B {
	var none B
	switch {
	case err == nil || pg.IsCollision(err):
	case errors.Is(err, pg.ErrLeaseLost) && done != none:
		l.kind.Lost(done)
		return none
	case l.Ends != nil && l.Ends(err):
		l.end(&endError{err})
	default:
		if stop.Err() == nil {
			l.trouble.Report(err)
		}
		Pause(stop, waitAfter(err))
	}
	return done
}

// patience is how long a batch waits to be finished by the next take.
const patience = 5 * time.Millisecond

// awaitTurn waits until this worker may take a batch. A worker that has a batch to finish,
// or is in a hurry, gets the turn of one that rests.
func (l *loop[B]) awaitTurn(stop, work context.Context, done *B, hurry bool) bool {
	var none B
	var relief chan struct{}
	var impatient <-chan time.Time
	if hurry || *done != none {
		relief = l.relief
	}
	select {
	case l.turn <- struct{}{}:
		return true
	case relief <- struct{}{}:
		return true
	default:
	}
	if *done != none {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		impatient = timer.C
	}
	for {
		select {
		case l.turn <- struct{}{}:
			return true
		case relief <- struct{}{}:
			return true
		case <-impatient:
		case <-stop.Done():
		}
		if *done != none {
			l.kind.Finish(work, *done)
			*done = none
		}
		if stop.Err() != nil {
			return false
		}
		if !hurry {
			relief = nil
		}
	}
}

package archive

import (
	"context"
	"errors"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// writer is the [worker.Kind] that writes streams with unwritten segments.
type writer struct {
	*Archiver
	heartbeat worker.Heartbeat[*leasedStream]
}

// leasedStream is a stream that this process writes. Its context ends when the
// lease is lost, or was not extended in time: an object on its way to the store
// must not arrive after another worker's.
type leasedStream struct {
	worker.Hold
	pg.ArchiveStream
}

func newWriter(a *Archiver) *writer {
	w := &writer{Archiver: a}
	w.heartbeat = worker.Heartbeat[*leasedStream]{
		Every: a.config.LeaseFor / 3, Trouble: &worker.Trouble{Log: a.log, Message: "cannot extend the lease of a stream yet"},
		Extend: func(ctx context.Context, s *leasedStream) (time.Duration, error) {
			return a.config.LeaseFor, pg.ExtendArchiveStream(ctx, a.db, s.ArchiveStream, a.config.LeaseFor, "")
		},
	}
	w.heartbeat.Init()
	return w
}

// Room returns the number of streams to take.
func (w *writer) Room(context.Context) int { return 1 }

// Rest waits for segments.
func (w *writer) Rest() (time.Duration, <-chan struct{}) { return poll, w.news }

// KeepAlive extends leases until ctx ends.
func (w *writer) KeepAlive(ctx context.Context) { w.heartbeat.Run(ctx) }

// Take takes a stream. The last one was given back when it was written.
func (w *writer) Take(work context.Context, _ int, _ *leasedStream, _ bool) (*leasedStream, error) {
	asked := time.Now()
	taken, found, err := pg.LeaseArchiveStream(work, w.db, w.id, w.worker, w.config.LeaseFor)
	if err != nil || !found {
		return nil, err
	}
	s := &leasedStream{ArchiveStream: taken}
	s.Init(work, asked, w.config.LeaseFor)
	s.Lapse(w.config.LeaseFor)
	w.heartbeat.Add(s)
	return s, nil
}

// Runner returns a function that writes streams, one after another.
func (w *writer) Runner(*worker.Worker) func(work context.Context, s *leasedStream) bool {
	encoder, encoderErr := newEncoder()
	return func(work context.Context, s *leasedStream) bool {
		defer w.heartbeat.Remove(s)
		err := encoderErr
		if err == nil {
			err = w.writeStream(encoder, s)
		}
		if cause := context.Cause(s.Context()); err != nil && cause != nil {
			err = cause
		}
		switch {
		case err == nil:
		case errors.Is(err, pg.ErrLeaseLost):
			w.log.Info("another worker has taken the stream over", "stream", s.Name)
		case work.Err() != nil:
			w.Release(work, s)
		default:
			w.log.Warn("the archive cannot write a stream", "stream", s.Name, "error", err)
			w.giveBack(work, s, poll, err.Error())
		}
		return false
	}
}

// Finish has nothing to do: a stream that was written is given back at once.
func (w *writer) Finish(context.Context, *leasedStream) {}

// Lost has nothing to do either.
func (w *writer) Lost(*leasedStream) {}

// Release gives a stream back, so that another worker can take it at once.
func (w *writer) Release(work context.Context, s *leasedStream) { w.giveBack(work, s, 0, "") }

// giveBack gives a stream back with an error, to be tried again after rest. If that
// fails, the lease expires.
func (w *writer) giveBack(work context.Context, s *leasedStream, rest time.Duration, failure string) {
	defer w.heartbeat.Remove(s)
	ctx, cancel := worker.Outlast(work, worker.LastWords)
	defer cancel()
	_ = s.Settle(func() (bool, error) { return true, pg.ExtendArchiveStream(ctx, w.db, s.ArchiveStream, rest, failure) })
}

package project

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// held is a lease that is being worked on. It stays alive meanwhile.
type held struct {
	lease pg.Lease
	// ctx ends when the lease is lost, or the worker has no more time.
	ctx  context.Context
	end  context.CancelCauseFunc
	beat sync.WaitGroup

	// saying is held while the lease is settled or extended: the first would take
	// the lock of the second for somebody else's.
	saying sync.Mutex

	mu        sync.Mutex
	begun     time.Time          // the batch at hand
	settling  bool               // do not extend now
	interrupt context.CancelFunc // of an extension under way
}

func (w *Worker) hold(work context.Context, lease pg.Lease) *held {
	h := &held{lease: lease, begun: time.Now()}
	h.ctx, h.end = context.WithCancelCause(work)
	h.beat.Go(func() { w.keepAlive(h) })
	return h
}

// letGo ends the heartbeat. It may be called again.
func (h *held) letGo() {
	h.quiet(true)
	h.end(nil)
	h.beat.Wait()
}

// lost reports whether somebody else has the lease.
func (h *held) lost() bool { return errors.Is(context.Cause(h.ctx), pg.ErrLeaseLost) }

// begin notes that a batch begins.
func (h *held) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = time.Now()
}

// quiet stops extensions, or allows them again. One under way is interrupted: it
// may wait for a rebuild that waits for the tables of our transaction.
func (h *held) quiet(quiet bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settling = quiet
	if quiet && h.interrupt != nil {
		h.interrupt()
	}
}

// settle runs what settles the lease up to an event. After the last one there is
// nothing to keep alive.
func (h *held) settle(end int, how func(ctx context.Context) error) error {
	h.quiet(true)
	h.saying.Lock()
	defer h.saying.Unlock()
	err := how(h.ctx)
	if err != nil || end < len(h.lease.Events) {
		h.quiet(false)
	}
	return err
}

func (w *Worker) keepAlive(h *held) {
	ticker := time.NewTicker(w.LeaseFor / 3)
	defer ticker.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-ticker.C:
			w.extend(h)
		}
	}
}

// extend moves the deadline. A batch that does not return although its time is
// over loses its lease, since it would stop the projection on all nodes.
func (w *Worker) extend(h *held) {
	h.saying.Lock()
	defer h.saying.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, w.LeaseFor/3)
	defer cancel()
	idle, ok := h.beginExtending(cancel)
	defer h.endExtending()
	switch {
	case !ok:
		return
	case w.Timeout > 0 && idle > w.Timeout+w.LeaseFor:
		w.Log.Error("a batch does not return although its time is over: its lease is left to expire", "projection", w.Group.Name)
		return
	}
	switch _, err := pg.Extend(ctx, w.Pool, h.lease, w.LeaseFor); {
	case errors.Is(err, pg.ErrLeaseLost):
		h.end(pg.ErrLeaseLost)
	case err != nil && ctx.Err() == nil:
		w.Log.Warn("cannot extend a lease yet", "projection", w.Group.Name, "error", err)
	}
}

// beginExtending reports how long the batch has been running, and whether the
// lease may be extended now.
func (h *held) beginExtending(interrupt context.CancelFunc) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = interrupt
	return time.Since(h.begun), !h.settling
}

func (h *held) endExtending() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
}

package project

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config says which projection to keep, and how.
type Config struct {
	Pool  *pg.Pool // for our own statements
	Work  Beginner // for the transactions of batches
	Group pg.Group
	Node  string

	Patterns []string // of the types that are applied; others are passed over
	Apply    func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
	News     <-chan struct{} // receives when there may be work; may be nil

	BatchSize int           // events per transaction, at most
	LeaseFor  time.Duration // deadline of a lease; it moves while somebody works on it
	Timeout   time.Duration // of one call of Apply; 0 for none
	IdlePoll  time.Duration // how often to look for work without news

	Log *slog.Logger
}

// Beginner makes transactions: a pool.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Worker applies the events of one projection. It belongs to one goroutine.
type Worker struct {
	Config
	size int // events per transaction: fewer after a failure, more as it goes well
}

// New returns a worker.
func New(config Config) *Worker { return &Worker{Config: config, size: config.BatchSize} }

// lastWords is how long a worker that ends tries to give its lease back.
const lastWords = 10 * time.Second

// Run applies events until stop ends. Then it takes nothing more, and returns
// when the batch at hand is done; that has until work ends.
func (w *Worker) Run(stop, work context.Context) {
	for complained := false; stop.Err() == nil; {
		took, err := w.Next(stop, work)
		var stands *EventError
		switch {
		case err == nil && took > 0:
			complained = false
			continue
		case err == nil:
			complained = false
		case errors.As(err, &stands):
			w.Log.Error("projection stands still at an event that it cannot apply", "projection", w.Group.Name,
				"event", stands.Event, "type", stands.Type, "error", stands.Err, "retry_at", stands.RetryAt)
		case errors.Is(err, pg.ErrLeaseLost):
			w.Log.Warn("lease lost: what was not committed is applied again", "projection", w.Group.Name, "error", err)
		case stop.Err() != nil:
		default:
			if !complained {
				w.Log.Warn("trouble with the database, trying again", "projection", w.Group.Name, "error", err)
			}
			complained = true
			w.Rest(stop, worker.TroubleWait)
			continue
		}
		w.Rest(stop, w.IdlePoll)
	}
}

// Rest waits for news, for that long at most.
func (w *Worker) Rest(ctx context.Context, d time.Duration) {
	worker.Rest(ctx, d, w.News)
}

// Next takes a lease and applies its events, and returns how many it took: none
// when there is nothing to do. When stop ends it gives back what it has not
// begun. The error is an [*EventError], [pg.ErrLeaseLost], or the database's.
func (w *Worker) Next(stop, work context.Context) (took int, err error) {
	lease, err := w.Pool.Take(work, pg.Take{Group: w.Group, Node: w.Node, MaxEvents: w.BatchSize, LeaseFor: w.LeaseFor})
	if err != nil || !lease.Held() {
		return 0, err
	}
	h := w.hold(work, lease)
	defer h.letGo()
	return len(lease.Events), w.workOff(stop, h)
}

// workOff applies the events of a lease, batch by batch.
func (w *Worker) workOff(stop context.Context, h *held) error {
	events := h.lease.Events
	for start := 0; start < len(events); {
		if stop.Err() != nil || h.ctx.Err() != nil {
			return w.release(h, nil)
		}
		end := min(start+w.size, len(events))
		err := w.insist(h, start, end)
		var refused *refusal
		switch {
		case err == nil:
			start, w.size = end, min(2*w.size, w.BatchSize)
		case errors.Is(err, pg.ErrLeaseLost), h.lost():
			return errors.Join(pg.ErrLeaseLost, err)
		case h.ctx.Err() != nil:
			return w.release(h, nil)
		case !errors.As(err, &refused):
			return w.release(h, err)
		case end-start > 1:
			w.size = (end - start) / 2
		default:
			return w.standStill(h, events[start], refused.err)
		}
	}
	return nil
}

// release gives the rest of a lease back. After trouble it is taken anew, and
// not gone on with: a commit whose answer was lost may have happened.
func (w *Worker) release(h *held, because error) error {
	h.letGo()
	ctx, cancel := worker.Outlast(h.ctx, lastWords)
	defer cancel()
	if err := pg.Release(ctx, w.Pool, h.lease); err != nil && !errors.Is(err, pg.ErrLeaseLost) && because == nil {
		return err // it expires
	}
	return because
}

// EventError is why a projection stands still.
type EventError struct {
	Event   int64
	Type    string
	Err     error
	RetryAt time.Time
}

func (e *EventError) Error() string { return e.Err.Error() }
func (e *EventError) Unwrap() error { return e.Err }

func (w *Worker) standStill(h *held, e pg.Event, err error) error {
	h.letGo()
	ctx, cancel := worker.Outlast(h.ctx, lastWords)
	defer cancel()
	retryAt, failing := pg.FailProjection(ctx, w.Pool, h.lease, e.ID, worker.Clip(err.Error()))
	if failing != nil {
		return failing
	}
	return &EventError{Event: e.ID, Type: e.Type, Err: err, RetryAt: retryAt}
}

package consume

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// inTransactions runs the events of a lease in order, each in a transaction that also
// moves the head of the lease past it: the effect and the acknowledgement commit
// together.
//
// If several handlers of an event need a transaction, the event is acknowledged for the
// first one only, and delivered again to each of the others by itself.
func (w *groupWorker) inTransactions(l *lease) {
	ctx := l.Context()
	defer w.pipeline.End(ctx)
	for start := 0; start < len(l.Events); {
		if ctx.Err() != nil {
			l.leave(start)
			return
		}
		end := w.chunkEnd(l, start, true)
		failures, err := w.transact(l, start, end)
		switch {
		case l.Lost():
			return
		case err != nil:
			w.backOff(l, err)
			return
		case w.Blocks && holdsBack(failures):
			l.leave(end)
			return
		}
		start = end
	}
}

// backOff gives a lease back after an error of the database. If a settlement has
// succeeded and only its result was lost, the rest of the lease is given back.
func (w *groupWorker) backOff(l *lease, err error) {
	ctx := l.Context()
	if ctx.Err() == nil {
		w.opening.Report(err)
	}
	w.pipeline.End(ctx)
	w.Release(ctx, l)
	worker.Pause(ctx, worker.TroubleWait)
}

// transact runs one chunk in a transaction. It returns the failures that still have to
// be settled, or an error of the database.
func (w *groupWorker) transact(l *lease, start, end int) (failures []pg.Failure, err error) {
	inside := w.participants(l, start, end)
	var others []pg.Failure // for handlers that are not inside
	if w.SharedTx {
		others = w.unhandled(&l.Events[start], l.routes[start])
	} else {
		failures = w.plain(l, start, end)
		if len(inside) > 0 {
			others = l.owedToOthers(inside[0], start, end)
		}
	}
	if len(inside) == 0 {
		failures = append(failures, others...)
		w.finish(l, start, end, failures)
		return failures, nil
	}
	handlerErr, err := w.retried(l, inside, start, end, slices.Concat(failures, others))
	l.Step()
	if err != nil || handlerErr == nil {
		return nil, err
	}
	if !w.SharedTx { // with SharedTx, all handlers are rolled back
		failures = append(failures, others...)
	}
	failures = append(failures, w.blame(l, inside[0], start, end, handlerErr)...)
	w.finish(l, start, end, failures)
	return failures, nil
}

// participants returns the handlers that run in the transaction: the first one that
// needs it or, with SharedTx, all of them.
func (w *groupWorker) participants(l *lease, start, end int) []*Handler {
	if w.SharedTx {
		var all []*Handler
		for _, h := range w.router.table.handlers {
			if len(l.eventsFor(h, start, end)) > 0 {
				all = append(all, h)
			}
		}
		return all
	}
	for _, h := range w.router.table.handlers {
		if h.transactional() && len(l.eventsFor(h, start, end)) > 0 {
			return []*Handler{h}
		}
	}
	return nil
}

// owedToOthers gives events back for the other handlers in transactions, which run
// later.
func (l *lease) owedToOthers(leader *Handler, start, end int) []pg.Failure {
	var owed []pg.Failure
	for i := start; i < end; i++ {
		for _, h := range l.routes[i].transactional {
			if h != leader {
				owed = append(owed, released(l.Events[i].ID, h.Name))
			}
		}
	}
	return owed
}

// tries is the number of attempts of a transaction that collides with others. After
// that the event has failed, and is retried later.
const tries = 5

// retried runs the transaction, and repeats it after collisions.
func (w *groupWorker) retried(l *lease, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	err = worker.Retry{Collisions: tries}.Do(l.Context(), func(context.Context) (err error) {
		handlerErr, err = w.once(l, inside, start, end, owed)
		if pg.IsCollision(handlerErr) {
			return handlerErr
		}
		return err
	})
	if pg.IsCollision(err) {
		return err, nil
	}
	if err == nil {
		w.opening.Over()
	}
	return handlerErr, err
}

// once runs handlers in one transaction, which also settles their events.
func (w *groupWorker) once(l *lease, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	ctx := l.Context()
	if err := w.pipeline.Begin(ctx); err != nil {
		return nil, err
	}
	handlerErr = w.pipeline.Run(func(tx pgx.Tx) error {
		for _, h := range inside {
			if err := w.call(ctx, h, tx, l.eventsFor(h, start, end)); err != nil {
				return err
			}
		}
		return nil
	})
	if handlerErr == nil {
		handlerErr, err = worker.Blame(l.Settle(func() (bool, error) { return w.commit(ctx, l, end, owed) }))
	}
	if handlerErr != nil || err != nil {
		w.pipeline.End(ctx)
	}
	return handlerErr, err
}

// commit settles a lease up to an event and commits. It reports whether that was
// the last one. The next transaction begins in the same round trip if the next event
// needs only that; it must not lie idle while plain handlers run.
func (w *groupWorker) commit(ctx context.Context, l *lease, end int, owed []pg.Failure) (over bool, err error) {
	s := l.unsettled()
	before := l.Events[l.head:end]
	e := pg.Ending{Lease: l.Lease, LeaseFor: w.LeaseFor, Failures: slices.Concat(s.failures, owed)}
	if over = end == len(l.Events); !over {
		e.Part, e.UpTo = true, l.Events[end-1].ID
		next := l.routes[end]
		e.Another = !w.router.table.batches && (w.SharedTx || len(next.plain) == 0 && len(next.transactional) > 0)
	}
	err = w.settle(ctx, l, before, e, w.pipeline.Commit)
	if err == nil {
		s.head = end
		l.settled(s)
	}
	return over, err
}

// blame turns the error of a transaction into failures of its events. Their effects are
// rolled back.
func (w *groupWorker) blame(l *lease, leader *Handler, start, end int, err error) []pg.Failure {
	subscription := leader.Name
	if w.SharedTx {
		subscription = ""
	}
	return w.judgeBatch(l, subscription, l.eventsFor(leader, start, end), true, err)
}

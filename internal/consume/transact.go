package consume

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// inTransactions runs the events of a lease in order, each in a transaction that
// also moves the head of the lease past it: its effect and its acknowledgement
// are one.
//
// An event that several handlers want in a transaction is acknowledged with the
// first, which leaves it owed to the others: they get it again, each by itself.
func (l *lane) inTransactions(held *lease) {
	ctx := held.Context()
	defer l.chain.End(ctx)
	for start := 0; start < len(held.Events); {
		if ctx.Err() != nil {
			held.leave(start)
			return
		}
		end := l.chunkEnd(held, start, true)
		failures, err := l.transact(held, start, end)
		switch {
		case held.Lost():
			return
		case err != nil:
			l.backOff(held, err)
			return
		case l.Blocks && holdsBack(failures):
			held.leave(end)
			return
		}
		start = end
	}
}

// backOff gives a lease back when the database would not have it settled. If it
// was settled all the same, and only the answer is missing, it is shorter by
// that.
func (l *lane) backOff(held *lease, err error) {
	ctx := held.Context()
	if ctx.Err() == nil {
		l.opening.Report(err)
	}
	l.chain.End(ctx)
	l.Release(ctx, held)
	worker.Pause(ctx, worker.TroubleWait)
}

// transact runs one chunk, and returns what failed in it and is not settled with
// it. An error is the database's.
func (l *lane) transact(held *lease, start, end int) (failures []pg.Failure, err error) {
	inside := l.participants(held, start, end)
	var others []pg.Failure // what is left to those that are not inside
	if l.Together {
		others = l.unhandled(&held.Events[start], held.routes[start])
	} else {
		failures = l.plain(held, start, end)
		if len(inside) > 0 {
			others = held.owedToOthers(inside[0], start, end)
		}
	}
	if len(inside) == 0 {
		failures = append(failures, others...)
		l.finish(held, start, end, failures)
		return failures, nil
	}
	handlerErr, err := l.retried(held, inside, start, end, slices.Concat(failures, others))
	held.Step()
	if err != nil || handlerErr == nil {
		return nil, err
	}
	if !l.Together { // together, they all start over
		failures = append(failures, others...)
	}
	failures = append(failures, l.blame(held, inside[0], start, end, handlerErr)...)
	l.finish(held, start, end, failures)
	return failures, nil
}

// participants are the handlers that run in the transaction: the first that wants
// one, or all of them together.
func (l *lane) participants(held *lease, start, end int) []*Handler {
	if l.Together {
		var all []*Handler
		for _, h := range l.router.table.handlers {
			if len(held.eventsFor(h, start, end)) > 0 {
				all = append(all, h)
			}
		}
		return all
	}
	for _, h := range l.router.table.handlers {
		if h.transactional() && len(held.eventsFor(h, start, end)) > 0 {
			return []*Handler{h}
		}
	}
	return nil
}

// owedToOthers is what stays to be done by other handlers in transactions.
func (held *lease) owedToOthers(leader *Handler, start, end int) []pg.Failure {
	var owed []pg.Failure
	for i := start; i < end; i++ {
		for _, h := range held.routes[i].transactional {
			if h != leader {
				owed = append(owed, released(held.Events[i].ID, h.Name))
			}
		}
	}
	return owed
}

// tries is how often a transaction is begun that collides with others. If that is
// not enough, it is a failure of the event, to be tried later.
const tries = 5

// retried runs the transaction, again if it collided with another.
func (l *lane) retried(held *lease, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	err = worker.Retry{Collisions: tries}.Do(held.Context(), func(context.Context) (err error) {
		handlerErr, err = l.once(held, inside, start, end, owed)
		if pg.IsCollision(handlerErr) {
			return handlerErr
		}
		return err
	})
	if pg.IsCollision(err) {
		return err, nil
	}
	if err == nil {
		l.opening.Over()
	}
	return handlerErr, err
}

// once runs handlers in one transaction and settles there what they did.
func (l *lane) once(held *lease, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	ctx := held.Context()
	if err := l.chain.Begin(ctx); err != nil {
		return nil, err
	}
	handlerErr = l.chain.Run(func(tx pgx.Tx) error {
		for _, h := range inside {
			if err := l.call(ctx, h, tx, held.eventsFor(h, start, end)); err != nil {
				return err
			}
		}
		return nil
	})
	if handlerErr == nil {
		handlerErr, err = worker.Blame(held.Settle(func() (bool, error) { return l.commit(ctx, held, end, owed) }))
	}
	if handlerErr != nil || err != nil {
		l.chain.End(ctx)
	}
	return handlerErr, err
}

// commit settles a lease up to an event and commits. It reports whether that was
// the last one. The next transaction may begin at once if what comes next happens
// in it; it should not lie idle while other handlers run.
func (l *lane) commit(ctx context.Context, held *lease, end int, owed []pg.Failure) (over bool, err error) {
	s := held.unsettled()
	before := held.Events[held.head:end]
	e := pg.Ending{Lease: held.Lease, LeaseFor: l.LeaseFor, Failures: slices.Concat(s.failures, owed)}
	if over = end == len(held.Events); !over {
		e.UpTo = held.Events[end-1].ID
		next := held.routes[end]
		e.Another = !l.router.table.batches && (l.Together || len(next.plain) == 0 && len(next.transactional) > 0)
	}
	err = l.observeSettle(ctx, before, e.Failures, func(ctx context.Context) error { return l.chain.Commit(ctx, e) })
	if err == nil {
		s.head = end
		held.settled(s)
	}
	return over, err
}

// blame says what a failed transaction means for its events: all their effects
// are rolled back.
func (l *lane) blame(held *lease, leader *Handler, start, end int, err error) []pg.Failure {
	subscription := leader.Name
	if l.Together {
		subscription = ""
	}
	return l.judgeBatch(held, subscription, held.eventsFor(leader, start, end), true, err)
}

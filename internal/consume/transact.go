package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
)

// inTransactions runs the events of a lease in order, each in a transaction that
// also moves the head of the lease past it: its effect and its acknowledgement
// are one. It reports whether nothing is left to settle.
//
// An event that several handlers want in a transaction is acknowledged with the
// first, which leaves it owed to the others: they get it again, each by itself.
func (l *lane) inTransactions(f *flight) (over bool) {
	defer l.chain.end(f.ctx)
	for start := 0; start < len(f.lease.Events); {
		if f.ctx.Err() != nil {
			f.giveBack(start)
			return false
		}
		end := l.chunkEnd(f, start, true)
		before := len(f.failures)
		settled, err := l.transact(f, start, end)
		switch {
		case errors.Is(err, pg.ErrLeaseLost):
			f.end(pg.ErrLeaseLost)
			return true
		case err != nil:
			l.backOff(f, err)
			return true
		}
		start = end
		if settled {
			over = start == len(f.lease.Events)
			f.advance(end)
		} else if l.Blocks && holdsBack(f.failures[before:]) {
			f.giveBack(start)
			return false
		}
	}
	return over
}

// advance notes that the lease is settled up to there.
func (f *flight) advance(end int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head, f.failures = end, nil
}

// backOff gives a lease back when the database would not have it settled. If it
// was settled all the same, and only the answer is missing, it is shorter by
// that.
func (l *lane) backOff(f *flight, err error) {
	if f.ctx.Err() == nil {
		l.trouble("cannot run a transaction yet", err)
	}
	l.release(f.ctx, f.lease)
	Pause(f.ctx, TroubleWait)
}

// transact runs one chunk. It reports whether the lease is settled up to its
// end; what failed is otherwise noted in the flight. An error is the database's.
func (l *lane) transact(f *flight, start, end int) (settled bool, err error) {
	inside := l.participants(f, start, end)
	if !l.Together {
		f.failures = append(f.failures, l.plain(f, start, end)...)
	}
	var others []pg.Failure // what is left to those who are not inside
	if l.Together {
		others = l.unhandled(&f.lease.Events[start], f.routes[start])
	} else if len(inside) > 0 {
		others = f.owedToOthers(inside[0], start, end)
	}
	if len(inside) == 0 {
		f.failures = append(f.failures, others...)
		f.finish(start, nil)
		return false, nil
	}
	handlerErr, err := l.insist(f, inside, start, end, slices.Concat(f.failures, others))
	f.finish(start, nil)
	if err != nil || handlerErr == nil {
		return err == nil, err
	}
	if !l.Together { // together, they all start over
		f.failures = append(f.failures, others...)
	}
	f.failures = append(f.failures, l.blame(f, inside[0], start, end, handlerErr)...)
	return false, nil
}

// participants are the handlers that run in the transaction: the first that wants
// one, or all of them together.
func (l *lane) participants(f *flight, start, end int) []*Handler {
	if l.Together {
		var all []*Handler
		for _, h := range l.router.table.handlers {
			if len(f.eventsFor(h, start, end)) > 0 {
				all = append(all, h)
			}
		}
		return all
	}
	for _, h := range l.router.table.handlers {
		if h.transactional() && len(f.eventsFor(h, start, end)) > 0 {
			return []*Handler{h}
		}
	}
	return nil
}

// owedToOthers is what stays to be done by other handlers in transactions.
func (f *flight) owedToOthers(leader *Handler, start, end int) []pg.Failure {
	var owed []pg.Failure
	for i := start; i < end; i++ {
		for _, h := range f.routes[i].transactional {
			if h != leader {
				owed = append(owed, released(f.lease.Events[i].ID, h.Name))
			}
		}
	}
	return owed
}

// How often a transaction is begun again that collided with another, and how long
// it keeps out of the way at first, at most.
const (
	tries         = 5
	collisionWait = 10 * time.Millisecond
)

// insist runs the transaction, again if it collided with another.
func (l *lane) insist(f *flight, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	for try := range tries {
		if try > 0 {
			Pause(f.ctx, rand.N(time.Duration(try)*collisionWait)) // or they meet again
		}
		handlerErr, err = l.once(f, inside, start, end, owed)
		if !again(handlerErr) && !again(err) {
			break
		}
	}
	if again(err) { // too busy a place: that is a failure of the event, to be tried later
		return err, nil
	}
	return handlerErr, err
}

// once runs handlers in one transaction and settles there what they did.
func (l *lane) once(f *flight, inside []*Handler, start, end int, owed []pg.Failure) (handlerErr, err error) {
	if err := l.chain.begin(f.ctx); err != nil {
		return nil, err
	}
	handlerErr = l.callInside(f, inside, start, end)
	if handlerErr == nil {
		handlerErr, err = blameHandler(l.observeSettle(f.ctx, f.lease.Events[f.head:end], owed, func(ctx context.Context) error {
			return l.chain.commit(ctx, l.ending(f, end, owed))
		}))
	}
	if handlerErr != nil || err != nil {
		l.chain.end(f.ctx)
	}
	return handlerErr, err
}

// callInside runs handlers in the transaction that is open.
func (l *lane) callInside(f *flight, inside []*Handler, start, end int) error {
	tx := &heldTx{Tx: l.chain.tx}
	defer tx.over.Store(true)
	for _, h := range inside {
		if err := l.call(f.ctx, h, tx, f.asAtOrigin(f.eventsFor(h, start, end))); err != nil {
			return err
		}
	}
	if tx.Conn().PgConn().IsBusy() {
		return errBusy
	}
	return nil
}

// ending settles a lease up to an event. The next transaction may begin at once
// if what comes next happens in it; it should not lie idle while other handlers
// run.
func (l *lane) ending(f *flight, end int, owed []pg.Failure) pg.Ending {
	e := pg.Ending{Lease: f.lease, LeaseFor: l.LeaseFor, Failures: owed}
	if end < len(f.lease.Events) {
		e.UpTo = f.lease.Events[end-1].ID
		next := f.routes[end]
		e.Another = !l.router.table.batches && (l.Together || len(next.plain) == 0 && len(next.transactional) > 0)
	}
	return e
}

// blameHandler tells who is to blame when a transaction cannot be settled and
// committed: its handler, which let an error of one of its statements pass or did
// what a deferred constraint forbids, or the database.
func blameHandler(err error) (handlerErr, _ error) {
	const inFailedTransaction = "25P02"
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == inFailedTransaction {
		return errSwallowed, nil
	}
	if e, ok := errors.AsType[*pg.CommitError](err); ok && e.Refused() {
		return err, nil
	}
	return nil, err
}

var (
	errSwallowed = errors.New("a statement failed in the transaction, and the handler returned no error")
	errBusy      = errors.New("the handler returned before it had read, or closed, the rows of a query")
)

// blame says what a failed transaction means for its events: all their effects
// are rolled back.
func (l *lane) blame(f *flight, leader *Handler, start, end int, err error) []pg.Failure {
	subscription := leader.Name
	if l.Together {
		subscription = ""
	}
	return l.judgeBatch(f, subscription, f.eventsFor(leader, start, end), true, err)
}

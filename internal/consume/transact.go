package consume

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// inTransactions runs the events of a lease in order, each in a transaction that
// also moves the head of the lease past it: its effect and its acknowledgement
// are one. It reports whether nothing is left to settle.
//
// An event that several handlers want in a transaction is acknowledged with the
// first, which leaves it owed to the others: they get it again, each by itself.
func (l *lane) inTransactions(f *flight) (over bool) {
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
	pause(f.ctx, troubleWait)
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
			pause(f.ctx, rand.N(time.Duration(try)*collisionWait)) // or they meet again
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
	tx, err := l.Work.Begin(f.ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := Outlast(f.ctx, lastWords)
		defer cancel()
		_ = tx.Rollback(ctx) // of what is committed, there is none
	}()
	for _, h := range inside {
		if handlerErr = l.call(f.ctx, h, heldTx{tx}, f.eventsFor(h, start, end)); handlerErr != nil {
			return handlerErr, nil
		}
	}
	err = l.observeSettle(f.ctx, f.lease.Events[f.head:end], owed, func(ctx context.Context) error {
		handlerErr, err = l.acknowledge(ctx, tx, f, end, owed)
		return cmp.Or(handlerErr, err)
	})
	if handlerErr != nil {
		return handlerErr, nil
	}
	return nil, err
}

// acknowledge settles the lease up to an event and commits.
func (l *lane) acknowledge(ctx context.Context, tx pgx.Tx, f *flight, end int, owed []pg.Failure) (handlerErr, err error) {
	if end == len(f.lease.Events) {
		err = pg.Settle(ctx, tx, f.lease, owed...)
	} else {
		err = pg.SettleUntil(ctx, tx, f.lease, f.lease.Events[end-1].ID, l.LeaseFor, owed...)
	}
	if err != nil {
		return aborted(err)
	}
	return nil, tx.Commit(ctx)
}

// aborted tells who is to blame when a transaction cannot be settled: a handler
// that let an error of one of its statements pass, or the database.
func aborted(err error) (handlerErr, _ error) {
	const inFailedTransaction = "25P02"
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok && e.SQLState() == inFailedTransaction {
		return errSwallowed, nil
	}
	return nil, err
}

var errSwallowed = errors.New("a statement failed in the transaction, and the handler returned no error")

// blame says what a failed transaction means for its events. Those that the
// error does not name go back as they were: their effects are rolled back too.
func (l *lane) blame(f *flight, leader *Handler, start, end int, err error) []pg.Failure {
	subscription := leader.Name
	if l.Together {
		subscription = ""
	}
	batch := f.eventsFor(leader, start, end)
	named, some := asEventErrors(err)
	var failures []pg.Failure
	for i := range batch {
		id := batch[i].ID
		switch {
		case !some:
			failures = append(failures, l.judge(f, id, subscription, err))
		case named[id] != nil:
			failures = append(failures, l.judge(f, id, subscription, named[id]))
		default:
			failures = append(failures, released(id, subscription))
		}
	}
	return failures
}

// heldTx is a transaction that a handler may use but not end: its settlement is
// part of it.
type heldTx struct{ pgx.Tx }

var errHeld = errors.New("a handler's transaction is committed or rolled back by whether the handler returns an error")

func (heldTx) Commit(context.Context) error   { return errHeld }
func (heldTx) Rollback(context.Context) error { return errHeld }

package consume

import (
	"context"
	"errors"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// lane works off one lease at a time.
type lane struct {
	*Consumer
	router router
	chain  chain
}

func (c *Consumer) newLane() *lane {
	return &lane{
		Consumer: c,
		router:   router{routes: c.Routes, table: &table{}},
		chain:    chain{pool: c.Work},
	}
}

func (l *lane) run(stop, work context.Context) {
	if l.Feed != nil {
		l.runFed(stop, work)
		return
	}
	var done pg.Lease // went well, and is settled with the next take
	for {
		lease, ok := l.next(stop, work, done)
		if !ok {
			return
		}
		done = l.workOff(work, lease)
		<-l.slots
	}
}

// runFed works off what the feed hands out. Settling it is a statement of its
// own, since taking the next is none.
func (l *lane) runFed(stop, work context.Context) {
	for {
		lease, ok := l.Feed.Next(stop, l.batch.Next())
		if !ok {
			return
		}
		if l.awaitSlot(stop) {
			if done := l.workOff(work, lease); done.Held() {
				l.settle(work, done, nil)
			}
			<-l.slots
		}
		l.Feed.Landed(lease)
	}
}

// next settles the last lease and takes another. It returns with a slot in hand,
// or reports that it was told to stop.
func (l *lane) next(stop, work context.Context, done pg.Lease) (pg.Lease, bool) {
	if !l.awaitTurn(stop, work, &done) {
		return pg.Lease{}, false
	}
	defer func() { <-l.turn }()
	for complained := false; ; {
		if done.Held() && (stop.Err() != nil || len(l.slots) == cap(l.slots)) {
			l.settle(work, done, nil)
			done = pg.Lease{}
		}
		if !l.awaitSlot(stop) {
			return pg.Lease{}, false
		}
		lease, err := l.take(work, done)
		if err == nil && lease.Held() {
			if stop.Err() == nil {
				return lease, true
			}
			l.release(work, lease)
			lease = pg.Lease{}
		}
		<-l.slots
		switch {
		case err == nil:
			done, complained = pg.Lease{}, false
			if !Rest(stop, l.IdlePoll, l.News) {
				return pg.Lease{}, false
			}
		case errors.Is(err, pg.ErrLeaseLost):
			if !complained { // after trouble, it may well have been settled in the call that failed
				l.lost(done)
			}
			done = pg.Lease{}
		case again(err):
		default:
			if !complained && stop.Err() == nil {
				l.trouble("cannot take work yet", err)
			}
			complained = true
			Pause(stop, TroubleWait)
		}
	}
}

// take settles a lease that is done, if there is one, and takes another.
func (l *lane) take(work context.Context, done pg.Lease) (lease pg.Lease, err error) {
	take := func(ctx context.Context) error {
		lease, err = l.Pool.Take(ctx, pg.Take{
			Group: l.Group, Node: l.Node, MaxEvents: l.batch.Next(), LeaseFor: l.LeaseFor, Settle: done,
		})
		return err
	}
	if l.FromAfar {
		defer func() {
			if err == nil && lease.Held() {
				lease, err = l.withOrigins(work, lease)
			}
		}()
	}
	if done.Held() {
		err = l.observeSettle(work, done.Events, nil, take)
	} else {
		err = take(work)
	}
	return lease, err
}

// withOrigins finds out what the events of a lease are called where they are from.
func (l *lane) withOrigins(work context.Context, lease pg.Lease) (pg.Lease, error) {
	ids := make([]int64, len(lease.Events))
	for i := range lease.Events {
		ids[i] = lease.Events[i].ID
	}
	var err error
	if lease.Origins, err = pg.Origins(work, l.Pool, l.Group.ID, ids); err != nil {
		l.release(work, lease)
		return pg.Lease{}, err
	}
	return lease, nil
}

// patience is how long a lease that is done waits for the call it can go with.
const patience = 5 * time.Millisecond

// awaitTurn waits until this lane may take.
func (l *lane) awaitTurn(stop, work context.Context, done *pg.Lease) bool {
	select {
	case l.turn <- struct{}{}:
		return true
	default:
	}
	if done.Held() {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case l.turn <- struct{}{}:
			return true
		case <-timer.C:
		case <-stop.Done():
		}
		l.settle(work, *done, nil)
		*done = pg.Lease{}
	}
	select {
	case l.turn <- struct{}{}:
		return true
	case <-stop.Done():
		return false
	}
}

func (l *lane) awaitSlot(stop context.Context) bool {
	if stop.Err() != nil {
		return false
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-stop.Done():
		return false
	}
}

// workOff runs the handlers of a lease. It returns the lease if all went well and
// it is yet to be settled.
func (l *lane) workOff(work context.Context, lease pg.Lease) pg.Lease {
	l.Observe.Took(lease)
	started := time.Now()
	f := l.begin(work, lease)
	table := l.plan(f)
	over := false // nothing is left to settle
	switch {
	case l.Together || table.transactional:
		over = l.inTransactions(f)
	case l.Ordered || table.batches:
		l.oneByOne(f)
	default:
		l.sideBySide(f)
	}
	l.land(f)
	l.batch.Took(len(lease.Events), time.Since(started))
	switch {
	case f.lost():
		l.lost(lease)
	case over:
	case len(f.failures) > 0:
		l.settle(work, lease, f.failures)
	default:
		return lease
	}
	return pg.Lease{}
}

// plan finds the routes of a lease. Before anything is given up because nobody
// has a handler for it, it asks: the news of another node's may be under way.
func (l *lane) plan(f *flight) *table {
	table := l.router.refresh()
	if l.findRoutes(f) || l.AskOthers == nil {
		return table
	}
	err := l.AskOthers(f.ctx)
	table = l.router.refresh()
	if l.findRoutes(f) || err == nil {
		return table
	}
	if f.ctx.Err() == nil {
		l.trouble("cannot ask other nodes for their handlers", err)
	}
	for i, r := range f.routes {
		f.routes[i] = r.handedOver()
	}
	return table
}

// findRoutes reports whether somebody is known for everything.
func (l *lane) findRoutes(f *flight) bool {
	known := true
	f.routes = make([]*route, len(f.lease.Events))
	for i := range f.lease.Events {
		f.routes[i] = l.router.of(&f.lease.Events[i])
		known = known && len(f.routes[i].nobody) == 0
	}
	return known
}

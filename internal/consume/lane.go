package consume

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/worker"
)

// lane works off one lease at a time.
type lane struct {
	*group
	*worker.Lane
	router router
	chain  *worker.Chain
}

// Lane returns what works off leases in a lane.
func (g *group) Lane(of *worker.Lane) func(work context.Context, l *lease) bool {
	l := &lane{
		group:  g,
		Lane:   of,
		router: router{routes: g.Routes, table: &table{}},
		chain:  g.Work.Chain(g.LeaseFor),
	}
	return l.workOff
}

// workOff runs the handlers of a lease. It reports whether all went well and the
// lease is yet to be settled.
func (l *lane) workOff(work context.Context, held *lease) bool {
	l.Observe.Took(held.Lease)
	held.Step()
	started := time.Now()
	table := l.plan(held)
	switch {
	case l.Together || table.transactional:
		l.inTransactions(held)
	case l.Ordered || table.batches:
		l.oneByOne(held)
	default:
		l.sideBySide(held)
	}
	l.batch.Took(len(held.Events), time.Since(started))
	switch {
	case held.Lost():
		l.Lost(held)
	case held.Over():
		l.heartbeat.Remove(held)
	case held.clean():
		return true
	default:
		l.Finish(work, held)
	}
	return false
}

// plan finds the routes of a lease. Before anything is given up because no node
// is known to have a handler for it, it asks: the news of one may be under way.
func (l *lane) plan(held *lease) *table {
	table := l.router.refresh()
	if l.findRoutes(held) || l.AskOthers == nil {
		return table
	}
	ctx := held.Context()
	err := l.AskOthers(ctx)
	table = l.router.refresh()
	known := l.findRoutes(held)
	if err == nil {
		l.asking.Over()
	}
	if known || err == nil {
		return table
	}
	if ctx.Err() == nil {
		l.asking.Report(err)
	}
	for i, r := range held.routes {
		held.routes[i] = r.handedOver()
	}
	return table
}

// findRoutes reports whether a handler is known for everything.
func (l *lane) findRoutes(held *lease) bool {
	known := true
	held.routes = make([]*route, len(held.Events))
	for i := range held.Events {
		held.routes[i] = l.router.of(&held.Events[i])
		known = known && len(held.routes[i].nobody) == 0
	}
	return known
}

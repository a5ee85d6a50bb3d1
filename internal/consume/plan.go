package consume

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/pg"
)

// plan finds the routes of a lease. Before an event is buried for lack of a handler,
// plan asks the other nodes for their handlers.
func (w *groupWorker) plan(l *lease) *table {
	table := w.router.refresh()
	if w.findRoutes(l) || w.AskOthers == nil {
		return table
	}
	ctx := l.Context()
	err := w.AskOthers(ctx)
	table = w.router.refresh()
	known := w.findRoutes(l)
	if err == nil {
		w.asking.Over()
	}
	if known || err == nil {
		return table
	}
	if ctx.Err() == nil {
		w.asking.Report(err)
	}
	for i, r := range l.routes {
		l.routes[i] = r.handedOver()
	}
	return table
}

// findRoutes reports whether a handler is known for every subscription.
func (w *groupWorker) findRoutes(l *lease) bool {
	known := true
	l.routes = make([]*route, len(l.Events))
	for i := range l.Events {
		l.routes[i] = w.router.of(&l.Events[i])
		known = known && len(l.routes[i].unknown) == 0
	}
	return known
}

// unhandled returns the failures of an event for subscriptions that have no handler
// in this process.
func (w *groupWorker) unhandled(e *pg.Event, r *route) []pg.Failure {
	if r.empty() {
		if w.DeadLetterUnhandled {
			return []pg.Failure{noHandler(e, "")}
		}
		return nil
	}
	var failures []pg.Failure
	for _, name := range r.elsewhere {
		failures = append(failures, elsewhere(e.ID, name))
	}
	for _, name := range r.unknown {
		failures = append(failures, noHandler(e, name))
	}
	return failures
}

// noHandler buries an event that no node has a handler for.
func noHandler(e *pg.Event, subscription string) pg.Failure {
	return pg.Failure{Event: e.ID, Subscription: subscription, Permanent: true, Reason: fmt.Sprintf(reasonNoHandler, e.Type)}
}

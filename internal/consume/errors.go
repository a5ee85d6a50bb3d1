package consume

import (
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// eventErrors is what handlers of batches return when some events failed.
type eventErrors interface {
	error
	Failures() map[int64]error
}

// What a dead letter says in a few words; the names are seed 000's.
const (
	reasonFailed    = "Handler error"
	reasonNoHandler = "No handler for event %s"
)

// failure turns a handler's error into what settle understands.
func failure(event int64, subscription string, err error) pg.Failure {
	f := pg.Failure{Event: event, Subscription: subscription, Error: worker.Clip(err.Error()), Reason: reasonFailed}
	if _, ok := errors.AsType[*worker.PermanentError](err); ok {
		f.Permanent = true
	} else if retry, ok := errors.AsType[*worker.RetryError](err); ok {
		f.RetryIn = &retry.After
	} else if back, ok := errors.AsType[*worker.ReleaseError](err); ok {
		f.Released, f.RetryIn = true, &back.After
	}
	if panicked, ok := errors.AsType[*worker.PanicError](err); ok {
		f.Stack = worker.Clip(string(panicked.Stack))
	}
	return f
}

// elsewhere hands an event to the node that has the handler.
func elsewhere(event int64, subscription string) pg.Failure {
	after := handOverIn
	return pg.Failure{Event: event, Subscription: subscription, Released: true, RetryIn: &after}
}

// handOverIn is how long such an event rests, so that a node which lacks the
// handler does not take it again and again.
var handOverIn = time.Second

// released hands an event back that was not tried.
func released(event int64, subscription string) pg.Failure {
	return pg.Failure{Event: event, Subscription: subscription, Released: true}
}

// noHandler buries an event that nobody knows what to do with.
func (g *group) noHandler(e *pg.Event, subscription string) pg.Failure {
	f := pg.Failure{
		Event: e.ID, Subscription: subscription, Permanent: true,
		Reason: fmt.Sprintf(reasonNoHandler, e.Type),
	}
	g.report(e, f, errors.New("no node has a handler for it"))
	return f
}

// report logs a failure of an event, with the time of its next attempt or that it
// was the last.
func (g *group) report(e *pg.Event, f pg.Failure, err error) {
	if f.Released {
		return
	}
	attributes := []any{"handler", f.Subscription, "event", e.ID, "type", e.Type, "attempt", e.Delivery, "error", err}
	if f.Stack != "" {
		attributes = append(attributes, "stack", f.Stack)
	}
	if f.Permanent || g.Attempts > 0 && e.Delivery >= g.Attempts {
		g.failing.Report(true, "an event failed for good and is a dead letter now", attributes...)
		return
	}
	after := g.Delay(e.Delivery)
	if f.RetryIn != nil {
		after = *f.RetryIn
	}
	g.failing.Report(false, "a handler failed; its event is tried again", append(attributes, "next_attempt", time.Now().Add(after))...)
}

// AsEventErrors yields the errors by event, if that is what err consists of.
func AsEventErrors(err error) (map[int64]error, bool) {
	named, ok := errors.AsType[eventErrors](err)
	if !ok {
		return nil, false
	}
	return named.Failures(), true
}

package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
)

// PermanentError is one that no further attempt will mend.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryError says when to try again.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// ReleaseError is no failure of the event: it goes back as it was, for that long,
// and the attempt does not count.
type ReleaseError struct {
	After time.Duration
	Err   error
}

func (e *ReleaseError) Error() string { return e.Err.Error() }
func (e *ReleaseError) Unwrap() error { return e.Err }

// PanicError is a panic of a handler, which is a failure of its event alone.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap yields the error that the handler panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

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
	f := pg.Failure{Event: event, Subscription: subscription, Error: Clip(err.Error()), Reason: reasonFailed}
	if _, ok := errors.AsType[*PermanentError](err); ok {
		f.Permanent = true
	} else if retry, ok := errors.AsType[*RetryError](err); ok {
		f.RetryIn = &retry.After
	} else if back, ok := errors.AsType[*ReleaseError](err); ok {
		f.Released, f.RetryIn = true, &back.After
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		f.Stack = Clip(string(panicked.Stack))
	}
	return f
}

// Clip keeps errors that quote whole documents from filling the table.
func Clip(s string) string {
	const most = 16 << 10
	if len(s) <= most {
		return s
	}
	return s[:most] + " …"
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
func noHandler(e *pg.Event, subscription string) pg.Failure {
	return pg.Failure{
		Event: e.ID, Subscription: subscription, Permanent: true,
		Reason: fmt.Sprintf(reasonNoHandler, e.Type),
	}
}

// again reports whether a transaction failed for reasons that have nothing to do
// with what it did: it collided with another.
func again(err error) bool {
	const serializationFailure, deadlock = "40001", "40P01"
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == serializationFailure || e.Code == deadlock)
}

// Outlast returns a context for what has to be said although ctx has ended: it
// keeps its values and ends when d has passed.
func Outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// AsEventErrors yields the errors by event, if that is what err consists of.
func AsEventErrors(err error) (map[int64]error, bool) {
	named, ok := errors.AsType[eventErrors](err)
	if !ok {
		return nil, false
	}
	return named.Failures(), true
}

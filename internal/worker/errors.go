package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// PermanentError is an error that a retry cannot resolve.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryError is an error with the delay before the next attempt.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// ReleaseError gives the event back without a failure: it is handed out again after a
// delay, and the attempt does not count.
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

// Clip shortens the text of an error: some quote whole documents, which would fill the
// table.
func Clip(s string) string {
	const most = 16 << 10
	if len(s) <= most {
		return s
	}
	return s[:most] + " …"
}

// Call calls a handler. A panic is an error. If limit is not 0, the context of the
// handler ends that long after began, with [ErrTimeout].
func Call(ctx context.Context, began time.Time, limit time.Duration, handler func(ctx context.Context) error) (err error) {
	if limit > 0 {
		t := &timeout{Context: ctx, deadline: began.Add(limit)}
		defer t.end()
		ctx = t
	}
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		if err != nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == ErrTimeout {
			err = fmt.Errorf("%w of %v: %w", ErrTimeout, limit, err)
		}
	}()
	return handler(ctx)
}

// CallTx is [Call] for a handler that may have a transaction; tx is nil if it has none. A handler with a transaction that
// returns after its time limit has failed, also without an error: it may have ignored that a statement was cut off, or
// was not sent at all.
func CallTx(ctx context.Context, began time.Time, limit time.Duration, tx pgx.Tx, handler func(ctx context.Context) error) error {
	return Call(ctx, began, limit, func(ctx context.Context) error {
		err := handler(ctx)
		late := limit > 0 && time.Since(began) >= limit // the context is asked only then: it makes a timer for its answer
		if err == nil && tx != nil && late && context.Cause(ctx) == ErrTimeout {
			err = ctx.Err()
		}
		return err
	})
}

// ErrTimeout is the error of a handler that has exceeded its time limit.
var ErrTimeout = errors.New("the handler has used up its time")

// timeout is the context of one call of a handler: it ends with the time limit or with
// the call. A timer costs more than all other work for an event, and most handlers
// never use the context's channel, so the timer is created on first use.
type timeout struct {
	context.Context // of the work
	deadline        time.Time

	mu   sync.Mutex
	real context.Context // created on first use
	stop context.CancelFunc
	over bool
}

func (t *timeout) Deadline() (time.Time, bool) {
	if earlier, ok := t.Context.Deadline(); ok && earlier.Before(t.deadline) {
		return earlier, true
	}
	return t.deadline, true
}

func (t *timeout) Done() <-chan struct{} { return t.made().Done() }

func (t *timeout) Err() error { return t.made().Err() }

// Value makes the context too: context.Cause must not find the parent's.
func (t *timeout) Value(key any) any { return t.made().Value(key) }

func (t *timeout) made() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.real == nil {
		t.real, t.stop = context.WithDeadlineCause(t.Context, t.deadline, ErrTimeout)
		if t.over {
			t.stop()
		}
	}
	return t.real
}

// end is called when the handler has returned.
func (t *timeout) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.stop != nil {
		t.stop()
	}
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
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

// Clip keeps errors that quote whole documents from filling the table.
func Clip(s string) string {
	const most = 16 << 10
	if len(s) <= most {
		return s
	}
	return s[:most] + " …"
}

// Call calls a handler, whose time began and has a limit, if that is not 0. A panic is
// an error, and so is a handler that comes too late: another process may have its
// event.
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

// ErrTimeout is that a handler came too late.
var ErrTimeout = errors.New("the handler has used up its time")

// timeout is the context of one call of a handler: it ends when its time is over,
// or the call. Most handlers return before they ask for its channel, and a timer
// costs more than the rest of the work for an event, so it is made when asked for.
type timeout struct {
	context.Context // of the work
	deadline        time.Time

	mu   sync.Mutex
	real context.Context // from when it was asked for
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

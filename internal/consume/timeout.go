package consume

import (
	"context"
	"errors"
	"sync"
	"time"
)

// timeout is the context of one call of a handler: it ends when its time is over,
// or the call. Most handlers return before they ask for its channel, and a timer
// costs more than all else that is done for an event, so it is made when asked
// for.
type timeout struct {
	context.Context // the flight's
	deadline        time.Time

	mu   sync.Mutex
	real context.Context // from when it was asked for
	stop context.CancelFunc
	over bool
}

var errTimeout = errors.New("the handler has used up its time")

func (t *timeout) Deadline() (time.Time, bool) {
	if earlier, ok := t.Context.Deadline(); ok && earlier.Before(t.deadline) {
		return earlier, true
	}
	return t.deadline, true
}

func (t *timeout) Done() <-chan struct{} { return t.made().Done() }

func (t *timeout) Err() error { return t.made().Err() }

// Value makes the context too: what asks for causes must not find the parent's.
func (t *timeout) Value(key any) any { return t.made().Value(key) }

func (t *timeout) made() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.real == nil {
		t.real, t.stop = context.WithDeadlineCause(t.Context, t.deadline, errTimeout)
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

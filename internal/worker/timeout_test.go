package worker

import (
	"context"
	"errors"
	"testing"
	"time"
)

func newTimeout(ctx context.Context, d time.Duration) *timeout {
	return &timeout{Context: ctx, deadline: time.Now().Add(d)}
}

func TestTimeoutEnds(t *testing.T) {
	t.Parallel()
	c := newTimeout(t.Context(), time.Millisecond)
	child, cancel := context.WithCancel(c)
	defer cancel()
	<-child.Done()
	if !errors.Is(c.Err(), context.DeadlineExceeded) || context.Cause(c) != ErrTimeout || context.Cause(child) != ErrTimeout {
		t.Errorf("%v, because %v; child: %v", c.Err(), context.Cause(c), context.Cause(child))
	}
}

func TestTimeoutLooksBack(t *testing.T) {
	t.Parallel()
	c := newTimeout(t.Context(), -time.Second) // nobody has asked for the channel
	if context.Cause(c) != ErrTimeout || !errors.Is(c.Err(), context.DeadlineExceeded) {
		t.Errorf("%v, because %v", c.Err(), context.Cause(c))
	}
}

func TestTimeoutEndsWithTheCall(t *testing.T) {
	t.Parallel()
	asked, late := newTimeout(t.Context(), time.Hour), newTimeout(t.Context(), time.Hour)
	done := asked.Done()
	for _, c := range []*timeout{asked, late} {
		if asked := c == asked; asked && c.Err() != nil {
			t.Errorf("ended before the call: %v", c.Err())
		}
		c.end()
	}
	<-done
	<-late.Done()
	if !errors.Is(asked.Err(), context.Canceled) || !errors.Is(late.Err(), context.Canceled) {
		t.Errorf("%v, %v", asked.Err(), late.Err())
	}
}

func TestTimeoutEndsWithTheWork(t *testing.T) {
	t.Parallel()
	type key struct{}
	cause := errors.New("lost")
	work, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	c := newTimeout(work, time.Hour)
	if deadline, ok := c.Deadline(); !ok || time.Until(deadline) > time.Hour || c.Value(key{}) != 7 {
		t.Errorf("deadline %v, value %v", deadline, c.Value(key{}))
	}
	end(cause)
	<-c.Done()
	if context.Cause(c) != cause {
		t.Errorf("because %v", context.Cause(c))
	}
}

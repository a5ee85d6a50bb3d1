// Package await lets tests wait for an event to happen. All tests have the same
// limit: a test that passes never waits for it, so it is long enough for the
// busiest machine. Nothing here lets time pass for its own sake.
package await

import (
	"context"
	"testing"
	"time"
)

// Limit is how long a test waits for anything before it fails.
const Limit = 2 * time.Minute

// pace is the pause between two looks at a condition.
const pace = 2 * time.Millisecond

// True waits until the condition holds. The test fails after Limit, naming the
// condition.
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !holds(); Pause() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for this in vain: %s", Limit, what)
		}
	}
}

// Pause is the pause between two looks, for loops that cannot be a condition.
func Pause() { time.Sleep(pace) }

// Value waits for the next value of a channel. The test fails after Limit, or
// when the channel is closed, naming the value.
func Value[T any](t testing.TB, what string, values <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	select {
	case value, open := <-values:
		if !open {
			t.Fatalf("the channel is closed: %s", what)
		}
		return value
	case <-ctx.Done():
		t.Fatalf("waited %v for this in vain: %s", Limit, what)
	}
	panic("unreachable")
}

// Closed waits until a channel is closed and drops its values meanwhile. The
// test fails after Limit.
func Closed[T any](t testing.TB, what string, values <-chan T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	for {
		select {
		case _, open := <-values:
			if !open {
				return
			}
		case <-ctx.Done():
			t.Fatalf("waited %v for this in vain: %s", Limit, what)
		}
	}
}

// Context is the test's context with Limit as its deadline.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Package await lets tests wait for a condition instead of sleeping. All tests
// share one limit. It is long enough for the busiest machine, since a passing
// test never reaches it.
package await

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

// Limit is how long a test waits for a condition before it fails: two minutes, or the
// duration in the environment variable POSTHORN_TEST_WAIT, with which make mutants lets
// tests of broken code fail soon.
var Limit = limit(os.Getenv("POSTHORN_TEST_WAIT"))

func limit(given string) time.Duration {
	if given == "" {
		return 2 * time.Minute
	}
	d, err := time.ParseDuration(given)
	if err != nil || d <= 0 {
		panic("POSTHORN_TEST_WAIT is " + strconv.Quote(given) + ", not a duration")
	}
	return d
}

// pollInterval is the first pause between two checks of a condition, and longestPause the
// longest one.
const pollInterval, longestPause = 2 * time.Millisecond, 20 * time.Millisecond

// True waits until the condition holds. After Limit the test fails, and the
// failure names the condition.
func True(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); PauseSince(began) {
		if time.Since(began) > Limit {
			t.Fatalf("not true after %v: %s", Limit, condition)
		}
	}
}

// Pause sleeps for one poll interval, in loops that True cannot express.
func Pause() { time.Sleep(pollInterval) }

// PauseSince sleeps before the next check of a condition that a test awaits since began: for a
// tenth of the time that it has waited. So a short wait ends at once, and a long one leaves
// the processor to the work that it waits for.
func PauseSince(began time.Time) {
	time.Sleep(min(max(time.Since(began)/10, pollInterval), longestPause))
}

// Value waits for the next value of a channel. The test fails after Limit, or
// when the channel is closed, and the failure names the value.
func Value[T any](t testing.TB, name string, values <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	select {
	case value, open := <-values:
		if !open {
			t.Fatalf("the channel was closed before this value came: %s", name)
		}
		return value
	case <-ctx.Done():
		t.Fatalf("no value after %v: %s", Limit, name)
	}
	panic("unreachable")
}

// Closed waits until a channel is closed, and drops all values that it receives
// until then. The test fails after Limit, and the failure names the channel.
func Closed[T any](t testing.TB, name string, values <-chan T) {
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
			t.Fatalf("not closed after %v: %s", Limit, name)
		}
	}
}

// Context returns the test's context with Limit as its timeout.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

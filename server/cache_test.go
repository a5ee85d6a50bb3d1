package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The size of a cache is limited, however many keys are asked for.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(10, 4, time.Now, func(_ context.Context, n int) (string, error) { return fmt.Sprint(n), nil })
	for n := range 1000 {
		got, err := c.get(t.Context(), n)
		if err != nil || got != fmt.Sprint(n) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) > 10 {
		t.Errorf("%d entries, want 10 at most", len(c.entries))
	}
}

// Concurrent requests for the same key share one query, and errors are not cached.
func TestCacheLoadsOnce(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	at := time.Now()
	c := newCache(10, 4, func() time.Time { return at }, func(context.Context, int) (string, error) {
		if loads.Add(1) == 1 {
			return "", errors.New("no value")
		}
		return "value", nil
	})
	if _, err := c.get(t.Context(), 1); err == nil {
		t.Error("the error was lost")
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := c.get(t.Context(), 1); err != nil || got != "value" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	equal(t, "loads", loads.Load(), 2)
	at = at.Add(cacheTime)
	if _, err := c.get(t.Context(), 1); err != nil {
		t.Error(err)
	}
	equal(t, "loads after the entry has expired", loads.Load(), 3)
}

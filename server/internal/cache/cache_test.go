package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/server/internal/cache"
)

// The size of a cache is limited, however many keys are asked for.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := cache.New[int, string](cache.Config{Size: 10, Timeout: time.Minute})
	loads := 0
	get := func(n int) {
		t.Helper()
		got, err := c.Get(t.Context(), n, func(context.Context) (string, time.Time, error) {
			loads++
			return fmt.Sprint(n), time.Now().Add(time.Hour), nil
		})
		if err != nil || got != fmt.Sprint(n) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	for n := range 1000 {
		get(n)
		get(n)
	}
	if loads != 1000 {
		t.Errorf("%d loads of 1000 keys", loads)
	}
	for n := range 990 {
		get(n)
	}
	if loads != 1990 {
		t.Errorf("%d of 990 keys were kept, in a cache of 10", 1990-loads)
	}
}

// Concurrent requests for the same key share one query, and errors are not kept.
func TestCacheLoadsOnce(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	at := time.Now()
	c := cache.New[int, string](cache.Config{Size: 10, Timeout: time.Minute, Parallel: 4, Now: func() time.Time { return at }})
	get := func() (string, error) {
		return c.Get(t.Context(), 1, func(context.Context) (string, time.Time, error) {
			if loads.Add(1) == 1 {
				return "", at.Add(time.Hour), errors.New("no value")
			}
			return "value", at.Add(time.Second), nil
		})
	}
	if _, err := get(); err == nil {
		t.Error("the error was lost")
	}
	wanted := func(n int64) {
		t.Helper()
		if got, err := get(); err != nil || got != "value" || loads.Load() != n {
			t.Errorf("%q, %v, %d loads, want %d", got, err, loads.Load(), n)
		}
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { wanted(2) })
	}
	all.Wait()
	at = at.Add(time.Second)
	wanted(3)
	c.Drop(1)
	wanted(4)
	c.Clear()
	wanted(5)
}

// A query goes on for others when the request that began it has ended.
func TestCacheOutlivesRequests(t *testing.T) {
	t.Parallel()
	c := cache.New[int, string](cache.Config{Size: 10, Timeout: time.Minute})
	first, leave := context.WithCancel(t.Context())
	begun, goOn := make(chan struct{}), make(chan struct{})
	left := make(chan error)
	load := func(ctx context.Context) (string, time.Time, error) {
		close(begun)
		<-goOn
		return "value", time.Now().Add(time.Hour), ctx.Err()
	}
	go func() {
		_, err := c.Get(first, 1, load)
		left <- err
	}()
	<-begun
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the first request: %v", err)
	}
	close(goOn)
	if got, err := c.Get(t.Context(), 1, load); err != nil || got != "value" {
		t.Errorf("%q, %v", got, err)
	}
}

// The last result is there while a new one is loaded, and after that has failed. It is not given to those who ask for a newer one.
func TestCacheKeepsTheLastResult(t *testing.T) {
	t.Parallel()
	at := time.Now()
	c := cache.New[int, string](cache.Config{Size: 10, Timeout: time.Minute, Now: func() time.Time { return at }})
	load := func(value string, err error) cache.Load[string] {
		return func(context.Context) (string, time.Time, error) { return value, at.Add(time.Hour), err }
	}
	last := func(when, want string) {
		t.Helper()
		got, loaded, ok := c.Last(1)
		if got != want || ok != (want != "") || loaded.After(at) {
			t.Errorf("%s: %q of %v, %v", when, got, loaded, ok)
		}
	}
	last("at first", "")
	first := at
	if got, err := c.Get(t.Context(), 1, load("old", nil)); got != "old" || err != nil {
		t.Fatal(got, err)
	}
	at = at.Add(time.Minute)
	if got, _ := c.Since(t.Context(), 1, first, load("new", nil)); got != "old" {
		t.Errorf("since the result: %q", got)
	}
	if _, err := c.Since(t.Context(), 1, at, load("", errors.New("no value"))); err == nil {
		t.Error("the error was lost")
	}
	last("after an error", "old")
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan string)
	go func() {
		got, _ := c.Get(t.Context(), 1, func(context.Context) (string, time.Time, error) {
			close(begun)
			<-goOn
			return "new", at.Add(time.Hour), nil
		})
		done <- got
	}()
	<-begun
	last("while a new one is loaded", "old")
	close(goOn)
	if got := <-done; got != "new" {
		t.Errorf("%q, want new", got)
	}
	last("afterwards", "new")
}

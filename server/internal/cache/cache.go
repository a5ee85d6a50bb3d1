// Package cache keeps results of queries for a while, so that many requests cost the
// database as much as one.
package cache

import (
	"context"
	"sync"
	"time"
)

// Config describes a cache.
type Config struct {
	Size     int              // how many results it keeps
	Timeout  time.Duration    // of a query
	Parallel int              // how many queries run at a time; 0: any number
	Now      func() time.Time // Default: time.Now
}

// Cache keeps results by key. It is safe for concurrent use; concurrent requests for the
// same key share one query.
type Cache[K comparable, V any] struct {
	config  Config
	loading chan struct{} // has one element for each query that runs; nil: nobody counts them

	mu      sync.Mutex
	entries map[K]*entry[V]
}

type entry[V any] struct {
	loaded chan struct{} // closed when value and err are set
	value  V
	err    error
	at     time.Time // when the value was loaded; zero while it is loaded
	until  time.Time
	before *entry[V] // the result that is out of date, while this one is loaded
}

// New returns a cache.
func New[K comparable, V any](config Config) *Cache[K, V] {
	if config.Now == nil {
		config.Now = time.Now
	}
	c := &Cache[K, V]{config: config, entries: map[K]*entry[V]{}}
	if config.Parallel > 0 {
		c.loading = make(chan struct{}, config.Parallel)
	}
	return c
}

// Load runs a query. It returns the time until which its result is kept. An error is not
// kept.
type Load[V any] func(ctx context.Context) (value V, until time.Time, err error)

// Get returns the result of a key, or loads it. The query goes on when ctx ends, since
// other requests may wait for it.
func (c *Cache[K, V]) Get(ctx context.Context, key K, load Load[V]) (V, error) {
	return c.Since(ctx, key, time.Time{}, load)
}

// Since is [Cache.Get] for a result that was loaded after a time.
func (c *Cache[K, V]) Since(ctx context.Context, key K, since time.Time, load Load[V]) (V, error) {
	e := c.entry(ctx, key, since, load)
	select {
	case <-e.loaded:
		return e.value, e.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// Last returns the newest result of a key, also if it is out of date, and when it was loaded. It waits for no query.
func (c *Cache[K, V]) Last(key K) (value V, at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key].result(); e != nil {
		return e.value, e.at, true
	}
	return value, at, false
}

// result is the newest entry that is loaded; nil if there is none.
func (e *entry[V]) result() *entry[V] {
	if e != nil && e.at.IsZero() {
		return e.before
	}
	return e
}

// entry returns a valid entry, or adds one and begins to load it.
func (c *Cache[K, V]) entry(ctx context.Context, key K, since time.Time, load Load[V]) *entry[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Now()
	if e, ok := c.entries[key]; ok && now.Before(e.until) && (e.at.IsZero() || !e.at.Before(since)) {
		return e
	}
	before := c.entries[key].result()
	if len(c.entries) >= c.config.Size {
		c.evict(now)
	}
	e := &entry[V]{loaded: make(chan struct{}), until: now.Add(c.config.Timeout), before: before}
	c.entries[key] = e
	go c.fill(context.WithoutCancel(ctx), key, e, load)
	return e
}

func (c *Cache[K, V]) fill(ctx context.Context, key K, e *entry[V], load Load[V]) {
	defer close(e.loaded)
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	value, until, err := c.limited(ctx, load)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := e.before
	e.value, e.until, e.err, e.before = value, until, err, nil
	switch {
	case err == nil:
		e.at = c.config.Now()
	case c.entries[key] != e:
	case before != nil:
		before.until = time.Time{} // the next request loads it again
		c.entries[key] = before
	default:
		delete(c.entries, key)
	}
}

// limited loads when one of the places for queries is free.
func (c *Cache[K, V]) limited(ctx context.Context, load Load[V]) (value V, until time.Time, err error) {
	if c.loading != nil {
		select {
		case c.loading <- struct{}{}:
			defer func() { <-c.loading }()
		case <-ctx.Done():
			return value, until, ctx.Err()
		}
	}
	return load(ctx)
}

// evict removes results that are out of date; all results if none is.
func (c *Cache[K, V]) evict(now time.Time) {
	for key, e := range c.entries {
		if !now.Before(e.until) {
			delete(c.entries, key)
		}
	}
	if len(c.entries) >= c.config.Size {
		clear(c.entries)
	}
}

// Drop removes the result of a key, so that the next request loads it again.
func (c *Cache[K, V]) Drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// Clear removes all results.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}

package server

import (
	"context"
	"sync"
	"time"
)

// cache keeps results of queries for cacheTime, so that not every request runs them.
// It is safe for concurrent use; concurrent requests for the same key share one query.
type cache[K comparable, V any] struct {
	load    func(ctx context.Context, key K) (V, error)
	size    int           // how many entries it keeps
	loading chan struct{} // has one element for each query that runs
	now     func() time.Time

	mu      sync.Mutex
	entries map[K]*cacheEntry[V]
}

type cacheEntry[V any] struct {
	loaded  chan struct{} // closed when value and err are set
	value   V
	err     error
	expires time.Time
}

const (
	// cacheTime is how long an entry is valid. A revoked token is accepted for at most
	// cacheTime and loadTimeout together.
	cacheTime   = 2 * time.Second
	loadTimeout = 3 * time.Second
)

func newCache[K comparable, V any](size, maxLoading int, now func() time.Time, load func(context.Context, K) (V, error)) *cache[K, V] {
	return &cache[K, V]{load: load, size: size, loading: make(chan struct{}, maxLoading), now: now, entries: map[K]*cacheEntry[V]{}}
}

func (c *cache[K, V]) get(ctx context.Context, key K) (V, error) {
	e := c.entry(key)
	select {
	case <-e.loaded:
		return e.value, e.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// entry returns a valid entry, or adds one and begins to load it.
func (c *cache[K, V]) entry(key K) *cacheEntry[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok && c.now().Before(e.expires) {
		return e
	}
	if len(c.entries) >= c.size {
		c.evict()
	}
	// The time begins before the query, so that the entry is never older than cacheTime.
	e := &cacheEntry[V]{loaded: make(chan struct{}), expires: c.now().Add(cacheTime)}
	c.entries[key] = e
	// In a goroutine: other requests may wait for the entry after this one has ended.
	go c.fill(key, e)
	return e
}

func (c *cache[K, V]) fill(key K, e *cacheEntry[V]) {
	defer close(e.loaded)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	select {
	case c.loading <- struct{}{}:
		e.value, e.err = c.load(ctx, key)
		<-c.loading
	case <-ctx.Done():
		e.err = ctx.Err()
	}
	if e.err != nil {
		c.mu.Lock()
		if c.entries[key] == e {
			delete(c.entries, key) // the next request loads it again
		}
		c.mu.Unlock()
	}
}

// drop removes an entry, so that the next request loads it again.
func (c *cache[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// evict removes expired entries; all entries if none has expired.
func (c *cache[K, V]) evict() {
	now := c.now()
	for key, e := range c.entries {
		if !now.Before(e.expires) {
			delete(c.entries, key)
		}
	}
	if len(c.entries) >= c.size {
		clear(c.entries)
	}
}

package seal

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// cache holds unwrapped keys: at most maxKeys, each for at most maxAge.
//
// The first caller that needs a key loads it, and the others wait for that load. In
// the second half of a key's age, and when the key is due for rotation, one caller
// renews it while the others go on using it. So nobody waits for a renewal, and a
// short failure of the store or keeper has no effect. At maxAge the key is dropped.
type cache struct {
	maxKeys int
	maxAge  time.Duration
	logger  *slog.Logger

	mu      sync.Mutex
	entries map[keyID]*list.Element // of *entry
	order   *list.List              // most recently used first
	loads   map[keyID]*pendingLoad
	sweeper *time.Timer // runs while there are entries
	closed  bool
}

// keyID names a data key: a version, for opening, or version 0, the version that
// seals at present.
type keyID struct {
	stream  Stream
	version uint32
}

type entry struct {
	id      keyID
	key     *dataKey
	renewAt time.Time
	until   time.Time
}

// pendingLoad is a load that other callers may wait for.
type pendingLoad struct {
	done     chan struct{}
	key      *dataKey
	err      error
	canceled bool // the loading caller's context ended: no reason for the waiting callers to fail
}

// loader loads a key. old is the cached key, or nil.
type loader func(ctx context.Context, at keyID, old *dataKey) (*dataKey, error)

func newCache(config Config) *cache {
	return &cache{
		maxKeys: config.MaxKeys, maxAge: config.MaxAge, logger: config.Logger,
		entries: map[keyID]*list.Element{}, order: list.New(), loads: map[keyID]*pendingLoad{},
	}
}

// get returns a key. Another goroutine may wipe the key at any time; the caller then
// calls get again.
func (c *cache) get(ctx context.Context, at keyID, load loader) (*dataKey, error) {
	for {
		key, pending, err := c.lookup(at)
		if key != nil || err != nil {
			return key, err
		}
		if pending == nil {
			return c.loadKey(ctx, at, load)
		}
		select {
		case <-pending.done:
			if !pending.canceled {
				return pending.key, pending.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lookup returns a cached key, or a pending load to wait for. If it returns neither,
// it has registered a pending load, and the caller must call loadKey.
func (c *cache) lookup(at keyID) (*dataKey, *pendingLoad, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	pending := c.loads[at]
	if e := c.current(at); e != nil && !e.key.spent() && (pending != nil || time.Now().Before(e.renewAt)) {
		return e.key, nil, nil
	}
	if pending == nil {
		c.loads[at] = &pendingLoad{done: make(chan struct{}), err: errors.New("the keeper or store has panicked")}
	}
	return nil, pending, nil
}

// current returns the entry, unless it has expired.
func (c *cache) current(at keyID) *entry {
	element := c.entries[at]
	if element == nil || !time.Now().Before(element.Value.(*entry).until) {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*entry)
}

// loadKey loads a key for this caller and those that wait.
func (c *cache) loadKey(ctx context.Context, at keyID, load loader) (*dataKey, error) {
	c.mu.Lock()
	p := c.loads[at]
	var old *dataKey
	if element := c.entries[at]; element != nil {
		old = element.Value.(*entry).key
	}
	c.mu.Unlock()
	defer c.finish(at, p)
	// The age counts from before the load, so that a key which is destroyed later is
	// dropped in time.
	began := time.Now()
	p.key, p.err = load(ctx, at, old)
	if p.err == nil {
		p.err = c.put(at, p.key, began)
	} else {
		p.key, p.err = c.keepOld(at, p.err)
		p.canceled = p.err != nil && ctx.Err() != nil
	}
	return p.key, p.err
}

// finish ends the pending load, also after a panic.
func (c *cache) finish(at keyID, p *pendingLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.loads, at)
	close(p.done)
}

// put stores a key in place of the old one.
func (c *cache) put(at keyID, key *dataKey, began time.Time) error {
	e := &entry{at, key, began.Add(c.maxAge / 2), began.Add(c.maxAge)}
	if !key.renewAt.IsZero() && key.renewAt.Before(e.renewAt) {
		e.renewAt = later(key.renewAt, time.Now().Add(c.retryInterval()))
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		key.wipe()
		return ErrClosed
	}
	dropped := c.drop(c.entries[at])
	c.entries[at] = c.order.PushFront(e)
	for len(c.entries) > c.maxKeys {
		dropped = append(dropped, c.drop(c.order.Back())...)
	}
	if c.sweeper == nil {
		c.sweeper = time.AfterFunc(c.maxAge, c.sweep)
	}
	c.mu.Unlock()
	wipeAll(dropped)
	return nil
}

// keepOld returns the old key after a failed renewal, if it has not expired. ErrNoKey
// drops it: the key was destroyed.
func (c *cache) keepOld(at keyID, err error) (*dataKey, error) {
	c.mu.Lock()
	e := c.current(at)
	if e == nil || e.key.spent() || errors.Is(err, ErrNoKey) {
		dropped := c.drop(c.entries[at])
		c.mu.Unlock()
		wipeAll(dropped)
		return nil, err
	}
	e.renewAt = time.Now().Add(c.retryInterval())
	key, until := e.key, e.until
	c.mu.Unlock()
	c.logger.Warn("data key not renewed, the cached one is still used",
		"namespace", at.stream.Namespace, "stream", at.stream.Name, "until", until, "error", err)
	return key, nil
}

// retryInterval is the time between two attempts to renew a key.
func (c *cache) retryInterval() time.Duration { return c.maxAge / 20 }

// sweep drops the expired entries.
func (c *cache) sweep() {
	c.mu.Lock()
	var dropped []*dataKey
	var next time.Time
	for at := range c.entries {
		e := c.entries[at].Value.(*entry)
		if !time.Now().Before(e.until) {
			dropped = append(dropped, c.drop(c.entries[at])...)
		} else if next.IsZero() || e.until.Before(next) {
			next = e.until
		}
	}
	c.sweeper = nil
	if len(c.entries) > 0 {
		c.sweeper = time.AfterFunc(time.Until(next), c.sweep)
	}
	c.mu.Unlock()
	wipeAll(dropped)
}

// forget drops the keys of a stream.
func (c *cache) forget(stream Stream) {
	c.mu.Lock()
	var dropped []*dataKey
	for at, element := range c.entries {
		if at.stream == stream {
			dropped = append(dropped, c.drop(element)...)
		}
	}
	c.mu.Unlock()
	wipeAll(dropped)
}

// close drops all keys and refuses further calls of get.
func (c *cache) close() {
	c.mu.Lock()
	c.closed = true
	var dropped []*dataKey
	for _, element := range c.entries {
		dropped = append(dropped, c.drop(element)...)
	}
	if c.sweeper != nil {
		c.sweeper.Stop()
	}
	c.mu.Unlock()
	wipeAll(dropped)
}

// drop removes an entry. The caller wipes the returned keys after it has released the
// lock, since wiping waits for the users of a key.
func (c *cache) drop(element *list.Element) []*dataKey {
	if element == nil {
		return nil
	}
	e := c.order.Remove(element).(*entry)
	delete(c.entries, e.id)
	return []*dataKey{e.key}
}

func wipeAll(keys []*dataKey) {
	for _, key := range keys {
		key.wipe()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

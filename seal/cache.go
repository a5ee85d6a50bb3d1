package seal

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// cache holds unwrapped keys, so many and so long as allowed.
//
// A key is loaded once, by the first who needs it; the others wait. In the second
// half of its age, and when it is due for rotation, one caller renews it while the
// others go on with what there is: nobody waits, and a short failure of the store
// or keeper is noticed by nobody. At its full age it is gone.
type cache struct {
	maxKeys int
	maxAge  time.Duration
	logger  *slog.Logger

	mu      sync.Mutex
	entries map[slot]*list.Element // of *entry
	order   *list.List             // last used first
	flights map[slot]*flight
	sweeper *time.Timer // runs while there are entries
	closed  bool
}

// slot names a key: that of a version, for opening, or with version 0 the one that
// seals at present.
type slot struct {
	stream  Stream
	version uint32
}

type entry struct {
	slot    slot
	key     *dataKey
	renewAt time.Time
	until   time.Time
}

// flight is a load that others may wait for.
type flight struct {
	done   chan struct{}
	key    *dataKey
	err    error
	gaveUp bool // whoever loaded had no time left, which is no reason for others to fail
}

// loader gets a key; old is the one that it will replace, or nil.
type loader func(ctx context.Context, at slot, old *dataKey) (*dataKey, error)

func newCache(config Config) *cache {
	return &cache{
		maxKeys: config.MaxKeys, maxAge: config.MaxAge, logger: config.Logger,
		entries: map[slot]*list.Element{}, order: list.New(), flights: map[slot]*flight{},
	}
}

// get returns a key, which may be wiped at any time: then ask again.
func (c *cache) get(ctx context.Context, at slot, load loader) (*dataKey, error) {
	for {
		key, others, err := c.look(at)
		if key != nil || err != nil {
			return key, err
		}
		if others == nil {
			return c.lead(ctx, at, load)
		}
		select {
		case <-others.done:
			if !others.gaveUp {
				return others.key, others.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// look returns a key that will do, or the flight to wait for, or nothing: then the
// caller has to lead the flight that is open now.
func (c *cache) look(at slot) (*dataKey, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	others := c.flights[at]
	if e := c.live(at); e != nil && !e.key.spent() && (others != nil || time.Now().Before(e.renewAt)) {
		return e.key, nil, nil
	}
	if others == nil {
		c.flights[at] = &flight{done: make(chan struct{}), err: errors.New("the keeper or store has panicked")}
	}
	return nil, others, nil
}

// live returns the entry, unless its age is over.
func (c *cache) live(at slot) *entry {
	element := c.entries[at]
	if element == nil || !time.Now().Before(element.Value.(*entry).until) {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*entry)
}

// lead loads a key for all who wait.
func (c *cache) lead(ctx context.Context, at slot, load loader) (*dataKey, error) {
	c.mu.Lock()
	f := c.flights[at]
	var old *dataKey
	if element := c.entries[at]; element != nil {
		old = element.Value.(*entry).key
	}
	c.mu.Unlock()
	defer c.land(at, f)
	// The age counts from before the store was asked: what is destroyed later is
	// gone from here in time.
	asked := time.Now()
	f.key, f.err = load(ctx, at, old)
	if f.err == nil {
		f.err = c.put(at, f.key, asked)
	} else {
		f.key, f.err = c.keep(at, f.err)
		f.gaveUp = f.err != nil && ctx.Err() != nil
	}
	return f.key, f.err
}

// land lets those who wait go on, also after a panic.
func (c *cache) land(at slot, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, at)
	close(f.done)
}

// put stores a key in place of the old one.
func (c *cache) put(at slot, key *dataKey, asked time.Time) error {
	e := &entry{at, key, asked.Add(c.maxAge / 2), asked.Add(c.maxAge)}
	if !key.renewAt.IsZero() && key.renewAt.Before(e.renewAt) {
		e.renewAt = later(key.renewAt, time.Now().Add(c.pause()))
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

// keep goes on with the old key after a failed renewal, while it may.
func (c *cache) keep(at slot, err error) (*dataKey, error) {
	c.mu.Lock()
	e := c.live(at)
	if e == nil || e.key.spent() || errors.Is(err, ErrNoKey) {
		dropped := c.drop(c.entries[at])
		c.mu.Unlock()
		wipeAll(dropped)
		return nil, err
	}
	e.renewAt = time.Now().Add(c.pause())
	key, until := e.key, e.until
	c.mu.Unlock()
	c.logger.Warn("data key not renewed; going on with the cached one",
		"namespace", at.stream.Namespace, "stream", at.stream.Name, "until", until, "error", err)
	return key, nil
}

// pause is how long a renewal that has not helped is not repeated.
func (c *cache) pause() time.Duration { return c.maxAge / 20 }

// sweep drops what nobody asks for any more.
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

// forget drops what there is of a stream.
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

// close drops everything, for good.
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

// drop takes an entry out. Its key is to be wiped when the lock is free, since that
// waits for those who use it.
func (c *cache) drop(element *list.Element) []*dataKey {
	if element == nil {
		return nil
	}
	e := c.order.Remove(element).(*entry)
	delete(c.entries, e.slot)
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

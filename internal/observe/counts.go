package observe

import (
	"sort"
	"sync/atomic"
	"time"
)

// counts are the counters of a handler in this process.
type counts struct {
	name   string
	events atomic.Int64
	failed atomic.Int64
	dead   atomic.Int64
	busy   atomic.Int64                  // nanoseconds
	calls  [len(Bounds) + 1]atomic.Int64 // by duration; see Bounds
}

// Bounds are the upper bounds of the buckets for the duration of calls. There is one
// more bucket for longer calls.
var Bounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

func (c *counts) called(events int, took time.Duration) {
	bucket := 0
	if took > Bounds[0] {
		bucket = sort.Search(len(Bounds), func(i int) bool { return took <= Bounds[i] })
	}
	c.calls[bucket].Add(1)
	c.events.Add(int64(events))
	c.busy.Add(int64(took))
}

// Counts are the counters of a handler. The counters are read one after the other, so
// they may differ by calls that return meanwhile.
type Counts struct {
	Handler string  // "" for events that were fetched instead of handled
	Calls   []int64 // by duration; see Bounds
	Events  int64
	Failed  int64
	Dead    int64
	Busy    time.Duration
}

// Counts returns the counters of all handlers, and the number of leases lost.
func (g *Group) Counts() (handlers []Counts, leasesLost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.handlers {
		handlers = append(handlers, h.counts.snapshot())
	}
	return handlers, g.lost.Load()
}

func (c *counts) snapshot() Counts {
	calls := make([]int64, len(c.calls))
	for i := range c.calls {
		calls[i] = c.calls[i].Load()
	}
	return Counts{
		Handler: c.name, Calls: calls, Events: c.events.Load(), Failed: c.failed.Load(), Dead: c.dead.Load(),
		Busy: time.Duration(c.busy.Load()),
	}
}

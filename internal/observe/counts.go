package observe

import (
	"sort"
	"sync/atomic"
	"time"
)

// counts is what a handler has done in this process.
type counts struct {
	name   string
	events atomic.Int64
	failed atomic.Int64
	dead   atomic.Int64
	busy   atomic.Int64                  // nanoseconds
	calls  [len(Bounds) + 1]atomic.Int64 // by how long they took
}

// Bounds are the upper bounds of the classes in which calls of handlers are
// counted; one more is for what took longer.
var Bounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

func (c *counts) called(events int, took time.Duration) {
	class := 0
	if took > Bounds[0] {
		class = sort.Search(len(Bounds), func(i int) bool { return took <= Bounds[i] })
	}
	c.calls[class].Add(1)
	c.events.Add(int64(events))
	c.busy.Add(int64(took))
}

// Counts is what a handler has done so far. The parts may be apart by a call
// that returned just now.
type Counts struct {
	Handler string // "" for events as a whole
	Calls   []int64
	Events  int64
	Failed  int64
	Dead    int64
	Busy    time.Duration
}

// Counts returns what each handler has done, and how many leases were lost.
func (g *Group) Counts() (handlers []Counts, leasesLost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.handlers {
		handlers = append(handlers, h.counts.now())
	}
	return handlers, g.lost.Load()
}

func (c *counts) now() Counts {
	calls := make([]int64, len(c.calls))
	for i := range c.calls {
		calls[i] = c.calls[i].Load()
	}
	return Counts{
		Handler: c.name, Calls: calls, Events: c.events.Load(), Failed: c.failed.Load(), Dead: c.dead.Load(),
		Busy: time.Duration(c.busy.Load()),
	}
}

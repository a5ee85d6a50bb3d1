package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Worker runs one batch at a time. While it has a slot it may run one item of it.
type Worker struct {
	slots   chan struct{}
	hasSlot bool
}

// acquireSlot waits for a slot. It returns false when stop has ended.
func (w *Worker) acquireSlot(stop context.Context) bool {
	if stop.Err() != nil {
		return false
	}
	select {
	case w.slots <- struct{}{}:
		w.hasSlot = true
	case <-stop.Done():
	}
	return w.hasSlot
}

// releaseSlot gives the slot to other workers.
func (w *Worker) releaseSlot() {
	if w.hasSlot {
		w.hasSlot = false
		<-w.slots
	}
}

// SideBySide runs n items in parallel, on all free slots, until ctx ends. It returns the
// number of items that it has started, once those are done. It starts with one
// goroutine, since most batches are done before a second one has woken up, and starts
// others when an item is slow.
func (w *Worker) SideBySide(ctx context.Context, n int, run func(i int)) int {
	return w.InLanes(ctx, n, func() Lane { return Lane{Run: func(i int, _ bool) { run(i) }, End: func() {}} })
}

// Lane is what runs items one after another on one goroutine. Run is told whether other items have
// not begun yet; then it most likely runs another one at once. End is called after the last one.
type Lane struct {
	Run func(i int, more bool)
	End func()
}

// InLanes is SideBySide where each goroutine has a lane.
func (w *Worker) InLanes(ctx context.Context, n int, lane func() Lane) int {
	p := &parallel{ctx: ctx, slots: w.slots, n: n, lane: lane}
	p.helpAfter(quickEnough)
	p.workOn()
	w.releaseSlot() // for other workers, while items take their time here
	p.finish()
	return min(n, int(p.next.Load()))
}

// quickEnough is how long an item may take before other goroutines help with the batch,
// and slowEnough is the longest interval between checks for free slots.
const (
	quickEnough = time.Millisecond
	slowEnough  = 50 * time.Millisecond
)

// parallel is a batch that several goroutines work on.
type parallel struct {
	ctx   context.Context
	slots chan struct{}
	n     int
	lane  func() Lane
	next  atomic.Int64

	mu      sync.Mutex
	over    bool
	timer   *time.Timer // of the next check for free slots
	helpers sync.WaitGroup
}

// helpAfter checks for free slots after a while, and repeats that while items are left:
// slots that are busy now may be free later.
func (p *parallel) helpAfter(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.left() <= 0 {
		return
	}
	p.timer = time.AfterFunc(after, func() {
		p.getHelp()
		p.helpAfter(min(2*after, slowEnough))
	})
}

func (p *parallel) left() int { return p.n - int(p.next.Load()) }

func (p *parallel) workOn() {
	lane := p.lane()
	defer lane.End()
	for started := time.Now(); p.ctx.Err() == nil; {
		i := int(p.next.Add(1)) - 1
		if i >= p.n {
			return
		}
		lane.Run(i, i+1 < p.n)
		now := time.Now()
		if now.Sub(started) > quickEnough {
			p.getHelp()
		}
		started = now
	}
}

// getHelp starts a goroutine on each free slot, for the items that are left.
func (p *parallel) getHelp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.left() {
		if p.over {
			return
		}
		select {
		case p.slots <- struct{}{}:
			p.helpers.Go(func() {
				defer func() { <-p.slots }()
				p.workOn()
			})
		default:
			return
		}
	}
}

// finish waits for the helpers.
func (p *parallel) finish() {
	p.mu.Lock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.helpers.Wait()
}

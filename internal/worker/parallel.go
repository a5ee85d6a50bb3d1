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

// acquireSlot waits for a slot. It reports whether there is one, and false when
// stop has ended.
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

// releaseSlot gives up the slot: the rest of the batch needs none.
func (w *Worker) releaseSlot() {
	if w.hasSlot {
		w.hasSlot = false
		<-w.slots
	}
}

// SideBySide runs n items at the same time, as far as there are slots, until ctx
// ends. It returns how many it has begun, when all of those are done. It starts
// alone, since most batches are done before another goroutine has woken up, and
// gets help as soon as an item takes its time.
func (w *Worker) SideBySide(ctx context.Context, n int, run func(i int)) int {
	p := &parallel{ctx: ctx, slots: w.slots, n: n, run: run}
	p.askAgain(quickEnough)
	p.workOn()
	w.releaseSlot() // for other workers, while items take their time here
	p.finish()
	return min(n, int(p.next.Load()))
}

// quickEnough is how long an item may take before others help with the batch, and
// slowEnough how often to look for free slots at least.
const (
	quickEnough = time.Millisecond
	slowEnough  = 50 * time.Millisecond
)

// parallel is a batch that several goroutines work on.
type parallel struct {
	ctx   context.Context
	slots chan struct{}
	n     int
	run   func(i int)
	next  atomic.Int64

	mu      sync.Mutex
	over    bool
	again   *time.Timer // asks for help the next time
	helpers sync.WaitGroup
}

// askAgain gets help after a while, and again for as long as items are left: slots
// that are busy now may be free later.
func (p *parallel) askAgain(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.left() <= 0 {
		return
	}
	p.again = time.AfterFunc(after, func() {
		p.getHelp()
		p.askAgain(min(2*after, slowEnough))
	})
}

func (p *parallel) left() int { return p.n - int(p.next.Load()) }

func (p *parallel) workOn() {
	for started := time.Now(); p.ctx.Err() == nil; {
		i := int(p.next.Add(1)) - 1
		if i >= p.n {
			return
		}
		p.run(i)
		now := time.Now()
		if now.Sub(started) > quickEnough {
			p.getHelp()
		}
		started = now
	}
}

// getHelp uses the free slots for the items that are left.
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
	if p.again != nil {
		p.again.Stop()
	}
	p.mu.Unlock()
	p.helpers.Wait()
}

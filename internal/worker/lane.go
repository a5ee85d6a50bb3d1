package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Lane is where one batch at a time runs. It comes with a slot: the right to run
// one thing.
type Lane struct {
	slots chan struct{}
	holds bool // a slot
}

// NewLane returns a lane without a slot.
func NewLane(slots chan struct{}) *Lane { return &Lane{slots: slots} }

// Enter waits for a slot. It reports whether stop still holds.
func (l *Lane) Enter(stop context.Context) bool {
	if stop.Err() != nil {
		return false
	}
	select {
	case l.slots <- struct{}{}:
		l.holds = true
	case <-stop.Done():
	}
	return l.holds
}

// Leave gives up the lane's slot. What is left to do needs none.
func (l *Lane) Leave() {
	if l.holds {
		l.holds = false
		<-l.slots
	}
}

// SideBySide runs n things at the same time, as far as there are slots, until ctx
// ends. It returns how many it has begun, when all of those are done. It starts
// alone, since most batches are done before another goroutine has woken up, and
// gets help as soon as something takes its time.
func (l *Lane) SideBySide(ctx context.Context, n int, run func(i int)) int {
	p := &parallel{ctx: ctx, slots: l.slots, n: n, run: run}
	p.askAgain(quickEnough)
	p.workOn()
	l.Leave() // others may run what takes its time here
	p.finish()
	return min(n, int(p.next.Load()))
}

// quickEnough is how long a thing may take before others help with the batch, and
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

// askAgain gets help after a while, and again for as long as something is left:
// slots that are busy now may be free when those that work here are stuck.
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

// getHelp puts the slots that are free to work on what is left.
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

// finish waits for those who help.
func (p *parallel) finish() {
	p.mu.Lock()
	p.over = true
	if p.again != nil {
		p.again.Stop()
	}
	p.mu.Unlock()
	p.helpers.Wait()
}

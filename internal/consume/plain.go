package consume

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// oneByOne runs the events of a lease in order, in batches for handlers that
// want them.
func (l *lane) oneByOne(f *flight) {
	f.track()
	for start := 0; start < len(f.lease.Events); {
		if f.ctx.Err() != nil {
			f.giveBack(start)
			return
		}
		end := l.chunkEnd(f, start, false)
		failures := l.plain(f, start, end)
		f.finish(start, failures)
		for i := start + 1; i < end; i++ {
			f.finish(i, nil)
		}
		start = end
		if l.Blocks && holdsBack(failures) {
			f.giveBack(start)
			return
		}
	}
}

// holdsBack reports whether what comes after has to wait: for what is tried
// again, not for what is given up.
func holdsBack(failures []pg.Failure) bool {
	for _, f := range failures {
		if !f.Permanent {
			return true
		}
	}
	return false
}

// giveBack returns the events from one on as they were.
func (f *flight) giveBack(from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from; i < len(f.lease.Events); i++ {
		f.failures = append(f.failures, released(f.lease.Events[i].ID, ""))
	}
}

// chunkEnd is where the batch ends that begins at start. Only handlers of batches
// get more than one event, and only at the first delivery: when an event comes
// again it comes alone, so that it does not fail its neighbours over and over.
func (l *lane) chunkEnd(f *flight, start int, transactional bool) int {
	if l.Together || !l.router.table.batches || !f.batchable(start, transactional) || len(f.lease.Origins) > 0 {
		return start + 1
	}
	end := start + 1
	for end < len(f.lease.Events) && f.batchable(end, transactional) {
		end++
	}
	return end
}

func (f *flight) batchable(i int, transactional bool) bool {
	if f.lease.Events[i].Delivery > 1 {
		return false
	}
	r := f.routes[i]
	if transactional {
		return len(r.transactional) == 0 || r.transactional[0].BatchTx != nil
	}
	return len(r.transactional) == 0
}

// plain runs the handlers without transactions for events of a lease, and
// returns what failed or has to be done by others.
func (l *lane) plain(f *flight, start, end int) []pg.Failure {
	var failures []pg.Failure
	events := f.lease.Events[start:end]
	if l.router.table.batches {
		failures = l.plainBatches(f, start, end)
	}
	for i := range events {
		e, r := &events[i], f.routes[start+i]
		for _, h := range r.plain {
			if h.Each == nil {
				continue
			}
			if err := l.call(f.ctx, h, nil, f.asAtOrigin(events[i:i+1])); err != nil {
				failures = append(failures, l.judge(f, e.ID, h.Name, err))
			}
		}
		failures = append(failures, l.unhandled(e, r)...)
	}
	return failures
}

// plainBatches runs the handlers of batches, each on what it is for.
func (l *lane) plainBatches(f *flight, start, end int) []pg.Failure {
	var failures []pg.Failure
	for _, h := range l.router.table.handlers {
		if h.Batch == nil {
			continue
		}
		batch := f.eventsFor(h, start, end)
		if len(batch) == 0 {
			continue
		}
		if err := l.call(f.ctx, h, nil, f.asAtOrigin(batch)); err != nil {
			failures = append(failures, l.judgeBatch(f, h.Name, batch, false, err)...)
		}
	}
	return failures
}

func (f *flight) eventsFor(h *Handler, start, end int) []pg.Event {
	var batch []pg.Event
	for i := start; i < end; i++ {
		r := f.routes[i]
		for _, handlers := range [][]*Handler{r.plain, r.transactional} {
			for _, wanted := range handlers {
				if wanted == h {
					batch = append(batch, f.lease.Events[i])
				}
			}
		}
	}
	return batch
}

// judge says what an error means for an event. One that comes from our own
// hurry is none of the handler's: the event goes back as it was.
func (l *lane) judge(f *flight, event int64, subscription string, err error) pg.Failure {
	if f.ctx.Err() != nil {
		return released(event, subscription)
	}
	return failure(event, subscription, err)
}

// judgeBatch says what an error means for the events of a batch: all of them
// failed, unless it names those that did. Then the others are done, or if they
// were undone with them, they go back as they were.
func (l *lane) judgeBatch(f *flight, subscription string, batch []pg.Event, undone bool, err error) []pg.Failure {
	named, some := AsEventErrors(err)
	var failures []pg.Failure
	for i := range batch {
		id := batch[i].ID
		switch {
		case !some:
			failures = append(failures, l.judge(f, id, subscription, err))
		case named[f.origin(id)] != nil:
			failures = append(failures, l.judge(f, id, subscription, named[f.origin(id)]))
		case undone:
			failures = append(failures, released(id, subscription))
		}
	}
	return failures
}

// unhandled is what becomes of an event for those that are not here.
func (l *lane) unhandled(e *pg.Event, r *route) []pg.Failure {
	if r.empty() {
		if l.BuryUnhandled {
			return []pg.Failure{noHandler(e, "")}
		}
		return nil
	}
	var failures []pg.Failure
	for _, name := range r.elsewhere {
		failures = append(failures, elsewhere(e.ID, name))
	}
	for _, name := range r.nobody {
		failures = append(failures, noHandler(e, name))
	}
	return failures
}

// sideBySide runs the events of a lease at the same time, as far as there are
// slots. It starts alone, since most leases are done before another goroutine
// has woken up, and gets help as soon as an event takes its time.
func (l *lane) sideBySide(f *flight) {
	f.track()
	p := &parallel{lane: l, flight: f}
	p.askAgain(quickEnough)
	p.workOn()
	p.finish()
	f.giveBack(int(p.next.Load()))
}

// quickEnough is how long a handler may take before others help with the lease.
const quickEnough = time.Millisecond

// parallel is a lease that several goroutines work on.
type parallel struct {
	*lane
	flight *flight
	next   atomic.Int64

	mu      sync.Mutex
	over    bool
	again   *time.Timer // asks for help the next time
	helpers sync.WaitGroup
}

// askAgain gets help after a while, and again for as long as something is left:
// slots that are busy now may be free when the handlers that work here are stuck.
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

// slowEnough is how often to look for free slots at least.
const slowEnough = 50 * time.Millisecond

func (p *parallel) left() int { return len(p.flight.lease.Events) - int(p.next.Load()) }

func (p *parallel) workOn() {
	events := p.flight.lease.Events
	for started := time.Now(); p.flight.ctx.Err() == nil; {
		i := int(p.next.Add(1)) - 1
		if i >= len(events) {
			return
		}
		p.flight.finish(i, p.plain(p.flight, i, i+1))
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

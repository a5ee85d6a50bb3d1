package consume

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Feed hands out leases of events that are not from the log. Its methods are
// called by all lanes.
type Feed interface {
	// Next waits for a lease of up to n events. There is none when stop has ended.
	Next(stop context.Context, n int) (lease pg.Lease, ok bool)
	// Landed says that a lease of Next is worked off, as far as it says itself.
	Landed(lease pg.Lease)
}

// runFed works off what the feed hands out. Settling it is a statement of its own,
// since taking the next is none.
func (g *group) runFed(stop, work context.Context) {
	slots := g.Slots
	if slots == nil {
		slots = make(chan struct{}, g.Concurrency)
	}
	keeping, enough := context.WithCancel(context.WithoutCancel(work))
	var heart, lanes sync.WaitGroup
	heart.Go(func() { g.KeepAlive(keeping) })
	for range g.Concurrency {
		lanes.Go(func() { g.feedLane(stop, work, worker.NewLane(slots)) })
	}
	lanes.Wait()
	enough()
	heart.Wait()
}

func (g *group) feedLane(stop, work context.Context, l *worker.Lane) {
	run := g.Lane(l)
	for {
		taken, ok := g.Feed.Next(stop, g.batch.Next())
		if !ok {
			return
		}
		if l.Enter(stop) {
			if held := g.hold(work, taken, time.Now()); run(work, held) {
				g.Finish(work, held)
			}
			l.Leave()
		}
		g.Feed.Landed(taken)
	}
}

// findOrigins finds out what the events of a lease are called where they are from.
func (g *group) findOrigins(work context.Context, held *lease) error {
	ids := make([]int64, len(held.Events))
	for i := range held.Events {
		ids[i] = held.Events[i].ID
	}
	var err error
	if held.Origins, err = pg.Origins(work, g.Pool, g.Group.ID, ids); err != nil {
		g.Release(work, held)
	}
	return err
}

// ofHead are the failures of a source's lease that can be settled with its head.
func (held *lease) ofHead(s settlement) settlement {
	head := map[int64]bool{}
	for i := held.head; i < s.head; i++ {
		head[held.Events[i].ID] = true
	}
	var before, after []pg.Failure
	for _, f := range held.failures {
		if head[f.Event] {
			before = append(before, f)
		} else {
			after = append(after, f)
		}
	}
	held.failures = slices.Concat(before, after)
	s.failures = held.failures[:len(before):len(before)]
	return s
}

// asAtOrigin are events as handlers know them: by the ids they have in the log
// they are from.
func (held *lease) asAtOrigin(events []pg.Event) []pg.Event {
	if len(held.Origins) == 0 {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].ID = held.origin(events[i].ID)
	}
	return events
}

// origin is the id that an event has in the log it is from.
func (held *lease) origin(event int64) int64 {
	if id, ok := held.Origins[event]; ok {
		return id
	}
	return event
}

package posthorn

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
)

// GroupStats is what this process has done for a group since the client was
// opened. What other processes do, [Client.Groups] shows in sum.
type GroupStats struct {
	Group      string
	LeasesLost int64 // leases that others took over while they were worked on here
	Handlers   []HandlerStats
}

// HandlerStats is what a handler has done in this process. It counts events once
// for each time that they were handled.
type HandlerStats struct {
	Handler string        // "" for events that failed as a whole, for want of a handler or together
	Events  int64         // attempts: events that it was called for
	Failed  int64         // events settled as failed
	Dead    int64         // those of them that became dead letters
	Busy    time.Duration // spent in calls
	Calls   int64         // of a batch there is one
	Within  []Within      // calls by how long they took
}

// Within counts the calls that took no longer than that.
type Within struct {
	Time  time.Duration
	Calls int64
}

// Stats is what the handlers of this client have done so far. It asks nobody.
func (c *Client) Stats() []GroupStats {
	groups := c.groups()
	stats := make([]GroupStats, len(groups))
	for i, g := range groups {
		handlers, lost := g.watch.Counts()
		stats[i] = GroupStats{Group: g.name, LeasesLost: lost, Handlers: make([]HandlerStats, len(handlers))}
		for j, h := range handlers {
			stats[i].Handlers[j] = handlerStats(h)
		}
	}
	return stats
}

func handlerStats(c observe.Counts) HandlerStats {
	s := HandlerStats{Handler: c.Handler, Events: c.Events, Failed: c.Failed, Dead: c.Dead, Busy: c.Busy}
	for _, n := range c.Calls {
		s.Calls += n
	}
	quicker := int64(0)
	for i, bound := range observe.Bounds {
		quicker += c.Calls[i]
		s.Within = append(s.Within, Within{bound, quicker})
	}
	return s
}

// GroupStatus is where a group stands, over all processes: how far it has read,
// what is in flight, and what has failed.
type GroupStatus = pg.GroupStatus

// Groups returns where the groups of the client's namespace stand, by name.
func (c *Client) Groups(ctx context.Context) ([]GroupStatus, error) {
	return pg.ListGroups(ctx, c.control, c.namespace)
}

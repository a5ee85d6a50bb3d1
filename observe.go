package posthorn

import (
	"context"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
)

// GroupStats is what this process has done for a group or projection, or for the
// jobs of some tags, since the client was opened. What all processes have done,
// [admin.Admin.Groups] shows.
type GroupStats struct {
	Group      string   // or which jobs, in words
	Jobs       bool     // it is about jobs
	Tags       []string // of them
	LeasesLost int64    // leases that others took over while they were worked on here
	Handlers   []HandlerStats
}

// HandlerStats is what a handler has done in this process. It counts events once
// for each time that they were handled.
type HandlerStats struct {
	Handler string        // "" for events as a whole: fetched, without a handler, or failed by all together
	Events  int64         // attempts: events that it was called for, or that were fetched
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
	c.mu.Lock()
	parts := slices.Clone(c.parts)
	c.mu.Unlock()
	stats := make([]GroupStats, len(parts))
	for i, p := range parts {
		handlers, lost := p.watched().Counts()
		stats[i] = GroupStats{Group: p.label(), LeasesLost: lost, Handlers: make([]HandlerStats, len(handlers))}
		if w, ok := p.(*jobWorker); ok {
			stats[i].Jobs, stats[i].Tags = true, slices.Clone(w.tags)
		}
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

// TraceContext returns a context that is in the trace in which an event was
// published, if there was one: for programs that fetch or read events. Handlers
// of single events are called in one.
func (c *Client) TraceContext(ctx context.Context, e Event) context.Context {
	return c.telemetry.Continue(ctx, e.Metadata)
}

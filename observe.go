package posthorn

import (
	"context"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
)

// GroupStats counts the work of one group, projection, relay, import or job handler in
// this process since the client was opened. See [admin.Admin.Groups] for all processes.
type GroupStats struct {
	Group      string   // the name of the group, projection or relay; otherwise a description
	Jobs       bool     // these are the numbers of a job handler
	Tags       []string // of the job handler
	LeasesLost int64    // leases that expired while this process worked on them
	Handlers   []HandlerStats
}

// HandlerStats counts the work of one handler in this process. An event counts once per
// attempt.
type HandlerStats struct {
	Handler     string          // "" for events without a handler, such as fetched ones
	Events      int64           // events that the handler was called for, or that were fetched
	Failed      int64           // events that failed
	DeadLetters int64           // failed events that became dead letters
	Busy        time.Duration   // total duration of all calls
	Calls       int64           // calls of the handler; a batch is one call
	Latencies   []LatencyBucket // calls by duration, cumulative
}

// LatencyBucket counts the calls of a handler that took at most a duration.
type LatencyBucket struct {
	UpTo  time.Duration
	Calls int64
}

// Stats returns the numbers of this process. It does not query the database.
func (c *Client) Stats() []GroupStats {
	c.mu.Lock()
	components := slices.Clone(c.components)
	c.mu.Unlock()
	stats := make([]GroupStats, len(components))
	for i, counted := range components {
		r := counted.registered()
		handlers, lost := r.metrics.Counts()
		stats[i] = GroupStats{Group: r.label, LeasesLost: lost, Handlers: make([]HandlerStats, len(handlers))}
		if w, ok := counted.(*jobWorker); ok {
			stats[i].Jobs, stats[i].Tags = true, slices.Clone(w.tags)
		}
		for j, h := range handlers {
			stats[i].Handlers[j] = handlerStats(h)
		}
	}
	return stats
}

func handlerStats(c observe.Counts) HandlerStats {
	s := HandlerStats{Handler: c.Handler, Events: c.Events, Failed: c.Failed, DeadLetters: c.Dead, Busy: c.Busy}
	for _, n := range c.Calls {
		s.Calls += n
	}
	upTo := int64(0)
	for i, bound := range observe.Bounds {
		upTo += c.Calls[i]
		s.Latencies = append(s.Latencies, LatencyBucket{bound, upTo})
	}
	return s
}

// TraceContext returns a context in the trace of the publisher of an event, for
// programs that fetch or read events. Without a trace in the event's metadata it returns
// ctx. Handlers of single events are called with such a context already.
func (c *Client) TraceContext(ctx context.Context, e Event) context.Context {
	return c.telemetry.Continue(ctx, e.Metadata)
}

package posthorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	internal "github.com/posthorn/posthorn/internal/component"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/internal/worker"
)

const heartbeatInterval = 30 * time.Second

var errRunning = errors.New("this client is running already")

// Run makes this process a node: it registers the node, runs all groups with handlers,
// projections, relays, imports and job handlers, fires schedules and does the upkeep of
// the log, until ctx ends. Then it takes no more work, waits [Config].DrainFor for
// handlers, gives unfinished events and jobs back to other nodes, and returns nil when
// all handlers have returned.
//
// Errors of the database are logged, and Run tries again. It returns an error early only
// if another attempt would not succeed either, such as for an invalid pattern.
//
// A process may run several clients, also of one namespace.
func (c *Client) Run(ctx context.Context) error {
	if err := c.beginRun(); err != nil {
		return err
	}
	defer c.endRun()

	// Upkeep is for all namespaces, and the registration may have to wait: in a namespace that is being deleted, for instance.
	serve, cancelServices := context.WithCancel(context.WithoutCancel(ctx))
	var services sync.WaitGroup
	stopServices := func() {
		cancelServices()
		services.Wait()
	}
	defer stopServices()
	services.Go(func() { upkeep.Run(serve, c.control, c.log, c.followEvents, c.announce) })
	services.Go(func() { c.logWatch.Run(serve) })
	services.Go(func() { c.transactions.Watch(serve) })
	if err := c.retry(ctx, "this node", c.registerNode); err != nil {
		return err
	}
	services.Go(func() { c.sendHeartbeats(serve) })

	stop, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	defer context.AfterFunc(stop, func() {
		time.AfterFunc(c.config.DrainFor, cancelWork) // no effect if work has ended before
	})()

	c.runComponents(work, stop, fail)
	c.fetched.Drained(work)
	c.giveBackFetched(serve)
	stopServices() // a heartbeat after removeNode would register the node again
	c.removeNode(serve)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(stop)
}

// announce tells workers of events that upkeep has published, and of jobs that it has made ready.
func (c *Client) announce(events, jobs bool) {
	if events {
		c.logWatch.Announce(logwatch.Events)
	}
	if jobs {
		c.logWatch.Announce(logwatch.Jobs)
	}
}

// followEvents tells upkeep about news of the log.
func (c *Client) followEvents() (news <-chan struct{}, end func()) {
	return c.logWatch.Follow(logwatch.Events)
}

func (c *Client) beginRun() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.running:
		return errRunning
	}
	c.running = true
	for _, registered := range c.components {
		registered.registered().started = false
	}
	return nil
}

func (c *Client) endRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}

// component is a group, projection, relay, import or job handler that [Client.Run] runs.
type component interface {
	registered() *registration
	// ready reports whether there is anything to run. If that changes, [Client.wake] tells Run.
	ready() bool
	// run runs the component until stop ends. Work in progress may continue until ctx
	// ends.
	run(ctx, stop context.Context) error
}

// registration is the common part of all components.
type registration struct {
	client  *Client
	label   string // unique among the components of a client, see GroupStats.Group
	metrics *observe.Group
	err     error // the registration is invalid: run returns this error
	started bool  // by the present Run; guarded by the client's lock
}

func (r *registration) registered() *registration { return r }
func (r *registration) ready() bool               { return true }

// register adds a component, also to a Run that is running.
func (c *Client) register(added component) {
	r := added.registered()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.components, func(other component) bool { return other.registered().label == r.label }) {
		r.err = invalid(fmt.Sprintf("%q is registered twice", r.label),
			"Register each group, projection, relay, import and job handler once, under a name of its own.")
		r.label += " (duplicate)"
	}
	c.components = append(c.components, added)
	c.wakeLocked()
}

// unregister removes a component that has nothing to do any more.
func (c *Client) unregister(ended component) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.components = slices.DeleteFunc(c.components, func(other component) bool { return other == ended })
}

// wake lets Run look for components that are ready.
func (c *Client) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

func (c *Client) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Internal returns parts of the client for other packages of Posthorn. Programs cannot rely
// on them: they change without notice.
func (c *Client) Internal() internal.Client {
	return internal.Client{
		Pool: c.control, Watch: c.logWatch, Hub: c.hub, Queues: c.queues, Box: c.box, Telemetry: c.telemetry, Log: c.log,
		Register: func(own internal.Component) {
			c.register(&internalComponent{registration{client: c, label: own.Label, metrics: own.Metrics}, own})
		},
	}
}

// internalComponent is a component that another package of Posthorn has registered.
type internalComponent struct {
	registration
	work internal.Component
}

func (i *internalComponent) run(ctx, stop context.Context) error {
	if i.err != nil {
		return i.err
	}
	return i.work.Run(ctx, stop)
}

// runComponents runs all components, also those that are registered or become ready
// later. It returns when stop has ended and all components have returned.
func (c *Client) runComponents(work, stop context.Context, fail context.CancelCauseFunc) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		added, changed := c.startReady()
		for _, added := range added {
			running.Go(func() { c.runComponent(added, work, stop, fail) })
		}
		select {
		case <-stop.Done():
			return
		case <-changed:
		}
	}
}

// startReady returns the components that have become ready, and a channel that is closed
// when there may be more.
func (c *Client) startReady() (ready []component, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, registered := range c.components {
		if r := registered.registered(); !r.started && registered.ready() {
			r.started = true
			ready = append(ready, registered)
		}
	}
	return ready, c.changed
}

// runComponent runs a component again after each temporary error. After another error it
// ends Run.
func (c *Client) runComponent(running component, work, stop context.Context, fail context.CancelCauseFunc) {
	err := c.retry(stop, running.registered().label, func(context.Context) error { return running.run(work, stop) })
	if err != nil {
		fail(err)
	}
}

// retry repeats a function after temporary errors until ctx ends. It returns only an
// error that is not temporary.
func (c *Client) retry(ctx context.Context, label string, run func(ctx context.Context) error) error {
	err := worker.Retry{Outages: true}.Do(ctx, func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil && !pg.IsFinal(err) {
			c.log.Warn("trouble with the database, trying again", "for", label, "error", err)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *Client) registerNode(ctx context.Context) error {
	info := pg.NodeInfo{DisplayName: c.config.DisplayName, Description: c.config.Description}
	if len(c.config.NodeMetadata) > 0 {
		var err error
		if info.Metadata, err = json.Marshal(c.config.NodeMetadata); err != nil {
			return invalid("NodeMetadata cannot be written as JSON: "+err.Error(), "Give values that encode as JSON.")
		}
	}
	_, err := pg.RegisterNode(ctx, c.control, c.namespace, c.config.NodeID, info)
	return err
}

// removeNode removes this node and gives its leases back, also those of calls whose
// result was lost.
func (c *Client) removeNode(ctx context.Context) {
	ctx, cancel := worker.Outlast(ctx, worker.LastWords)
	defer cancel()
	if _, err := pg.RemoveNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot remove this node; its leases expire", "error", err)
	}
}

// sendHeartbeats records periodically that this node is alive. A node that upkeep has
// removed, perhaps because its machine was suspended, registers again.
func (c *Client) sendHeartbeats(ctx context.Context) {
	trouble := worker.Trouble{Log: c.log, Message: "cannot send a heartbeat yet"}
	for worker.Pause(ctx, c.heartbeat) {
		known, err := pg.TouchHeartbeat(ctx, c.control, c.config.NodeID)
		if err == nil && !known {
			err = c.registerAgain(ctx)
		}
		if err == nil {
			trouble.Over()
		} else if ctx.Err() == nil {
			trouble.Report(err)
		}
	}
}

func (c *Client) registerAgain(ctx context.Context) error {
	if err := c.registerNode(ctx); err != nil {
		return err
	}
	for _, g := range c.groups() {
		if err := g.recordHandlers(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) groups() []*Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	var groups []*Group
	for _, registered := range c.components {
		if g, ok := registered.(*Group); ok {
			groups = append(groups, g)
		}
	}
	return groups
}

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

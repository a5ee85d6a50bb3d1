package posthorn

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/upkeep"
	"github.com/posthorn/posthorn/internal/worker"
)

const (
	heartbeat = 30 * time.Second
	lastWords = 10 * time.Second // for what is said after the end
)

// Run makes this process a node: it registers, consumes for the groups that have
// handlers, keeps projections, fires schedules and does the upkeep of the log,
// until ctx ends. Then it takes nothing more, gives handlers
// [Config.DrainFor] to finish, gives back what they did not, and returns when
// all of them have returned: nil if it was ctx that ended it.
//
// Trouble with the database is logged and waited out. Run returns early only
// when something is wrong that time will not mend, such as a bad pattern.
//
// A process may run several clients, also of one namespace.
func (c *Client) Run(ctx context.Context) error {
	if err := c.beginRun(); err != nil {
		return err
	}
	defer c.endRun()
	if err := c.retry(ctx, "this node", c.registerNode); err != nil {
		return err
	}

	stop, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work, hurry := context.WithCancel(context.WithoutCancel(ctx))
	defer hurry()
	defer context.AfterFunc(stop, func() {
		time.AfterFunc(c.config.DrainFor, hurry) // after the end it changes nothing
	})()

	keeping, enough := context.WithCancel(context.WithoutCancel(ctx))
	var house sync.WaitGroup
	house.Go(func() { upkeep.Run(keeping, c.control, c.log) })
	house.Go(func() { c.watch.Run(keeping) })
	house.Go(func() { c.sendHeartbeats(keeping) })
	house.Go(func() { c.transactions.Watch(keeping) })
	c.runParts(work, stop, fail)
	c.fetched.Drained(work)
	c.giveBackFetched(keeping)
	enough()
	house.Wait() // a node that was removed does not register again
	c.removeNode(keeping)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(stop)
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
	return nil
}

func (c *Client) endRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}

// runParts keeps all parts going, also those that come while it runs, until stop
// ends and they have.
func (c *Client) runParts(work, stop context.Context, fail context.CancelCauseFunc) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for started := 0; ; {
		c.mu.Lock()
		fresh, changed := c.parts[started:], c.changed
		started = len(c.parts)
		c.mu.Unlock()
		for _, p := range fresh {
			parts.Go(func() { c.keepGoing(p, work, stop, fail) })
		}
		select {
		case <-stop.Done():
			return
		case <-changed:
		}
	}
}

// wakeRun lets Run see that there is a new part. The caller holds the lock.
func (c *Client) wakeRun() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// keepGoing runs a part, and ends it all when the part cannot be run as it is.
func (c *Client) keepGoing(p part, work, stop context.Context, fail context.CancelCauseFunc) {
	err := c.retry(stop, p.label(), func(context.Context) error { return p.run(work, stop) })
	if err != nil {
		fail(err)
	}
}

// retry repeats a function after errors that pass, until ctx ends. It returns an
// error that time will not mend.
func (c *Client) retry(ctx context.Context, part string, run func(ctx context.Context) error) error {
	err := worker.Retry{Outages: true}.Do(ctx, func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil && !pg.IsFinal(err) {
			c.log.Warn("trouble with the database, trying again", "for", part, "error", err)
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
			return invalid("NodeMetadata cannot be written as JSON: "+err.Error(), "")
		}
	}
	_, err := pg.RegisterNode(ctx, c.control, c.namespace, c.config.NodeID, info)
	return err
}

// removeNode gives back whatever this node holds: also leases that were taken in
// calls whose answer never arrived.
func (c *Client) removeNode(ctx context.Context) {
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	if _, err := pg.RemoveNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("this node could not say that it has stopped; its leases expire", "error", err)
	}
}

// sendHeartbeats records now and then that this node is alive. A node that was
// taken for dead and swept, perhaps because its machine slept, registers again.
func (c *Client) sendHeartbeats(ctx context.Context) {
	trouble := worker.Trouble{Log: c.log, What: "heartbeat missed"}
	for worker.Pause(ctx, c.heartbeat) {
		known, err := pg.TouchHeartbeat(ctx, c.control, c.config.NodeID)
		if err == nil && !known {
			err = c.returnToLife(ctx)
		}
		if err == nil {
			trouble.Over()
		} else if ctx.Err() == nil {
			trouble.Report(err)
		}
	}
}

func (c *Client) returnToLife(ctx context.Context) error {
	if err := c.registerNode(ctx); err != nil {
		return err
	}
	for _, g := range c.groups() {
		if err := g.announce(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) groups() []*Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	var groups []*Group
	for _, p := range c.parts {
		if g, ok := p.(*Group); ok {
			groups = append(groups, g)
		}
	}
	return groups
}

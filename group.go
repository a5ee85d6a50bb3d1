package posthorn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Group is a named position in the log, shared by all processes that use the name. Each
// event is handled once per group. Its methods are safe for use by any number of
// goroutines.
type Group struct {
	registration
	name       string
	config     GroupConfig
	routes     *consume.Routes
	fetchState fetchState

	mu            sync.Mutex // also guards err
	handlers      []*consume.Handler
	subscriptions []*subscription
	changed       chan struct{} // closed and replaced with each new handler or subscription
	newOrder      chan struct{} // closed when the group has our order; nil if it has

	reported string // the last error that keepReachable has logged, which logs it once
}

// Group returns the group with a name. Register its handlers for [Client.Run], or take
// events with [Group.Fetch]. Run and Fetch return an error if the configuration is
// invalid. Call Group once per name; after the group was deleted, this process handles it
// no more, and the name may be registered again.
func (c *Client) Group(name string, config GroupConfig) *Group {
	config = config.withDefaults()
	g := &Group{
		registration: registration{
			client: c, label: name, metrics: c.telemetry.Group(name), err: config.check(),
		},
		name:       name,
		config:     config,
		routes:     consume.NewRoutes(),
		fetchState: fetchState{turn: make(chan struct{}, 1)},
		changed:    make(chan struct{}),
	}
	c.register(g)
	return g
}

// Name returns the name of the group.
func (g *Group) Name() string { return g.name }

// blocks reports whether a failed event holds back the next events of its slot.
func (g *Group) blocks() bool { return g.config.Order != Unordered && !g.config.SetAside }

func (g *Group) consumeConfig(group pg.Group, ordered bool, newEvents <-chan struct{}) consume.Config {
	askOthers := func(ctx context.Context) error {
		_, err := g.keep(ctx, group)
		return err
	}
	return consume.Config{
		Pool:                g.client.control,
		Work:                g.client.transactions,
		Group:               group,
		Node:                g.client.NodeID(),
		Routes:              g.routes,
		AskOthers:           askOthers,
		NewEvents:           newEvents,
		Ordered:             ordered,
		Blocks:              ordered && !g.config.SetAside,
		SharedTx:            g.config.SharedTx,
		DeadLetterUnhandled: g.config.DeadLetterUnhandled,
		BatchSize:           g.config.BatchSize,
		Concurrency:         g.config.Concurrency,
		LeaseFor:            g.config.LeaseFor,
		Timeout:             max(g.config.Timeout, 0),
		IdlePoll:            g.config.IdlePoll,
		Log:                 g.client.log,
		Observe:             g.metrics,
	}
}

func (g *Group) run(ctx, stop context.Context) error {
	changed := g.nextChange()
	group, err := g.define(stop)
	if err != nil {
		return err
	}
	if err := g.record(stop, group, true); err != nil {
		return err
	}
	for _, name := range g.unknownNames() {
		g.client.log.Warn("a name in Formerly belongs to no handler yet", "group", g.name, "name", name)
	}
	for _, name := range g.withoutHandler() {
		g.client.log.Warn("a subscription without a handler is not created yet", "group", g.name, "subscription", name)
	}
	newEvents, unsubscribe := g.client.logWatch.Subscribe(logwatch.Events)
	defer unsubscribe()
	var recording sync.WaitGroup
	defer recording.Wait()
	record, stopRecording := context.WithCancel(stop)
	defer stopRecording()
	recording.Go(func() { g.keepRecorded(record, group, changed) })
	if err := g.consume(stop, g.withLeaseTime(ctx), group, newEvents); !errors.Is(err, ErrNotFound) {
		return err
	}
	g.client.log.Warn("the group was deleted: this process handles it no more", "group", g.name,
		"hint", "To make the group anew, restart the process or register the group again.")
	g.client.unregister(g)
	return nil
}

// consume works until stop ends or the group is deleted. While the group has another
// order than ours, its leases are handled in order, as that order may ask for it.
func (g *Group) consume(stop, work context.Context, group pg.Group, newEvents <-chan struct{}) error {
	if newOrder := g.awaitedOrder(); newOrder != nil {
		until, end := context.WithCancel(stop)
		defer end()
		go func() {
			select {
			case <-newOrder:
				end()
			case <-until.Done():
			}
		}()
		err := consume.Run(until, work, g.consumeConfig(group, true, newEvents))
		if err != nil || stop.Err() != nil {
			return err
		}
	}
	return consume.Run(stop, work, g.consumeConfig(group, g.config.Order != Unordered, newEvents))
}

// withLeaseTime returns a context whose statements give up early enough that another
// attempt fits into the lease.
func (g *Group) withLeaseTime(ctx context.Context) context.Context {
	return pg.Within(ctx, pg.LeaseTime(g.config.LeaseFor))
}

// ready reports whether the group has a handler, or an error that Run returns. A group
// that only Fetch reads is not run.
func (g *Group) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.handlers) > 0 || g.err != nil
}

// record writes the handlers of this node into the database, and after them the
// subscriptions: an event that matches a subscription must find its handler. Only the
// subscriptions that are not saved yet are written, unless all is true.
func (g *Group) record(ctx context.Context, group pg.Group, all bool) error {
	if err := g.checkMix(); err != nil {
		return err
	}
	if err := g.recordHandlers(ctx); err != nil {
		return err
	}
	if err := g.saveSubscriptions(ctx, all, g.hasHandler); err != nil {
		return err
	}
	kept, err := g.keep(ctx, group)
	if err != nil {
		return err
	}
	return g.checkReachable(kept.Unreachable)
}

// recordHandlers writes the handlers of this node into the database, for other nodes.
func (g *Group) recordHandlers(ctx context.Context) error {
	g.mu.Lock()
	handlers := make([]pg.Handler, len(g.handlers))
	for i, h := range g.handlers {
		handlers[i] = pg.Handler{Name: h.Name, Patterns: append([]string{}, h.Patterns...), Formerly: h.Formerly}
	}
	g.mu.Unlock()
	return pg.SetNodeHandlers(ctx, g.client.control, g.client.namespace, g.client.NodeID(), g.name, handlers)
}

// keep keeps the group's subscriptions from expiring, changes its order if that is still to be
// done and possible now, and learns the handlers of other live nodes: events for handlers that
// this node lacks are left to them.
func (g *Group) keep(ctx context.Context, group pg.Group) (pg.Kept, error) {
	var order *pg.GroupConfig
	if g.awaitedOrder() != nil {
		policy := g.config.policy()
		order = &policy
	}
	kept, err := pg.KeepGroup(ctx, g.client.control, group, g.client.NodeID(), order)
	if err != nil {
		return kept, err
	}
	g.routes.SetOthers(kept.Others, kept.Names)
	if order != nil && kept.HasOrder {
		g.noteOrder(true)
		g.client.log.Info("the order of the group has changed", "group", g.name, "order", g.config.Order)
	}
	return kept, nil
}

// handlerInterval is the interval between two reads of the handlers of other nodes. For so
// long, a handler that is new in the group may miss events that nodes without it take.
const handlerInterval = time.Second

// nextChange returns a channel that is closed by the next registration.
func (g *Group) nextChange() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// notifyChange wakes goroutines that wait for a registration. The caller holds the lock.
func (g *Group) notifyChange() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// keepRecorded records new handlers and subscriptions, and reads those of other nodes,
// until ctx ends.
func (g *Group) keepRecorded(ctx context.Context, group pg.Group, changed <-chan struct{}) {
	ticker := time.NewTicker(handlerInterval)
	defer ticker.Stop()
	trouble := worker.Trouble{Log: g.client.log.With("group", g.name), Message: "nodes cannot exchange their handlers yet"}
	for unrecorded := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			changed = g.nextChange()
			unrecorded = true
		}
		var err error
		if unrecorded {
			err = g.record(ctx, group, false)
			unrecorded = err != nil && !pg.IsFinal(err)
		} else {
			err = g.keepCurrent(ctx, group)
		}
		switch {
		case err == nil:
			trouble.Over()
		case ctx.Err() != nil:
		case errors.Is(err, ErrNotFound): // upkeep has removed this node; sendHeartbeats registers it again
		case pg.IsFinal(err):
			g.client.log.Error("a new handler or subscription cannot be used", "group", g.name, "error", err, "hint", Hint(err))
		default:
			trouble.Report(err)
		}
	}
}

// keepCurrent does the part of keepRecorded that is repeated.
func (g *Group) keepCurrent(ctx context.Context, group pg.Group) error {
	kept, err := g.keep(ctx, group)
	if err == nil {
		g.keepReachable(kept.Unreachable)
	}
	return err
}

package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Order says which events of a group may be handled at the same time.
type Order string

// The orders of a group.
const (
	Unordered   Order = "none"   // any of them
	OrderKey    Order = "key"    // those whose keys fall into different slots
	OrderStream Order = "stream" // those of different streams
	OrderTotal  Order = "total"  // one at a time
)

// Unlimited, as [GroupConfig.Attempts], never gives up.
const Unlimited = -1

// GroupConfig is how a group treats its events. The zero value is sound. The
// group belongs to the database: whoever starts last with another policy
// changes it for all.
type GroupConfig struct {
	// Order of events. Ordered groups handle the events of a slot one after
	// another, over all nodes. Default: Unordered, which is the fastest.
	Order Order
	// Slots of a group ordered by key: how many keys can be worked on at once,
	// and how many others a failed event holds back: one in Slots. Default: 16.
	Slots int
	// SetAside lets the events of a slot go on while a failed one waits for its
	// next attempt. Default: they wait for it, to keep their order.
	SetAside bool

	// Start is where a new group begins to read. Default: with what is published
	// from now on. One that exists goes on where it stood; [admin.Admin.Seek] moves
	// it.
	Start Moment

	// Attempts is how often an event is tried before it becomes a dead letter.
	// Default: 5. [Unlimited] never gives up.
	Attempts int
	// Delays before each further attempt; the last one repeats. They say the
	// number of attempts too, unless Attempts does. Default: Backoff.
	Delays []time.Duration
	// Backoff before each further attempt. Default: from one second, doubling up
	// to five minutes, a tenth of it at random.
	Backoff Backoff

	// Together runs all handlers of an event in one transaction: all succeed or
	// none. Default: each by itself, and only those that failed are tried again.
	Together bool
	// BuryUnhandled makes a dead letter of an event that no handler of any live
	// node is for. Default: it is passed over.
	BuryUnhandled bool

	// Concurrency is how many handlers run at once in this process. More of them
	// hide waiting for others; handlers that compute gain nothing beyond the
	// number of cores. Handlers in transactions also need a connection each, see
	// [Config.MaxConns]. Default: 10.
	Concurrency int
	// BatchSize bounds the events of one lease. Large leases cost less per
	// event; small ones share work more evenly. Leases begin small and grow only
	// while handling is quick, so the default is right for most: 1000.
	BatchSize int
	// LeaseFor is how long after this process has died its events go to others.
	// It is extended while handlers run, so it need not cover them. Shorter
	// recovers sooner and extends more often. Default: 30 seconds.
	LeaseFor time.Duration
	// Timeout of one call of a handler, after which its context ends and the
	// event counts as failed. Negative for none. Default: 5 minutes.
	Timeout time.Duration
	// IdlePoll is how often to look for work when there is no news of any: how
	// late a retry may be, and an event whose transaction stayed open for long.
	// Shorter is more prompt and costs an idle database more. Default: 250 ms.
	IdlePoll time.Duration

	// Sealed hands out the payloads of confidential streams as they are in the log,
	// for programs that pass events on, such as relays. Default: opened, see
	// [Config].Seal.
	Sealed bool

	// Middleware wraps every handler of single events, the first one outermost.
	Middleware []Middleware
}

// Backoff grows from attempt to attempt. Zero fields keep their default.
type Backoff struct {
	From, To time.Duration
	Factor   float64
}

func (c GroupConfig) withDefaults() GroupConfig {
	c.Order = cmp.Or(c.Order, Unordered)
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	return c
}

func (c GroupConfig) check() error {
	switch {
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return invalid("Concurrency must be from 1 to 10000", "Leave it out for 10.")
	case c.BatchSize < 0 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for 30 seconds; it is extended while handlers run.")
	case c.IdlePoll < time.Millisecond:
		return invalid("IdlePoll must be a millisecond or more", "Leave it out for 250 milliseconds.")
	}
	return nil
}

// policy is the part of the configuration that the database keeps.
func (c GroupConfig) policy() pg.GroupConfig {
	p := pg.GroupConfig{Order: string(c.Order), Slots: c.Slots, OnFailure: "block", Delays: c.Delays}
	if c.SetAside {
		p.OnFailure = "set_aside"
	}
	if c.Start.Valid {
		p.Start = &c.Start
	}
	attempts := cmp.Or(c.Attempts, 5)
	if len(c.Delays) == 0 || c.Attempts != 0 {
		attempts = max(attempts, 0)
		p.Attempts = &attempts
	}
	if len(c.Delays) == 0 {
		jitter := 0.1
		p.Backoff = &pg.Backoff{
			From: cmp.Or(c.Backoff.From, time.Second), To: cmp.Or(c.Backoff.To, 5*time.Minute),
			Factor: cmp.Or(c.Backoff.Factor, 2), Jitter: &jitter,
		}
	}
	return p
}

// delay is about how long an event waits after a delivery that failed.
func (c GroupConfig) delay(delivery int) time.Duration {
	if n := len(c.Delays); n > 0 {
		return c.Delays[min(max(delivery, 1), n)-1]
	}
	b := c.policy().Backoff
	return time.Duration(min(float64(b.To), float64(b.From)*math.Pow(b.Factor, float64(max(delivery, 1)-1))))
}

// limit is how often an event is tried, or 0 for no limit.
func (c GroupConfig) limit() int {
	if p := c.policy(); p.Attempts != nil {
		return *p.Attempts
	}
	return len(c.Delays) + 1
}

// Group is a named position in the log, shared by all processes that use the
// name: each event is handled once per group. Its methods are safe for use by
// any number of goroutines.
type Group struct {
	client *Client
	name   string
	config GroupConfig
	routes *consume.Routes
	pull   pull
	watch  *observe.Group

	mu            sync.Mutex
	err           error // what was wrong when it was set up; Run returns it
	handlers      []*consume.Handler
	subscriptions []*subscription
	changed       chan struct{} // closed and made anew with each handler and subscription

	complaint string // what keepSubscriptions has said last; for who tells
}

// Group names a group and says how it treats its events here. Give it handlers
// and [Client.Run] consumes, or take events out of it with [Group.Fetch]. What is wrong with the
// configuration Run and Fetch tell.
func (c *Client) Group(name string, config GroupConfig) *Group {
	g := &Group{
		client:  c,
		name:    name,
		config:  config.withDefaults(),
		routes:  consume.NewRoutes(),
		pull:    newPull(),
		watch:   c.telemetry.Group(name, config.withDefaults().limit()),
		changed: make(chan struct{}),
	}
	g.err = g.config.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.parts, func(p part) bool { return p.label() == name }) {
		g.err = invalid(fmt.Sprintf("group %q is there already", name), "Keep what Group returned the first time.")
		g.name = name + " (again)"
	}
	c.parts = append(c.parts, g)
	c.wakeRun()
	return g
}

// Name is the group's name.
func (g *Group) Name() string { return g.name }

func (g *Group) label() string { return g.name }

func (g *Group) watched() *observe.Group { return g.watch }

// define makes the group, or changes its policy.
func (g *Group) define(ctx context.Context) (pg.Group, error) {
	g.mu.Lock()
	err := g.err
	g.mu.Unlock()
	if err != nil {
		return pg.Group{}, fmt.Errorf("group %s: %w", g.name, err)
	}
	return pg.DefineGroup(ctx, g.client.control, g.client.namespace, g.name, g.config.policy())
}

func (g *Group) blocks() bool { return g.config.Order != Unordered && !g.config.SetAside }

// consumer is how the engine is to treat the group.
func (g *Group) consumer(group pg.Group) consume.Config {
	return consume.Config{
		Pool:          g.client.control,
		Work:          g.client.transactions,
		Group:         group,
		Node:          g.client.NodeID(),
		Routes:        g.routes,
		AskOthers:     g.learnOthers,
		Ordered:       g.config.Order != Unordered,
		Blocks:        g.blocks(),
		Together:      g.config.Together,
		BuryUnhandled: g.config.BuryUnhandled,
		Attempts:      g.config.limit(),
		Delay:         g.config.delay,
		BatchSize:     g.config.BatchSize,
		Concurrency:   g.config.Concurrency,
		LeaseFor:      g.config.LeaseFor,
		Timeout:       max(g.config.Timeout, 0),
		IdlePoll:      g.config.IdlePoll,
		Log:           g.client.log,
		Observe:       g.watch,
	}
}

// run consumes until stop ends; handlers may go on until ctx does.
func (g *Group) run(ctx, stop context.Context) error {
	if !g.awaitHandlers(stop) {
		return nil
	}
	changed := g.nextChange()
	group, err := g.define(stop)
	if err != nil {
		return err
	}
	if err := g.tell(stop, group, true); err != nil {
		return err
	}
	if err := g.learnOthers(stop); err != nil {
		return err
	}
	for _, name := range g.withoutHandler() {
		g.client.log.Warn("a subscription is not made before it has a handler", "group", g.name, "subscription", name)
	}
	config := g.consumer(group)
	news, end := g.client.watch.Subscribe()
	defer end()
	config.News = news
	var telling sync.WaitGroup
	defer telling.Wait()
	told, enough := context.WithCancel(stop)
	defer enough()
	telling.Go(func() { g.keepTelling(told, group, changed) })
	consume.Run(stop, g.within(ctx), config)
	return nil
}

// within is for what the group's leases depend on: statements that get no answer
// are given up in time for another try.
func (g *Group) within(ctx context.Context) context.Context {
	return pg.Within(ctx, pg.LeaseTime(g.config.LeaseFor))
}

// awaitHandlers returns when there is a handler to run.
func (g *Group) awaitHandlers(stop context.Context) bool {
	for {
		g.mu.Lock()
		n, err, changed := len(g.handlers), g.err, g.changed
		g.mu.Unlock()
		if n > 0 || err != nil {
			return true
		}
		select {
		case <-stop.Done():
			return false
		case <-changed:
		}
	}
}

// tell lets the others know what is here: the other nodes of the handlers, and
// then the database of their subscriptions, so that events which these want are
// not taken for nobody's.
func (g *Group) tell(ctx context.Context, group pg.Group, again bool) error {
	if err := g.checkMix(); err != nil {
		return err
	}
	if err := g.announce(ctx); err != nil {
		return err
	}
	if err := g.subscribe(ctx, again, g.hasHandler); err != nil {
		return err
	}
	filtered, err := pg.KeepSubscriptions(ctx, g.client.control, group)
	if err != nil {
		return err
	}
	return g.checkReached(ctx, group, filtered)
}

// announce tells the other nodes which handlers this one has.
func (g *Group) announce(ctx context.Context) error {
	g.mu.Lock()
	handlers := make([]pg.Handler, len(g.handlers))
	for i, h := range g.handlers {
		handlers[i] = pg.Handler{Name: h.Name, Patterns: append([]string{}, h.Patterns...)}
	}
	g.mu.Unlock()
	return pg.SetNodeHandlers(ctx, g.client.control, g.client.namespace, g.client.NodeID(), g.name, handlers)
}

// learnOthers finds out which handlers other live nodes have. What they have and
// this one lacks is left to them.
func (g *Group) learnOthers(ctx context.Context) error {
	found, err := pg.GroupHandlers(ctx, g.client.control, g.client.namespace, g.name)
	if err != nil {
		return err
	}
	var others []consume.Other
	for _, h := range found {
		if h.Node != g.client.NodeID() {
			others = append(others, consume.Other{Name: h.Name, Patterns: h.Patterns})
		}
	}
	g.routes.SetOthers(others)
	return nil
}

// askOthers is how often: so long a handler that is new in the group may miss
// events that nodes without it take.
const askOthers = time.Second

// nextChange is closed when something is registered from now on.
func (g *Group) nextChange() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// keepTelling keeps nodes informed of each other's handlers, and the database of
// what they want.
func (g *Group) keepTelling(ctx context.Context, group pg.Group, changed <-chan struct{}) {
	ticker := time.NewTicker(askOthers)
	defer ticker.Stop()
	trouble := worker.Trouble{Log: g.client.log.With("group", g.name), What: "nodes cannot exchange their handlers yet"}
	for untold := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			changed = g.nextChange()
			untold = true
		}
		var err error
		if untold {
			err = g.tell(ctx, group, false)
			untold = err != nil && !pg.IsFinal(err)
		} else if err = g.learnOthers(ctx); err == nil {
			err = g.keepSubscriptions(ctx, group)
		}
		switch {
		case err == nil:
			trouble.Over()
		case ctx.Err() != nil:
		case errors.Is(err, ErrNotFound): // it was swept, and returns to life
		case pg.IsFinal(err):
			g.client.log.Error("what was added to a group cannot be used", "group", g.name, "error", err, "hint", Hint(err))
		default:
			trouble.Report(err)
		}
	}
}

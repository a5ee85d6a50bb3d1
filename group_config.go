package posthorn

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Order says which events of a group may be handled at the same time.
type Order string

// The values of [GroupConfig].Order.
const (
	Unordered   Order = "none"   // all events
	OrderKey    Order = "key"    // events whose keys are in different slots
	OrderStream Order = "stream" // events of different streams
	OrderTotal  Order = "total"  // one event at a time
)

// Unlimited, as [GroupConfig].Attempts, retries without end.
const Unlimited = -1

// GroupConfig configures a group. The zero value is a sound default. Order, Slots,
// SetAside, Attempts, Delays and Backoff are stored in the database: the most recently
// started process sets them for all processes. Order and Slots change only at a moment
// when the group has no lease and no retry. Until then the group keeps those that it has,
// and the process tries again each second.
type GroupConfig struct {
	// Order of events. An ordered group handles the events of a slot one after another,
	// over all nodes. Default: Unordered, which is the fastest.
	Order Order
	// Slots of a group that is ordered by key: a hash of the key selects the slot. More
	// slots handle more keys at once, and a failed event holds back fewer other keys: one
	// in Slots. Default: 16.
	Slots int
	// SetAside continues with the next events of a slot while a failed event waits for
	// its next attempt. Default: the next events wait too, which keeps their order.
	SetAside bool

	// Start is the position at which a new group begins. Default: [End], so that the
	// group gets events that are published from now on. An existing group keeps its
	// position; [admin.Admin.Seek] moves it.
	Start Moment

	// Attempts is the number of attempts before an event becomes a dead letter.
	// Default: 5. [Unlimited] retries without end.
	Attempts int
	// Delays are the delays before further attempts; the last one repeats. Unless
	// Attempts is given, there is one attempt more than there are delays. Default: those
	// of Backoff.
	Delays []time.Duration
	// Backoff before further attempts. Default: from one second, doubling up to five
	// minutes, a tenth of it at random.
	Backoff Backoff

	// SharedTx runs all handlers of an event in one transaction: all of them succeed, or
	// none. Default: each handler runs by itself, and only failed handlers are retried.
	SharedTx bool
	// DeadLetterUnhandled makes a dead letter of an event for which no live node has a
	// handler. Default: such an event is skipped.
	DeadLetterUnhandled bool

	// Formerly has the names that handlers and subscriptions of this group had before, by
	// their present name: {"book-order": {"book"}}. The present name takes over
	// subscriptions, retries and dead letters. While processes of both versions run, each
	// event is handled under one of the names. A former name must not be given to another
	// handler. Entries may stay for good; remove them when no process has the old name and
	// none may come back.
	Formerly map[string][]string

	// Concurrency is how many handlers run at once in this process. More of them help if
	// handlers wait for other systems; handlers that compute gain nothing beyond the
	// number of cores. Handlers with transactions also need one connection each, see
	// [Config].MaxConns. Default: 10.
	Concurrency int
	// BatchSize bounds the events of one lease. Larger leases cost less per event;
	// smaller ones distribute work more evenly. Leases begin small and grow only while
	// handlers are quick, so the default is right for most groups. Default: 1000.
	BatchSize int
	// LeaseFor is how long the events of a process that has died wait for another
	// process. Leases are extended while handlers run, so handlers may take longer. A
	// shorter lease recovers sooner and is extended more often. Default: 30 seconds.
	LeaseFor time.Duration
	// Timeout of one call of a handler. Then the handler's context ends, and the event
	// has failed; a handler without a transaction that then returns nil has handled it.
	// Negative for none. Default: 5 minutes.
	Timeout time.Duration
	// IdlePoll is the interval at which an idle group looks for events without a
	// notification. The interval bounds the delay of a retry, and of an event whose
	// transaction was open for long. A shorter interval costs an idle database more.
	// Default: 500 ms.
	IdlePoll time.Duration

	// KeepSealed leaves the payloads of confidential streams encrypted, for programs
	// that pass events on. Default: the client opens them, see [Config].Seal.
	KeepSealed bool

	// Middleware wraps every handler of single events. The first one is the outermost.
	Middleware []Middleware
}

// Backoff is a delay that grows with each attempt: From is the first delay, and To the
// longest one. Zero fields have their default.
type Backoff struct {
	From, To time.Duration
	Factor   float64
}

func (b Backoff) withDefaults(from, to time.Duration) Backoff {
	return Backoff{From: cmp.Or(b.From, from), To: cmp.Or(b.To, to), Factor: cmp.Or(b.Factor, 2)}
}

// policy returns the form that SQL functions take. A tenth of each delay is random.
func (b Backoff) policy() pg.Backoff {
	jitter := 0.1
	return pg.Backoff{From: b.From, To: b.To, Factor: b.Factor, Jitter: &jitter}
}

func (c GroupConfig) withDefaults() GroupConfig {
	c.Order = cmp.Or(c.Order, Unordered)
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 500*time.Millisecond)
	return c
}

func (c GroupConfig) check() error {
	switch {
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return invalid("Concurrency must be from 1 to 10000", "Leave it out for 10.")
	case c.BatchSize < 0 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for 30 seconds; leases are extended while handlers run.")
	case c.IdlePoll < time.Millisecond:
		return invalid("IdlePoll must be a millisecond or more", "Leave it out for 500 milliseconds.")
	}
	return nil
}

// policy returns the part of the configuration that is stored in the database.
func (c GroupConfig) policy() pg.GroupConfig {
	p := pg.GroupConfig{Order: string(c.Order), Slots: c.Slots, Delays: c.Delays, Start: c.Start}
	if c.SetAside {
		p.OnFailure = "set_aside"
	}
	if c.Attempts != 0 {
		attempts := max(c.Attempts, 0)
		p.Attempts = &attempts
	}
	if len(c.Delays) == 0 {
		p.Backoff = &pg.Backoff{From: c.Backoff.From, To: c.Backoff.To, Factor: c.Backoff.Factor}
	}
	return p
}

// define creates the group, or changes its policy. If the order cannot change yet, the
// rest of the policy does.
func (g *Group) define(ctx context.Context) (pg.Group, error) {
	g.mu.Lock()
	err := g.err
	g.mu.Unlock()
	if err != nil {
		return pg.Group{}, fmt.Errorf("group %s: %w", g.name, err)
	}
	begun, err := pg.BeginGroup(ctx, g.client.control, g.client.namespace, g.name, g.config.policy())
	if err != nil {
		return begun.Group, err
	}
	g.noteOrder(begun.HasOrder)
	if !begun.HasOrder {
		g.client.log.Warn("the order of the group cannot change yet", "group", g.name, "order", g.config.Order, "hint", begun.Hint)
	}
	return begun.Group, nil
}

// awaitedOrder returns a channel that is closed when the group has our order; nil if it
// has.
func (g *Group) awaitedOrder() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newOrder
}

// noteOrder notes whether the group has our order.
func (g *Group) noteOrder(has bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !has && g.newOrder == nil:
		g.newOrder = make(chan struct{})
	case has && g.newOrder != nil:
		close(g.newOrder)
		g.newOrder = nil
	}
}

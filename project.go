package posthorn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/project"
)

// Apply writes what events mean into tables, in the transaction that also moves
// the position of the projection past them. It must do the same whenever it gets
// the same events: only with the database, and with nothing that a rollback does
// not undo. It gets them in the order of the log, in batches of any size, and
// must not end the transaction.
//
// The payload of an event whose key was destroyed is nil: a projection skips
// nothing, and has to say itself what such an event means to it.
type Apply func(ctx context.Context, tx pgx.Tx, events []Event) error

// ProjectionConfig is how a projection is kept. The zero value is sound.
type ProjectionConfig struct {
	// BatchSize bounds the events of one transaction. Larger ones cost less per
	// event, and a rebuild goes faster; smaller ones hold locks for less time.
	// Default: 1000, which is also the most.
	BatchSize int
	// Backoff before each further attempt at an event that cannot be applied.
	// Default: from one second, doubling up to one minute, a tenth of it at
	// random.
	Backoff Backoff
	// LeaseFor is how long after this process has died another one goes on. It is
	// extended while a batch is applied, so it need not cover one. Default: 30
	// seconds.
	LeaseFor time.Duration
	// Timeout of one batch, after which its context ends and it is tried again in
	// smaller ones. Negative for none. Default: 5 minutes.
	Timeout time.Duration
	// IdlePoll is how often to look for events when there is no news of any.
	// Default: 250 ms.
	IdlePoll time.Duration
}

// keptProjection is a projection that this client keeps.
type keptProjection struct {
	client   *Client
	name     string
	patterns []string
	config   ProjectionConfig
	apply    Apply
	watch    *observe.Group
	err      error // what was wrong when it was set up; Run returns it
}

// Project keeps a projection: a table, or several, that follow the log. Apply writes
// there what events mean, in the same transaction as how far they have been read. So
// each event is applied exactly once, whatever crashes when.
//
// It gets the events whose type matches one of the patterns, as in [Group.Handle].
// [Client.Run] keeps it: from the beginning of the log, in its order, one process at a
// time of all that have it.
//
// An event that cannot be applied is rolled back and tried again without end,
// and nothing after it is applied: a projection skips nothing. Its status says
// what is wrong. See [admin.Admin.RebuildProjection] for starting over.
func (c *Client) Project(name, patterns string, config ProjectionConfig, apply Apply) {
	p := &keptProjection{
		client: c, name: name, patterns: splitPatterns(patterns), config: config.withDefaults(), apply: apply,
		watch: c.telemetry.Group(name, 0),
	}
	p.watch.Projection(name)
	p.err = p.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.parts, func(other part) bool { return other.label() == name }) {
		p.err = invalid(fmt.Sprintf("there is a group or projection %q already", name), "A projection has its name for itself.")
		p.name = name + " (again)"
	}
	c.parts = append(c.parts, p)
	c.wakeRun()
}

func (c ProjectionConfig) withDefaults() ProjectionConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.Backoff = Backoff{
		From: cmp.Or(c.Backoff.From, time.Second), To: cmp.Or(c.Backoff.To, time.Minute),
		Factor: cmp.Or(c.Backoff.Factor, 2),
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	return c
}

func (p *keptProjection) check() error {
	switch c := p.config; {
	case p.apply == nil:
		return invalid("there is nothing to apply events with", "Give a function.")
	case c.BatchSize < 0 || c.BatchSize > 1000:
		return invalid("BatchSize must be from 1 to 1000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for 30 seconds; it is extended while a batch is applied.")
	case c.IdlePoll < time.Millisecond:
		return invalid("IdlePoll must be a millisecond or more", "Leave it out for 250 milliseconds.")
	}
	return checkPatterns(p.patterns)
}

func checkPatterns(patterns []string) error {
	if len(patterns) == 0 {
		return invalid("it is for no type of event", "Give patterns, like order.placed or order.*.")
	}
	for _, pattern := range patterns {
		if !consume.ValidPattern(pattern) {
			return invalid(fmt.Sprintf("%q is not a pattern", pattern), "Write it like order.placed, order.* or order.>.")
		}
	}
	return nil
}

func (p *keptProjection) label() string { return p.name }

func (p *keptProjection) watched() *observe.Group { return p.watch }

// run keeps the projection until stop ends; a batch may go on until ctx does.
func (p *keptProjection) run(ctx, stop context.Context) error {
	if p.err != nil {
		return fmt.Errorf("projection %s: %w", p.name, p.err)
	}
	jitter := 0.1
	backoff := pg.Backoff{From: p.config.Backoff.From, To: p.config.Backoff.To, Factor: p.config.Backoff.Factor, Jitter: &jitter}
	group, err := pg.DefineProjection(stop, p.client.control, p.client.namespace, p.name, backoff)
	if err != nil {
		return err
	}
	news, end := p.client.watch.Subscribe()
	defer end()
	config := p.worker(group)
	config.News = news
	project.New(config).Run(stop, pg.Within(ctx, pg.LeaseTime(config.LeaseFor)))
	return nil
}

// worker is how the engine is to treat the projection.
func (p *keptProjection) worker(group pg.Group) project.Config {
	h := p.watch.Projection(p.name)
	return project.Config{
		Pool:     p.client.control,
		Work:     p.client.transactions,
		Group:    group,
		Node:     p.client.NodeID(),
		Patterns: p.patterns,
		Apply: func(ctx context.Context, tx pgx.Tx, batch []pg.Event) error {
			return p.watch.Apply(ctx, h, batch, func(ctx context.Context) error {
				opened, err := p.client.openForProjection(ctx, batch)
				if err != nil {
					return err
				}
				return p.apply(ctx, tx, opened)
			})
		},
		BatchSize: p.config.BatchSize,
		LeaseFor:  p.config.LeaseFor,
		Timeout:   max(p.config.Timeout, 0),
		IdlePoll:  p.config.IdlePoll,
		Log:       p.client.log,
	}
}

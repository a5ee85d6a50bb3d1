package posthorn

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/project"
)

// ApplyFunc applies events to tables, in the transaction that also moves the position of
// the projection. Its result must depend only on the database and the events, and it must
// have no effect that a rollback does not undo. It gets the events in the order of the
// log, in batches of any size, and must not end the transaction.
//
// If the key of an event was destroyed, its payload is nil. A projection skips no event,
// so the function decides how to apply it.
type ApplyFunc func(ctx context.Context, tx pgx.Tx, events []Event) error

// ProjectionConfig configures a projection. The zero value is a sound default.
type ProjectionConfig struct {
	// BatchSize bounds the events of one transaction. Larger batches cost less per event
	// and rebuild faster; smaller ones hold locks for less time. Default: 1000, which is
	// also the maximum.
	BatchSize int
	// Backoff before further attempts for an event that cannot be applied. Default: from
	// one second, doubling up to one minute, a tenth of it at random.
	Backoff Backoff
	// LeaseFor is how long the projection of a process that has died waits for another
	// process. The lease is extended while a batch is applied, so a batch may take
	// longer. Default: 30 seconds.
	LeaseFor time.Duration
	// Timeout of one batch. Then its context ends, and its events are retried in smaller
	// batches. Negative for none. Default: 5 minutes.
	Timeout time.Duration
	// IdlePoll is the interval at which an idle projection looks for events without a
	// notification. Default: 500 ms.
	IdlePoll time.Duration
}

// projection is a projection that [Client.Project] has registered.
type projection struct {
	registration
	name     string
	patterns []string
	config   ProjectionConfig
	apply    ApplyFunc
}

// Project registers a projection: tables that follow the log. The events whose type
// matches one of the patterns, as in [Group.Handle], are applied in the transaction that
// moves the position of the projection, so each event is applied exactly once, also after
// a crash.
//
// [Client.Run] applies events from the beginning of the log, in the order of the log. Only
// one process at a time does so.
//
// An event that cannot be applied is retried without end, and no later event is applied
// before: a projection skips no event. The status of the projection has the error. See
// [admin.Admin.RebuildProjection] for a new start.
func (c *Client) Project(name, patterns string, config ProjectionConfig, apply ApplyFunc) {
	c.register(c.newProjection(name, patterns, config, apply))
}

func (c *Client) newProjection(name, patterns string, config ProjectionConfig, apply ApplyFunc) *projection {
	p := &projection{
		registration: registration{client: c, label: name, metrics: c.telemetry.Group(name)},
		name:         name, patterns: splitPatterns(patterns), config: config.withDefaults(), apply: apply,
	}
	p.err = p.check()
	return p
}

func (c ProjectionConfig) withDefaults() ProjectionConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.Backoff = c.Backoff.withDefaults(time.Second, time.Minute)
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 500*time.Millisecond)
	return c
}

func (p *projection) check() error {
	switch c := p.config; {
	case p.apply == nil:
		return invalid("the function that applies events is nil", "Give a function.")
	case len(p.patterns) == 0:
		return invalid("there are no patterns", "Give patterns, like order.placed or order.*.")
	case c.BatchSize < 0 || c.BatchSize > 1000:
		return invalid("BatchSize must be from 1 to 1000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > 24*time.Hour:
		return invalid("LeaseFor must be from a second to a day", "Leave it out for 30 seconds; the lease is extended while a batch is applied.")
	case c.IdlePoll < time.Millisecond:
		return invalid("IdlePoll must be a millisecond or more", "Leave it out for 500 milliseconds.")
	}
	return checkPatterns(p.patterns, "order.placed, order.* or order.>")
}

func (p *projection) run(ctx, stop context.Context) error {
	if p.err != nil {
		return fmt.Errorf("projection %s: %w", p.name, p.err)
	}
	group, err := pg.DefineProjection(stop, p.client.control, p.client.namespace, p.name, p.config.Backoff.policy())
	if err != nil {
		return err
	}
	newEvents, unsubscribe := p.client.logWatch.Subscribe(logwatch.Events)
	defer unsubscribe()
	config := p.engineConfig(group)
	config.NewEvents = newEvents
	project.New(config).Run(stop, pg.Within(ctx, pg.LeaseTime(config.LeaseFor)))
	return nil
}

func (p *projection) engineConfig(group pg.Group) project.Config {
	h := p.metrics.Projection(p.name)
	return project.Config{
		Pool:     p.client.control,
		Work:     p.client.transactions,
		Group:    group,
		Node:     p.client.NodeID(),
		Patterns: p.patterns,
		Apply: func(ctx context.Context, tx pgx.Tx, batch []pg.Event) error {
			return p.metrics.Apply(ctx, h, batch, func(ctx context.Context) error {
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

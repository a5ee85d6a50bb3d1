package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/project"
	"github.com/posthorn/posthorn/internal/worker"
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

// ReplaceConfig configures the replacement of a projection. Swap is required.
type ReplaceConfig struct {
	ProjectionConfig

	// Prepare creates the new tables, or empties those of an abandoned replacement. It
	// runs when the replacement begins, and not when it continues after a crash.
	Prepare func(ctx context.Context, tx pgx.Tx) error
	// Swap replaces the old tables with the new ones, in the transaction that moves the
	// projection to the position of its replacement. It may run more than once; all runs
	// except the last are rolled back.
	Swap func(ctx context.Context, tx pgx.Tx) error
	// Progress, if given, is called periodically with the number of event ids that are
	// applied, and at the end with done equal to total. If there are no events to apply,
	// it is not called.
	Progress func(done, total int64)
	// Partial allows a log whose oldest events were removed; see [admin.RebuildConfig].
	Partial bool
}

// ReplaceProjection builds new tables for a projection while the old ones stay in use.
// Apply writes the events from the beginning of the log into the new tables. When the new
// tables have caught up, Swap replaces the old ones in one transaction. All of this happens
// in the calling process, during the call.
//
// After a crash or an error, the next call continues. An event that cannot be applied is
// returned as an error. [admin.Admin.AbandonReplacement] abandons the replacement.
//
// After the swap, the processes that run the projection write to the new tables with
// their own ApplyFunc, which must fit the new tables. If it does not, give the new
// projection another name.
func (c *Client) ReplaceProjection(ctx context.Context, name, patterns string, config ReplaceConfig, apply ApplyFunc) error {
	r := &replacement{
		client: c, name: name, config: config, checkedAt: time.Now(),
		projection: c.newProjection(name, patterns, config.ProjectionConfig, apply),
	}
	err := r.projection.err
	if config.Swap == nil {
		err = invalid("Swap is missing", "Give a function that replaces the old tables with the new ones.")
	}
	if err == nil {
		err = r.begin(ctx)
	}
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return fmt.Errorf("replace projection %s: %w", name, err)
	}
	return nil
}

// replacement is a call of [Client.ReplaceProjection].
type replacement struct {
	client     *Client
	name       string
	config     ReplaceConfig
	projection *projection
	group      pg.Group
	engine     *project.Projection

	beganAt   time.Time // identifies the replacement
	total     int64     // event ids to apply
	checkedAt time.Time // when checkProgress has last read the status
}

// errFinished: another process has finished the replacement while this one joined it.
var errFinished = errors.New("the replacement has just finished")

func (r *replacement) begin(ctx context.Context) error {
	var s admin.ProjectionStatus
	for {
		var err error
		if s, err = r.beginOrJoin(ctx); err == nil {
			break
		}
		if !errors.Is(err, errFinished) || ctx.Err() != nil {
			return err
		}
	}
	r.engine = project.New(r.projection.engineConfig(r.group))
	r.total = s.RebuildTotal // read here, because a short replacement ends before checkProgress
	r.beganAt = s.RebuildBeganAt
	return nil
}

// beginOrJoin begins the replacement, or joins one that has begun.
func (r *replacement) beginOrJoin(ctx context.Context) (s admin.ProjectionStatus, err error) {
	err = r.inTx(ctx, func(tx pgx.Tx) (err error) {
		var isNew bool
		if r.group, isNew, err = pg.BeginReplacement(ctx, tx, r.client.namespace, r.name, r.config.Partial); err != nil {
			return err
		}
		s, err = r.client.Admin().In(tx).Projection(ctx, r.group.Name)
		switch {
		case errors.Is(err, ErrNotFound) && !isNew:
			return errFinished
		case err != nil || !isNew || r.config.Prepare == nil:
			return err
		}
		return r.config.Prepare(ctx, worker.HoldTx(tx))
	})
	return s, err
}

// run applies events until the replacement has finished.
func (r *replacement) run(ctx context.Context) error {
	trouble := worker.Trouble{Log: r.client.log.With("projection", r.name), Message: "cannot replace a projection yet"}
	for ctx.Err() == nil {
		applied, err := r.engine.Next(ctx)
		done := false
		if err == nil {
			trouble.Over()
			done, err = r.checkProgress(ctx, applied)
		}
		var refused *project.EventError
		switch {
		case errors.As(err, &refused):
			return fmt.Errorf("event %d (%s): %w", refused.Event, refused.Type, refused.Err)
		case errors.Is(err, ErrLeaseLost):
		case errors.Is(err, ErrNotFound):
			return r.finishedElsewhere(ctx, err)
		case err != nil && !project.Passes(err):
			return err
		case err != nil && ctx.Err() == nil:
			trouble.Report(err)
			worker.Pause(ctx, worker.TroubleWait)
		case done:
			return nil
		case applied == 0:
			worker.Rest(ctx, r.engine.IdlePoll, r.engine.NewEvents)
		}
	}
	return ctx.Err()
}

// finishedElsewhere returns nil if a replacement that no longer exists has finished:
// another process may have finished it, or a result was lost.
func (r *replacement) finishedElsewhere(ctx context.Context, notFound error) error {
	s, err := r.client.Admin().Projection(ctx, r.name)
	if err != nil {
		return err
	}
	if !s.RebuildBeganAt.Equal(r.beganAt) {
		return fmt.Errorf("the replacement was abandoned: %w", notFound)
	}
	r.report(r.total)
	return nil
}

// checkProgress reports progress, and finishes the replacement when few events are left.
// While batches are full, it does so only once per progressInterval.
func (r *replacement) checkProgress(ctx context.Context, applied int) (done bool, err error) {
	if applied == r.engine.BatchSize && time.Since(r.checkedAt) < progressInterval {
		return false, nil
	}
	r.checkedAt = time.Now()
	s, err := r.client.Admin().Projection(ctx, r.group.Name)
	if err != nil {
		return false, err
	}
	if s.Rebuilding {
		r.total = s.RebuildTotal
		r.report(s.RebuildDone)
	}
	if s.Rebuilding || s.LagEvents > int64(finalBatches*r.engine.BatchSize) {
		return false, nil
	}
	done, err = r.finish(ctx)
	if done {
		r.report(r.total)
	}
	return done, err
}

const progressInterval = 250 * time.Millisecond

func (r *replacement) report(done int64) {
	if r.config.Progress != nil && r.total > 0 {
		r.config.Progress(done, r.total)
	}
}

// finalBatches bounds the batches of finish, which stops the old projection meanwhile.
const finalBatches = 10

// errEventRefused rolls back an attempt to finish.
var errEventRefused = errors.New("an event cannot be applied")

// finish applies the last events and swaps the tables, in one transaction that stops the
// old projection. If there are too many events, it applies only a part of them.
func (r *replacement) finish(ctx context.Context) (done bool, err error) {
	err = r.inTx(ctx, func(tx pgx.Tx) error {
		for range finalBatches {
			if done, err = pg.FinishReplacement(ctx, tx, r.client.namespace, r.name); err != nil {
				return err
			}
			if done {
				return project.Blame(ctx, tx, r.config.Swap(ctx, worker.HoldTx(tx)))
			}
			some, err := r.engine.ApplyIn(ctx, tx)
			if project.Refused(err) {
				return errEventRefused // the next lease finds the event
			}
			if err != nil || !some {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEventRefused) {
		return false, nil
	}
	return done && err == nil, err
}

// inTx runs a function in a transaction, and repeats it after a collision with a worker:
// both may wait for locks of the other.
func (r *replacement) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	return worker.Retry{}.Do(ctx, func(ctx context.Context) error {
		if err := r.client.transactions.Reserve(ctx); err != nil { // Prepare and Swap are the program's
			return err
		}
		defer r.client.transactions.Free()
		return pgx.BeginTxFunc(ctx, r.client.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
	})
}

package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/project"
	"github.com/posthorn/posthorn/internal/worker"
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

// ReplaceConfig says how a projection is to be replaced. Swap is required.
type ReplaceConfig struct {
	ProjectionConfig

	// Prepare makes the new tables, or empties those that an abandoned attempt
	// has left. It runs when the replacement begins, and not when it goes on.
	Prepare func(ctx context.Context, tx pgx.Tx) error
	// Swap puts the new tables in the place of the old ones, in the transaction
	// that moves the projection to the position of its replacement. It may run
	// more than once; all runs but the last are rolled back.
	Swap func(ctx context.Context, tx pgx.Tx) error
	// Progress, if given, is called now and then with the number of IDs that are
	// replayed, and at the end with done equal to total. When there is nothing to
	// replay, it is not called.
	Progress func(done, total int64)
	// Partial builds from what the log still has; see [admin.RebuildConfig].
	Partial bool
}

// Replace builds a projection anew while the old one goes on and can be read:
// apply writes the events from the beginning into other tables, and when they
// have caught up with the old ones, both change places in one transaction. The
// work is done here, in this call.
//
// Called again after a crash or an error it goes on where it was. When an event
// cannot be applied it returns that error. [admin.Admin.AbandonReplacement]
// gives up.
//
// From the swap on, the processes that keep the projection write to the new
// tables, so they must fit what those write. Where they do not, give the new
// projection a new name.
func (c *Client) Replace(ctx context.Context, name, patterns string, config ReplaceConfig, apply Apply) error {
	r := &replacement{client: c, name: name, config: config, looked: time.Now()}
	r.projection = keptProjection{
		client: c, name: name, patterns: splitPatterns(patterns), config: config.withDefaults(), apply: apply,
		watch: c.telemetry.Group(name, 0),
	}
	err := r.projection.check()
	if config.Swap == nil {
		err = invalid("Swap is missing", "Give a function that puts the new tables in the place of the old ones.")
	}
	if err == nil {
		err = r.begin(ctx)
	}
	if err == nil {
		err = r.keepGoing(ctx)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// replacement is a projection that takes the place of another.
type replacement struct {
	client     *Client
	name       string
	config     ReplaceConfig
	projection keptProjection
	group      pg.Group
	engine     *project.Projection

	began  time.Time // in the database; tells it from others
	total  int64
	looked time.Time
}

// errFinished: the replacement that had begun took its place while we joined it.
var errFinished = errors.New("the replacement has just taken its place")

func (r *replacement) begin(ctx context.Context) error {
	var s admin.ProjectionStatus
	var err error
	for again := true; again; again = errors.Is(err, errFinished) && ctx.Err() == nil {
		s, err = r.join(ctx)
	}
	if err != nil {
		return err
	}
	r.engine = project.New(r.projection.worker(r.group))
	r.total = s.RebuildTotal // read here, because a short replay ends before the first look
	r.began = s.RebuildBeganAt
	return nil
}

// join makes the replacement, or finds the one that has begun.
func (r *replacement) join(ctx context.Context) (s admin.ProjectionStatus, err error) {
	err = r.client.again(ctx, func(tx pgx.Tx) (err error) {
		var fresh bool
		if r.group, fresh, err = pg.BeginReplacement(ctx, tx, r.client.namespace, r.name, r.config.Partial); err != nil {
			return err
		}
		s, err = r.client.Admin().In(tx).Projection(ctx, r.group.Name)
		switch {
		case errors.Is(err, ErrNotFound) && !fresh:
			return errFinished
		case err != nil || !fresh || r.config.Prepare == nil:
			return err
		}
		return r.config.Prepare(ctx, worker.HoldTx(tx))
	})
	return s, err
}

// keepGoing applies events until the replacement has taken its place.
func (r *replacement) keepGoing(ctx context.Context) error {
	trouble := worker.Trouble{Log: r.client.log.With("projection", r.name), What: "cannot rebuild yet"}
	for ctx.Err() == nil {
		took, err := r.engine.Next(ctx)
		done := false
		if err == nil {
			trouble.Over()
			done, err = r.look(ctx, took)
		}
		var stands *project.EventError
		switch {
		case errors.As(err, &stands):
			return fmt.Errorf("event %d (%s): %w", stands.Event, stands.Type, stands.Err)
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
		case took == 0:
			r.engine.Rest(ctx)
		}
	}
	return ctx.Err()
}

// finishedElsewhere tells whether a replacement that is gone has taken its place:
// another process may work on it too, or an answer got lost.
func (r *replacement) finishedElsewhere(ctx context.Context, gone error) error {
	s, err := r.client.Admin().Projection(ctx, r.name)
	if err != nil {
		return err
	}
	if !s.RebuildBeganAt.Equal(r.began) {
		return fmt.Errorf("the replacement was abandoned: %w", gone)
	}
	r.report(r.total)
	return nil
}

func (r *replacement) status(ctx context.Context) (admin.ProjectionStatus, error) {
	return r.client.Admin().Projection(ctx, r.group.Name)
}

// look reports progress now and then, and finishes when the end is near. It is
// not while leases are full.
func (r *replacement) look(ctx context.Context, took int) (bool, error) {
	if took == r.engine.BatchSize && time.Since(r.looked) < lookEvery {
		return false, nil
	}
	r.looked = time.Now()
	s, err := r.status(ctx)
	if err != nil {
		return false, err
	}
	if s.Rebuilding {
		r.total = s.RebuildTotal
		r.report(s.RebuildDone)
	}
	if s.Rebuilding || s.LagEvents > int64(fewBatches*r.engine.BatchSize) {
		return false, nil
	}
	done, err := r.finish(ctx)
	if done {
		r.report(r.total)
	}
	return done, err
}

func (r *replacement) report(done int64) {
	if r.config.Progress != nil && r.total > 0 {
		r.config.Progress(done, r.total)
	}
}

// fewBatches bounds what is applied while the old projection stands still. What
// is left then is applied without that.
const fewBatches = 10

// errNotYet rolls back an attempt to finish.
var errNotYet = errors.New("an event cannot be applied")

// finish applies what is left and swaps, in one transaction, in which the old
// projection stands still. If there was too much left, only that much is done.
func (r *replacement) finish(ctx context.Context) (done bool, err error) {
	err = r.client.again(ctx, func(tx pgx.Tx) error {
		for range fewBatches {
			if done, err = pg.FinishReplacement(ctx, tx, r.client.namespace, r.name); err != nil {
				return err
			}
			if done {
				return project.Blame(ctx, tx, r.config.Swap(ctx, worker.HoldTx(tx)))
			}
			some, err := r.engine.ApplyIn(ctx, tx)
			if project.Refused(err) {
				return errNotYet // the next lease finds out which
			}
			if err != nil || !some {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errNotYet) {
		return false, nil
	}
	return done && err == nil, err
}

// lookEvery is how often progress is asked for.
const lookEvery = 250 * time.Millisecond

// again runs a transaction, again when it collided with another one: of a worker, which
// it waits for and which may wait for it.
func (c *Client) again(ctx context.Context, do func(tx pgx.Tx) error) error {
	return worker.Retry{}.Do(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, c.work, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
	})
}

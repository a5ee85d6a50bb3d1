package project

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes a projection and how this process runs it.
type Config struct {
	Pool  *pg.Pool             // for our own statements
	Work  *worker.Transactions // of batches
	Group pg.Group
	Node  string

	Patterns  []string // types of the events to apply; other events are skipped
	Apply     func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
	NewEvents <-chan struct{} // receives when there may be work; may be nil

	BatchSize int           // events per transaction, at most
	LeaseFor  time.Duration // length of a lease; heartbeats extend it
	Timeout   time.Duration // of one call of Apply; 0 for none
	IdlePoll  time.Duration // how often to look for work without a notification

	Log *slog.Logger
}

// Projection applies the events of one projection, one lease at a time.
type Projection struct {
	Config
	size      int // events per transaction: halved after a failure, doubled after a success
	pipeline  *worker.Pipeline
	heartbeat worker.Heartbeat[*lease]
	trouble   worker.Trouble
	failing   worker.Failures
}

// lease is a lease that is being worked on.
type lease struct {
	worker.Hold
	pg.Lease
}

// New returns a projection that is not running.
func New(config Config) *Projection {
	config.Log = config.Log.With("projection", config.Group.Name)
	p := &Projection{
		Config: config, size: config.BatchSize, pipeline: config.Work.Pipeline(config.LeaseFor),
		trouble: worker.Trouble{Log: config.Log, Message: "trouble with the database"},
		failing: worker.Failures{Log: config.Log},
	}
	p.heartbeat = worker.Heartbeat[*lease]{
		Every: config.LeaseFor / 3, Extend: p.extend,
		Trouble: &worker.Trouble{Log: config.Log, Message: "cannot extend a lease yet"},
		Stuck: func(*lease) {
			p.Log.Error("a batch does not return although its time is over: its lease is left to expire")
		},
	}
	if config.Timeout > 0 {
		p.heartbeat.Patience = config.Timeout + config.LeaseFor
	}
	p.heartbeat.Init()
	return p
}

// Run applies events until stop ends. Then it takes no more leases, and returns when
// the current lease is done, or when work ends.
func (p *Projection) Run(stop, work context.Context) {
	_ = worker.Run(stop, work, p, worker.Config{Workers: 1, Log: p.Log}) // no error of Take ends it
}

// Next takes a lease and applies its events, for a caller that has other work between
// leases. It returns the number of events that it took. The error is an [*EventError], [pg.ErrLeaseLost], or the database's.
func (p *Projection) Next(work context.Context) (took int, err error) {
	l, err := p.Take(work, p.BatchSize, nil, true)
	if err != nil || l == nil {
		return 0, err
	}
	p.heartbeat.While(work, func() { err = p.workOff(l) })
	return len(l.Events), err
}

// Room returns the number of events to take.
func (p *Projection) Room(context.Context) int { return p.BatchSize }

// Rest waits for events.
func (p *Projection) Rest() (time.Duration, <-chan struct{}) { return p.IdlePoll, p.NewEvents }

// KeepAlive extends the current lease until ctx ends.
func (p *Projection) KeepAlive(ctx context.Context) { p.heartbeat.Run(ctx) }

// Take takes a lease. The last one was settled in its transactions.
func (p *Projection) Take(work context.Context, n int, _ *lease, news bool) (*lease, error) {
	asked := time.Now()
	taken, err := p.Pool.Take(work, pg.Take{Group: p.Group, Node: p.Node, MaxEvents: n, LeaseFor: p.LeaseFor, Doubtful: !news})
	if err != nil || !taken.Held() {
		return nil, err
	}
	l := &lease{Lease: taken}
	l.Init(work, asked, p.LeaseFor)
	p.heartbeat.Add(l)
	return l, nil
}

// Runner returns a function that applies leases.
func (p *Projection) Runner(*worker.Worker) func(work context.Context, l *lease) bool {
	return func(work context.Context, l *lease) bool {
		p.report(work, p.workOff(l))
		return false
	}
}

// Finish has nothing to do: transactions settle.
func (p *Projection) Finish(context.Context, *lease) {}

// Lost has nothing to do either.
func (p *Projection) Lost(*lease) {}

// Release gives back a lease that was not started.
func (p *Projection) Release(work context.Context, l *lease) { _ = p.release(work, l) } // or it expires

func (p *Projection) release(work context.Context, l *lease) error {
	defer p.heartbeat.Remove(l)
	ctx, cancel := worker.Outlast(work, worker.LastWords)
	defer cancel()
	err := l.Settle(func() (bool, error) { return true, pg.Release(ctx, p.Pool, l.Lease) })
	if l.Lost() {
		return nil
	}
	return err
}

// report logs the error of a lease, and pauses after an error of the database.
func (p *Projection) report(work context.Context, err error) {
	stands, failed := errors.AsType[*EventError](err)
	switch {
	case err == nil:
		p.trouble.Over()
	case failed:
		attributes := []any{"event", stands.Event, "type", stands.Type, "error", stands.Err, "retry_at", stands.RetryAt}
		if panicked, ok := errors.AsType[*worker.PanicError](stands.Err); ok {
			attributes = append(attributes, "stack", string(panicked.Stack))
		}
		p.failing.Report(true, "projection stands still at an event that it cannot apply", attributes...)
	case errors.Is(err, pg.ErrLeaseLost):
		p.Log.Warn("lease lost: uncommitted events are applied again", "error", err)
	case work.Err() == nil:
		p.trouble.Report(err)
		worker.Pause(work, worker.TroubleWait)
	}
}

// workOff applies the events of a lease, batch by batch.
func (p *Projection) workOff(l *lease) error {
	ctx := l.Context()
	defer p.heartbeat.Remove(l)
	defer p.pipeline.End(ctx)
	for start := 0; start < len(l.Events); {
		end := min(start+p.size, len(l.Events))
		l.Step()
		err := p.apply(l, start, end)
		refused, isRefused := errors.AsType[*refusal](err)
		switch {
		case l.Lost():
			return errors.Join(pg.ErrLeaseLost, err)
		case err == nil:
			start, p.size = end, min(2*p.size, p.BatchSize)
		case ctx.Err() != nil:
			return p.release(ctx, l)
		case !isRefused:
			// The lease is given back and taken again: the commit may have succeeded
			// although its result was lost.
			_ = p.release(ctx, l)
			return err
		case end-start > 1:
			p.size = (end - start) / 2
		default:
			return p.standStill(l, &l.Events[start], refused.err)
		}
	}
	return nil
}

// tries is the number of attempts of a transaction that collides with others, such as
// with a rebuild that empties the tables.
const tries = 5

// apply applies events in one transaction and settles them there.
func (p *Projection) apply(l *lease, start, end int) error {
	ctx := l.Context()
	events := l.Events[start:end]
	wanted := p.wanted(events)
	ending := pg.Ending{Lease: l.Lease, First: events[0].ID, UpTo: events[len(events)-1].ID, LeaseFor: p.LeaseFor}
	err := worker.Retry{Collisions: tries}.Do(ctx, func(context.Context) error {
		defer p.pipeline.End(ctx)
		if len(wanted) > 0 {
			if err := p.pipeline.Begin(ctx); err != nil {
				return err
			}
			if err := p.pipeline.Run(func(tx pgx.Tx) error { return p.call(ctx, tx, wanted) }); err != nil {
				return err
			}
		}
		handlerErr, err := worker.Blame(l.Settle(func() (bool, error) {
			over := end == len(l.Events)
			if len(wanted) == 0 {
				return over, pg.SettleProjection(ctx, p.Pool, l.Lease, ending.First, ending.UpTo, p.LeaseFor)
			}
			_, err := p.pipeline.Commit(ctx, ending)
			return over, err
		}))
		if handlerErr != nil && !pg.IsCollision(handlerErr) {
			return &refusal{handlerErr}
		}
		return errors.Join(handlerErr, err)
	})
	if pg.IsCollision(err) {
		return fmt.Errorf("collided with other transactions %d times: %w", tries, err)
	}
	return err
}

// ApplyIn claims and applies events in a transaction of the caller. It has an effect only
// if the caller commits. It reports whether there were events.
func (p *Projection) ApplyIn(ctx context.Context, tx pgx.Tx) (bool, error) {
	taken, err := pg.Claim(ctx, tx, p.Group.Namespace, p.Group.Name, p.Node, p.BatchSize, p.LeaseFor)
	if err != nil || !taken.Held() {
		return false, err
	}
	if wanted := p.wanted(taken.Events); len(wanted) > 0 {
		if err := p.call(ctx, worker.HoldTx(tx), wanted); err != nil {
			return false, err
		}
	}
	first, last := taken.Events[0].ID, taken.Events[len(taken.Events)-1].ID
	return true, pg.SettleProjection(ctx, tx, taken, first, last, p.LeaseFor)
}

// call runs Apply. Its error is a refusal or an error of the database.
func (p *Projection) call(ctx context.Context, tx pgx.Tx, events []pg.Event) error {
	return Blame(ctx, tx, worker.CallTx(ctx, time.Now(), p.Timeout, tx, func(ctx context.Context) error { return p.Apply(ctx, tx, events) }))
}

// wanted returns the events whose types match the patterns.
func (p *Projection) wanted(events []pg.Event) []pg.Event {
	var wanted []pg.Event
	for i := range events {
		if consume.MatchesAny(p.Patterns, events[i].Type) {
			wanted = append(wanted, events[i])
		}
	}
	return wanted
}

// brief limits an extension, which may be part of a deadlock: it may wait for a rebuild,
// the rebuild for the tables of a batch, and the batch for the extension.
const brief = time.Second

// extend extends the current lease.
func (p *Projection) extend(ctx context.Context, l *lease) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	_, err := pg.Extend(ctx, p.Pool, l.Lease, p.LeaseFor)
	return p.LeaseFor, err
}

// EventError is the error of the event at which a projection stands still.
type EventError struct {
	Event   int64
	Type    string
	Err     error
	RetryAt time.Time
}

func (e *EventError) Error() string { return e.Err.Error() }
func (e *EventError) Unwrap() error { return e.Err }

func (p *Projection) standStill(l *lease, e *pg.Event, err error) error {
	ctx, cancel := worker.Outlast(l.Context(), worker.LastWords)
	defer cancel()
	var retryAt time.Time
	failing := l.Settle(func() (over bool, failing error) {
		retryAt, failing = pg.FailProjection(ctx, p.Pool, l.Lease, e.ID, worker.Clip(err.Error()))
		return true, failing
	})
	if failing != nil {
		return failing
	}
	return &EventError{Event: e.ID, Type: e.Type, Err: err, RetryAt: retryAt}
}

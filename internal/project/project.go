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

// Config says which projection to keep, and how.
type Config struct {
	Pool  *pg.Pool             // for our own statements
	Work  *worker.Transactions // of batches
	Group pg.Group
	Node  string

	Patterns []string // of the types that are applied; others are passed over
	Apply    func(ctx context.Context, tx pgx.Tx, events []pg.Event) error
	News     <-chan struct{} // receives when there may be work; may be nil

	BatchSize int           // events per transaction, at most
	LeaseFor  time.Duration // deadline of a lease; it moves while it is worked on
	Timeout   time.Duration // of one call of Apply; 0 for none
	IdlePoll  time.Duration // how often to look for work without news

	Log *slog.Logger
}

// Projection applies the events of one projection, one lease at a time.
type Projection struct {
	Config
	size      int // events per transaction: fewer after a failure, more as it goes well
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
		trouble: worker.Trouble{Log: config.Log, What: "trouble with the database"},
		failing: worker.Failures{Log: config.Log},
	}
	p.heartbeat = worker.Heartbeat[*lease]{
		Every: config.LeaseFor / 3, Extend: p.extend,
		Trouble: &worker.Trouble{Log: config.Log, What: "cannot extend a lease yet"},
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

// Run applies events until stop ends. Then it takes nothing more, and returns
// when the lease in hand is done; that has until work ends.
func (p *Projection) Run(stop, work context.Context) {
	_ = worker.Run(stop, work, p, worker.Config{Workers: 1, Log: p.Log}) // nothing ends it
}

// Next takes a lease and applies its events, for a caller that has something to do
// between leases. It returns how many events it took: none when there is nothing
// to do. The error is an [*EventError], [pg.ErrLeaseLost], or the database's.
func (p *Projection) Next(work context.Context) (took int, err error) {
	l, err := p.Take(work, p.BatchSize, nil)
	if err != nil || l == nil {
		return 0, err
	}
	p.heartbeat.While(work, func() { err = p.workOff(l) })
	return len(l.Events), err
}

// Room is how many events to take.
func (p *Projection) Room(context.Context) int { return p.BatchSize }

// Rest waits for news.
func (p *Projection) Rest(stop context.Context) bool { return worker.Rest(stop, p.IdlePoll, p.News) }

// KeepAlive extends the lease in hand until ctx ends.
func (p *Projection) KeepAlive(ctx context.Context) { p.heartbeat.Run(ctx) }

// Take takes a lease. The last one was settled in its transactions.
func (p *Projection) Take(work context.Context, n int, _ *lease) (*lease, error) {
	asked := time.Now()
	taken, err := p.Pool.Take(work, pg.Take{Group: p.Group, Node: p.Node, MaxEvents: n, LeaseFor: p.LeaseFor})
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

// Release gives a lease back that was not begun.
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

// report logs how a lease went, and makes a pause after trouble with the database.
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
		p.Log.Warn("lease lost: what was not committed is applied again", "error", err)
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
			// It is taken anew, and not gone on with: a commit whose answer was lost
			// may have happened.
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

// tries is how often a transaction is begun that collides with others, such as a
// rebuild that empties the tables.
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
			return over, p.pipeline.Commit(ctx, ending)
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

// ApplyIn claims and applies events in a transaction of the caller's, which alone
// decides what becomes of them, and reports whether there were any.
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

// call runs Apply. Its error is a refusal, or the database's.
func (p *Projection) call(ctx context.Context, tx pgx.Tx, events []pg.Event) error {
	return Blame(ctx, tx, worker.Call(ctx, time.Now(), p.Timeout, func(ctx context.Context) error { return p.Apply(ctx, tx, events) }))
}

// wanted are the events that the projection is for.
func (p *Projection) wanted(events []pg.Event) []pg.Event {
	var wanted []pg.Event
	for i := range events {
		if consume.MatchesAny(p.Patterns, events[i].Type) {
			wanted = append(wanted, events[i])
		}
	}
	return wanted
}

// brief is how long an extension may take: it may wait for a rebuild that waits
// for the tables of our transaction, which in turn waits for the extension.
const brief = time.Second

// extend extends the lease in hand.
func (p *Projection) extend(ctx context.Context, l *lease) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	_, err := pg.Extend(ctx, p.Pool, l.Lease, p.LeaseFor)
	return p.LeaseFor, err
}

// EventError is why a projection stands still.
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

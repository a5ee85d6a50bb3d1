package consume

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config says what to consume, and how.
type Config struct {
	Pool  *pg.Pool             // for our own statements
	Work  *worker.Transactions // of handlers
	Group pg.Group
	Node  string

	Routes    *Routes
	AskOthers func(ctx context.Context) error // sees to it that Routes knows the handlers of other nodes; may be nil
	News      <-chan struct{}                 // receives when there may be work

	Ordered       bool // the events of a lease run one after another
	Blocks        bool // in ordered groups: a failure ends the lease
	Together      bool // all handlers of an event run in one transaction
	BuryUnhandled bool // an event without a handler becomes a dead letter; otherwise it is passed over

	Attempts    int                              // before an event is a dead letter; 0 for no limit
	Delay       func(delivery int) time.Duration // after a failure, about: for the log
	BatchSize   int                              // events per lease, at most
	Concurrency int                              // handlers that run at once, at most
	LeaseFor    time.Duration                    // deadline of a lease; it moves while somebody works on it
	Timeout     time.Duration                    // of one call of a handler; 0 for none
	IdlePoll    time.Duration                    // how often to look for work without news

	Log     *slog.Logger
	Observe Observer
}

// group is the kind of work that a group's leases are.
type group struct {
	Config
	heartbeat worker.Heartbeat[*lease]
	batch     *worker.Sizer
	failing   worker.Failures
	settling  worker.Retry
	releasing worker.Trouble
	asking    worker.Trouble
	opening   worker.Trouble
}

// Run consumes until stop ends. Then it takes nothing more and returns when what
// it holds is done and settled. The contexts of handlers come from work, so when
// that ends too, they should return; what they leave undone goes back.
func Run(stop, work context.Context, config Config) {
	g := newGroup(config)
	_ = worker.Run(stop, work, g, worker.Config{Lanes: g.Concurrency, Log: g.Log}) // nothing ends it
}

func newGroup(config Config) *group {
	config.Log = config.Log.With("group", config.Group.Name)
	if config.Observe == nil {
		config.Observe = Unobserved{}
	}
	g := &group{
		Config:    config,
		batch:     worker.NewSizer(config.BatchSize),
		failing:   worker.Failures{Log: config.Log},
		releasing: worker.Trouble{Log: config.Log, What: "cannot give a lease back yet"},
		asking:    worker.Trouble{Log: config.Log, What: "cannot ask other nodes for their handlers yet"},
		opening:   worker.Trouble{Log: config.Log, What: "cannot run a transaction yet"},
	}
	g.settling = worker.Retry{
		Outages: true, Each: max(config.LeaseFor/3, time.Second),
		Trouble: &worker.Trouble{Log: config.Log, What: "cannot settle yet"},
	}
	g.heartbeat = worker.Heartbeat[*lease]{
		Every: config.LeaseFor / 3, Extend: g.extend, Stuck: g.leaveToExpire,
		Trouble: &worker.Trouble{Log: config.Log, What: "cannot extend a lease yet"},
	}
	if config.Timeout > 0 {
		g.heartbeat.Patience = config.Timeout + config.LeaseFor
	}
	g.heartbeat.Init()
	return g
}

// KeepAlive extends leases until ctx ends.
func (g *group) KeepAlive(ctx context.Context) { g.heartbeat.Run(ctx) }

// Room is how many events to take.
func (g *group) Room(context.Context) int { return g.batch.Next() }

// Rest waits for news.
func (g *group) Rest(stop context.Context) bool { return worker.Rest(stop, g.IdlePoll, g.News) }

// Take settles a lease that is done, if there is one, and takes another.
func (g *group) Take(work context.Context, n int, done *lease) (*lease, error) {
	if done == nil {
		return g.take(work, n, pg.Lease{})
	}
	var next *lease
	err := done.Settle(func() (bool, error) {
		return true, g.observeSettle(work, done.Events, nil, func(ctx context.Context) (err error) {
			next, err = g.take(ctx, n, done.Lease)
			return err
		})
	})
	if err == nil {
		g.heartbeat.Remove(done)
	}
	return next, err
}

func (g *group) take(work context.Context, n int, settle pg.Lease) (*lease, error) {
	asked := time.Now()
	taken, err := g.Pool.Take(work, pg.Take{
		Group: g.Group, Node: g.Node, MaxEvents: n, LeaseFor: g.LeaseFor, Settle: settle,
	})
	if err != nil || !taken.Held() {
		return nil, err
	}
	return g.hold(work, taken, asked), nil
}

// hold begins to keep a lease alive.
func (g *group) hold(work context.Context, taken pg.Lease, asked time.Time) *lease {
	l := &lease{Lease: taken, done: make([]bool, len(taken.Events))}
	l.Init(work, asked, g.LeaseFor)
	g.heartbeat.Add(l)
	return l
}

// Finish settles a lease. It repeats that for as long as the lease may be ours.
func (g *group) Finish(work context.Context, l *lease) {
	defer g.heartbeat.Remove(l)
	ctx, cancel := worker.Outlast(work, g.LeaseFor)
	defer cancel()
	err := g.settling.Do(ctx, func(ctx context.Context) error {
		return l.Settle(func() (bool, error) {
			s := l.unsettled()
			return true, g.observeSettle(ctx, l.Events[l.head:], s.failures, func(ctx context.Context) error {
				return pg.Settle(ctx, g.Pool, l.Lease, s.failures...)
			})
		})
	})
	switch {
	case l.Lost():
		g.Lost(l)
	case err != nil && pg.IsFinal(err): // what we say of the lease is refused, which time will not change
		g.Log.Error("cannot settle", "lease", l.ID, "error", err)
	}
}

// Release gives back what is left of a lease.
func (g *group) Release(work context.Context, l *lease) {
	defer g.heartbeat.Remove(l)
	ctx, cancel := worker.Outlast(work, worker.LastWords)
	defer cancel()
	err := l.Settle(func() (bool, error) { return true, pg.Release(ctx, g.Pool, l.Lease) })
	if err == nil || l.Lost() {
		g.releasing.Over()
	} else {
		g.releasing.Report(err)
	}
}

// Lost reports a lease that others have.
func (g *group) Lost(l *lease) {
	g.heartbeat.Remove(l)
	g.Observe.LeaseLost()
	g.Log.Warn("lease lost: others handle its events again", "lease", l.ID, "events", len(l.Events))
}

// extend extends a lease, or settles the events of it that are done, which extends
// it too: so a crash repeats little, and a failed event comes again in time.
func (g *group) extend(ctx context.Context, l *lease) (time.Duration, error) {
	s := l.unsettled()
	if s.head == l.head && len(s.failures) == 0 {
		_, err := pg.Extend(ctx, g.Pool, l.Lease, g.LeaseFor)
		return g.LeaseFor, err
	}
	err := g.observeSettle(ctx, l.Events[l.head:s.head], s.failures, func(ctx context.Context) error {
		return pg.SettleUntil(ctx, g.Pool, l.Lease, s.upTo, g.LeaseFor, s.failures...)
	})
	if err == nil {
		l.settled(s)
	}
	return g.LeaseFor / 2, err
}

// leaveToExpire reports a lease that is not extended any more.
func (g *group) leaveToExpire(l *lease) {
	g.Log.Error("a handler does not return although its time is over: its lease is left to expire", "lease", l.ID)
}

package consume

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes a group and how this process consumes it.
type Config struct {
	Pool  *pg.Pool             // for our own statements
	Work  *worker.Transactions // of handlers
	Group pg.Group
	Node  string

	Routes    *Routes
	AskOthers func(ctx context.Context) error // updates Routes with the handlers of other nodes; may be nil
	NewEvents <-chan struct{}                 // receives when there may be work

	Ordered             bool // the events of a lease run one after another
	Blocks              bool // in ordered groups: a failure ends the lease
	SharedTx            bool // all handlers of an event run in one transaction
	DeadLetterUnhandled bool // an event without a handler becomes a dead letter; otherwise it is passed over

	BatchSize   int           // events per lease, at most
	Concurrency int           // handlers that run at once, at most
	LeaseFor    time.Duration // length of a lease; heartbeats extend it
	Timeout     time.Duration // of one call of a handler; 0 for none
	IdlePoll    time.Duration // how often to look for work without a notification

	Log     *slog.Logger
	Observe Observer
}

// group is the [worker.Kind] that handles leases of a group.
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

// Run consumes until stop ends. Then it takes no more leases, and returns when its
// leases are settled. The contexts of handlers end with work: handlers should return
// then, and their unfinished events are given back. Run returns [pg.ErrNotFound] when the
// group was deleted.
func Run(stop, work context.Context, config Config) error {
	g := newGroup(config)
	deleted := func(err error) bool { return errors.Is(err, pg.ErrNotFound) }
	return worker.Run(stop, work, g, worker.Config{Workers: g.Concurrency, Chained: g.Ordered, Log: g.Log, Ends: deleted})
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
		releasing: worker.Trouble{Log: config.Log, Message: "cannot give a lease back yet"},
		asking:    worker.Trouble{Log: config.Log, Message: "cannot ask other nodes for their handlers yet"},
		opening:   worker.Trouble{Log: config.Log, Message: "cannot run a transaction yet"},
	}
	g.settling = worker.Retry{
		Outages: true, Each: max(config.LeaseFor/3, time.Second),
		Trouble: &worker.Trouble{Log: config.Log, Message: "cannot settle yet"},
	}
	g.heartbeat = worker.Heartbeat[*lease]{
		Every: config.LeaseFor / 3, Extend: g.extend, Stuck: g.leaveToExpire,
		Trouble: &worker.Trouble{Log: config.Log, Message: "cannot extend a lease yet"},
	}
	if config.Timeout > 0 {
		g.heartbeat.Patience = config.Timeout + config.LeaseFor
	}
	g.heartbeat.Init()
	return g
}

// KeepAlive extends leases until ctx ends.
func (g *group) KeepAlive(ctx context.Context) { g.heartbeat.Run(ctx) }

// Room returns the number of events to take.
func (g *group) Room(context.Context) int { return g.batch.Next() }

// Rest waits for events.
func (g *group) Rest() (time.Duration, <-chan struct{}) { return g.IdlePoll, g.NewEvents }

// leaveToExpire reports a lease that is not extended any more.
func (g *group) leaveToExpire(l *lease) {
	g.Log.Error("a handler does not return although its time is over: its lease is left to expire", "lease", l.ID)
}

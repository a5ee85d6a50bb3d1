package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
)

// Config says what to consume, and how.
type Config struct {
	Pool  *pg.Pool      // for our own statements
	Work  *pgxpool.Pool // for the transactions of handlers
	Group pg.Group
	Node  string

	Routes    *Routes
	AskOthers func(ctx context.Context) error // sees to it that Routes knows the handlers of other nodes; may be nil
	News      <-chan struct{}                 // receives when there may be work
	Feed      Feed                            // has leases of events from elsewhere; nil: they are taken from the log
	FromAfar  bool                            // retries may be of events from elsewhere, with ids of their own there
	Slots     chan struct{}                   // for Concurrency, shared with other consumers; may be nil

	Ordered       bool // the events of a lease run one after another
	Blocks        bool // in ordered groups: a failure ends the lease
	Together      bool // all handlers of an event run in one transaction
	BuryUnhandled bool // an event without a handler becomes a dead letter; otherwise it is passed over

	BatchSize   int           // events per lease, at most
	Concurrency int           // handlers that run at once, at most
	LeaseFor    time.Duration // deadline of a lease; it moves while somebody works on it
	Timeout     time.Duration // of one call of a handler; 0 for none
	IdlePoll    time.Duration // how often to look for work without news

	Log     *slog.Logger
	Observe Observer
}

// Feed hands out leases of events that are not from the log. Its methods are
// called by all lanes.
type Feed interface {
	// Next waits for a lease of up to n events. There is none when stop has ended.
	Next(stop context.Context, n int) (lease pg.Lease, ok bool)
	// Landed says that a lease of Next is worked off, as far as it says itself.
	Landed(lease pg.Lease)
}

// Consumer works through a group.
type Consumer struct {
	Config

	turn  chan struct{} // who holds it may take
	slots chan struct{} // who holds one may run a handler
	batch *Sizer

	mu      sync.Mutex
	flights map[*flight]struct{}
}

// TroubleWait is the pause after trouble with the database, here and in the other
// loops of a client. It is a variable for tests, which set it before they begin.
var TroubleWait = 2 * time.Second

// lastWords is how long a consumer that ends tries to give its leases back.
const lastWords = 10 * time.Second

// Run consumes until stop ends. Then it takes nothing more and returns when what
// it holds is done and settled. The contexts of handlers come from work, so when
// that ends too, they should return; what they leave undone goes back.
func Run(stop, work context.Context, config Config) {
	c := &Consumer{
		Config:  config,
		turn:    make(chan struct{}, 1),
		slots:   config.Slots,
		batch:   NewSizer(config.BatchSize),
		flights: map[*flight]struct{}{},
	}
	if c.slots == nil {
		c.slots = make(chan struct{}, config.Concurrency)
	}
	if c.Observe == nil {
		c.Observe = Unobserved{}
	}
	beating, still := context.WithCancel(context.WithoutCancel(work))
	var heart, lanes sync.WaitGroup
	heart.Go(func() { c.beat(beating) })
	for range config.Concurrency {
		lanes.Go(func() { c.newLane().run(stop, work) })
	}
	lanes.Wait()
	still()
	heart.Wait()
}

// Sizer finds out how many events to take at once: enough that taking is cheap
// beside handling, few enough that a lease is done in about a second, so that
// other nodes get their part and little is repeated after a crash. It is safe for
// use by any number of goroutines.
type Sizer struct {
	mu         sync.Mutex
	size, most int
}

const (
	firstBatch = 10
	tooShort   = 100 * time.Millisecond
	tooLong    = time.Second
)

// NewSizer returns one that begins small and grows up to most.
func NewSizer(most int) *Sizer { return &Sizer{size: min(firstBatch, most), most: most} }

// Next is how many to take.
func (s *Sizer) Next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Took learns from a lease of n events.
func (s *Sizer) Took(n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d > tooLong:
		s.size = max(1, min(s.size, n)/2)
	case d < tooShort && n >= s.size:
		s.size = min(2*s.size, s.most)
	}
}

// settle ends a lease. It insists for as long as the lease may be ours.
func (c *Consumer) settle(work context.Context, lease pg.Lease, failures []pg.Failure) {
	ctx, cancel := Outlast(work, c.LeaseFor)
	defer cancel()
	for {
		err := c.observeSettle(ctx, lease.Events, failures, func(ctx context.Context) error {
			return pg.Settle(ctx, c.Pool, lease, failures...)
		})
		switch {
		case err == nil:
			return
		case errors.Is(err, pg.ErrLeaseLost):
			c.lost(lease)
			return
		case again(err):
			continue
		case rejected(err):
			// What we say of the lease is refused, which time will not change.
			c.Log.Error("cannot settle", "group", c.Group.Name, "lease", lease.ID, "error", err)
			return
		}
		c.trouble("cannot settle yet", err)
		if !Pause(ctx, TroubleWait) || work.Err() != nil {
			return // it expires, and others take it
		}
	}
}

func rejected(err error) bool {
	return errors.Is(err, pg.ErrInvalid) || errors.Is(err, pg.ErrRefused) || errors.Is(err, pg.ErrNotFound)
}

// release gives back what is left of a lease.
func (c *Consumer) release(work context.Context, lease pg.Lease) {
	ctx, cancel := Outlast(work, lastWords)
	defer cancel()
	if err := pg.Release(ctx, c.Pool, lease); err != nil && !errors.Is(err, pg.ErrLeaseLost) {
		c.trouble("cannot give a lease back", err)
	}
}

func (c *Consumer) lost(lease pg.Lease) {
	c.Observe.LeaseLost()
	c.Log.Warn("lease lost: others handle its events again", "group", c.Group.Name, "lease", lease.ID, "events", len(lease.Events))
}

func (c *Consumer) trouble(what string, err error) {
	c.Log.Warn(what, "group", c.Group.Name, "error", err)
}

// Pause waits, and reports whether ctx still holds.
func Pause(ctx context.Context, d time.Duration) bool { return Rest(ctx, d, nil) }

// Rest waits for news, for that long at most, and reports whether ctx still holds.
func Rest(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-timer.C:
	}
	return true
}

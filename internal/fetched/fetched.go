// Package fetched keeps the leases of events that a program has fetched. The program
// answers events one by one and in any order. An answer is kept in memory; the answers at
// the head of a lease are saved about once a second, and the last answer settles the
// lease.
package fetched

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Group is a group from which a program fetches events.
type Group struct {
	Leases   *Leases // of the client
	Pool     *pg.Pool
	Name     string
	LeaseFor time.Duration
	Blocks   bool   // a failed event holds back the next events of its slot
	Ended    func() // called after each lease; must not block
	Metrics  *observe.Group
	Log      *slog.Logger
}

// withLeaseTime returns a context whose statements give up early enough that another
// attempt fits into the lease.
func (g *Group) withLeaseTime(ctx context.Context) context.Context {
	return pg.Within(ctx, pg.LeaseTime(g.LeaseFor))
}

// grace is how much longer than its caller's context a statement may run, if its
// cancellation would leave open whether it has taken effect.
const grace = 2 * time.Second

// WithGrace returns a context that ends some time after ctx.
func WithGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}

// Leases are the fetched leases of a client. Their heartbeat saves answers; it extends no
// lease.
type Leases struct {
	worker.Heartbeat[*Lease]
	saving worker.Trouble
	run    func(heartbeat func(ctx context.Context))
	start  sync.Once
	used   bool // a lease was added; guarded by start
}

// saveInterval is the interval between two saves of answers. A crash repeats about as
// much work.
const saveInterval = time.Second

// NewLeases returns no leases. The first lease calls run with the heartbeat, which run
// must start in a goroutine, unless the client is closed.
func NewLeases(log *slog.Logger, run func(heartbeat func(ctx context.Context))) *Leases {
	s := &Leases{saving: worker.Trouble{Log: log, Message: "cannot save answers yet"}, run: run}
	s.Every, s.ExtendAll = saveInterval, s.save
	s.Init()
	return s
}

func (s *Leases) add(l *Lease) {
	s.Add(l)
	s.start.Do(func() {
		s.used = true
		s.run(s.Run)
	})
}

func (s *Leases) save(ctx context.Context, leases []*Lease) {
	l := leases[0]
	l.mu.Lock()
	expired := time.Now().After(l.expiresAt)
	l.mu.Unlock()
	err := l.saveInHeartbeat(ctx)
	switch {
	case errors.Is(err, pg.ErrLeaseLost):
		l.end() // the next answer returns the error
	case errors.Is(err, pg.ErrUnconfirmed):
		s.saving.Unconfirmed(err)
	case err != nil:
		s.saving.Report(err)
	default:
		s.saving.Over()
	}
	if expired {
		s.Forget(l) // other workers have the events: nothing can be given back
	}
}

// GiveBack saves all answers and gives all other events back. It reports whether the
// client has ever fetched events.
func (s *Leases) GiveBack(ctx context.Context) (used bool) {
	for _, l := range s.All() {
		l.GiveBack(ctx, 0)
	}
	s.start.Do(func() {})
	return s.used
}

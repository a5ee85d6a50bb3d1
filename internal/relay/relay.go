package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes a relay and how this process runs it.
type Config struct {
	Pool  *pg.Pool
	Group pg.Group
	Owner string // supervisor-{host}-{pid}-{8 hex}

	// Write writes events to the broker, those of each stream in their order. Its
	// errors are those of posthorn.Sink. lead is new whenever the lead was taken.
	Write func(ctx context.Context, lead int64, events []pg.Event) error
	// Trim removes entries of a stream from the broker that are not needed any more;
	// may be nil.
	Trim      func(ctx context.Context, stream string) error
	Read      Reader          // reads the broker back, after a failover; may be nil
	NewEvents <-chan struct{} // receives when there may be events to read; may be nil

	BatchSize   int // events of a window, at most
	MaxSetAside int // events that may be set aside; more are not read
	LeaseFor    time.Duration
	Timeout     time.Duration // of one call of Write
	IdlePoll    time.Duration // how often to look for events without a notification
	TrimEvery   time.Duration
	Backoff     Backoff // after failures

	Log *slog.Logger
	// Buried is called with new dead letters, and Lost after the lead was lost.
	Buried func(ctx context.Context, failures []pg.Failure)
	Lost   func()
}

// Backoff is a delay that grows with each try, up to To; up to a quarter of it is
// taken off at random.
type Backoff struct {
	From, To time.Duration
	Factor   float64
}

func (b Backoff) after(tries int) time.Duration {
	d := float64(b.From)
	for range tries - 1 {
		if d *= b.Factor; d >= float64(b.To) {
			d = float64(b.To)
			break
		}
	}
	return time.Duration(d * (1 - rand.Float64()/4))
}

// Run relays whenever no other process does, until stop ends. Then it takes no more
// windows, writes the current one, gives the lead back and returns, at the latest
// when work ends. It returns an error only if a retry cannot help.
func Run(stop, work context.Context, config Config) error {
	config.Log = config.Log.With("relay", config.Group.Name)
	lead := worker.Lead{
		Owner: config.Owner, LeaseFor: config.LeaseFor, AskEvery: config.IdlePoll, Log: config.Log, Lost: config.Lost,
		Acquire: func(ctx context.Context) (worker.Leadership, string, error) {
			lead, err := config.lead(ctx, 0)
			if err != nil || lead.Epoch == 0 {
				return nil, lead.Leader, err
			}
			return newLeadership(config, lead), "", nil
		},
	}
	return lead.Run(stop, work)
}

// lead asks for the lead, or extends the one of an epoch.
func (c *Config) lead(ctx context.Context, epoch int64) (pg.Lead, error) {
	return pg.LeadRelay(ctx, c.Pool, c.Group, c.Owner, c.LeaseFor, epoch)
}

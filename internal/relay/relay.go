package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config says which relay to run, and how.
type Config struct {
	Pool  *pg.Pool
	Group pg.Group
	Owner string // supervisor-{host}-{pid}-{8 hex}

	// Write writes events to the broker, those of each stream in their order. Its
	// errors are a sink's.
	Write func(ctx context.Context, events []pg.Event) error
	// Trim removes from the broker what nobody needs; may be nil.
	Trim func(ctx context.Context, stream string) error
	News <-chan struct{} // receives when there may be something to read; may be nil

	BatchSize int // events of a window, at most
	MaxAside  int // events of stuck streams that may wait beside the log
	LeaseFor  time.Duration
	Timeout   time.Duration // of one call of Write
	IdlePoll  time.Duration // how often to look for events without news
	TrimEvery time.Duration
	Backoff   Backoff // after failures

	Log *slog.Logger
	// Buried and Lost are told of dead letters, and of a lead that was lost.
	Buried func(ctx context.Context, failures []pg.Failure)
	Lost   func()
}

// Backoff grows from try to try, up to To; a quarter of it is random.
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

// Relay is a process that leads a relay, or stands by.
type Relay struct {
	Config
	leader     string // who is known to lead
	complained bool
}

// New returns a relay that is not running.
func New(config Config) *Relay { return &Relay{Config: config} }

const (
	troubleWait = time.Second      // after trouble with the database
	lastWords   = 10 * time.Second // for giving the lead back
)

// Run leads whenever nobody else does, until stop ends. Then it takes nothing
// more, and returns when the window at hand is written and the lead given back;
// that has until work ends. The error is one that time will not mend.
func (r *Relay) Run(stop, work context.Context) error {
	for stop.Err() == nil {
		asked := time.Now()
		lead, err := r.lead(context.WithoutCancel(stop), 0) // a lead that nobody hears of is not given back
		switch {
		case stop.Err() != nil:
		case errors.Is(err, pg.ErrNotFound), errors.Is(err, pg.ErrInvalid), errors.Is(err, pg.ErrRefused):
			return err
		case err != nil:
			r.complain(err)
			worker.Pause(stop, troubleWait)
			continue
		case lead.Epoch == 0:
			r.standBy(lead.Leader)
			worker.Pause(stop, min(r.IdlePoll, r.LeaseFor/3))
			continue
		}
		if lead.Epoch != 0 {
			r.leads(stop, work, lead, asked)
		}
	}
	return nil
}

// lead asks for the lead, or for more of it.
func (r *Relay) lead(ctx context.Context, epoch int64) (pg.Lead, error) {
	ctx, cancel := context.WithTimeout(ctx, min(r.LeaseFor/2, lastWords))
	defer cancel()
	return pg.LeadRelay(ctx, r.Pool, r.Group, r.Owner, r.LeaseFor, epoch)
}

func (r *Relay) complain(err error) {
	if !r.complained {
		r.Log.Warn("trouble with the database, trying again", "relay", r.Group.Name, "error", err)
	}
	r.complained = true
}

func (r *Relay) standBy(leader string) {
	r.complained = false
	if r.leader != leader {
		r.Log.Info("another process relays, this one stands by", "relay", r.Group.Name, "leader", leader)
	}
	r.leader = leader
}

// leads works through one term.
func (r *Relay) leads(stop, work context.Context, lead pg.Lead, asked time.Time) {
	if r.leader != r.Owner {
		r.Log.Info("this process relays", "relay", r.Group.Name, "owner", r.Owner)
	}
	r.leader = r.Owner
	t := newTerm(r, stop, work, lead, asked)
	err := t.run()
	if errors.Is(err, pg.ErrLeaseLost) || errors.Is(err, errLapsed) {
		r.leader = ""
		r.Lost()
		r.Log.Warn("the lead of the relay was lost; what was not settled is written again", "relay", r.Group.Name, "error", err)
	} else if err != nil && stop.Err() == nil {
		r.complain(err)
		worker.Pause(stop, rand.N(r.LeaseFor/10)+troubleWait/10)
	}
	if stop.Err() == nil {
		return
	}
	ctx, cancel := worker.Outlast(work, lastWords)
	defer cancel()
	if err := pg.ResignRelay(ctx, r.Pool, lead); err != nil {
		r.Log.Warn("the lead of the relay could not be given back; it ends by itself", "relay", r.Group.Name, "error", err)
	}
}

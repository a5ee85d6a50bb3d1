package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Leadership is the work of a process while it has a lead.
type Leadership interface {
	// Extend keeps the lead. It fails with [pg.ErrLeaseLost] when another process has it, or
	// the epoch has ended: see docs/pipeline.md.
	Extend(ctx context.Context) error
	// Work works until stop or ctx ends. ctx ends when the lead is lost or was not
	// extended in time: nothing may be written after that.
	Work(stop, ctx context.Context) error
	// Release gives the lead back, so that another process has it at once.
	Release(ctx context.Context) error
}

// Lead is the right to work that only one process may do at a time, such as writing a
// log to a broker. The other processes stand by.
type Lead struct {
	// Acquire asks for the lead. It returns nil and the name of the owner when
	// another process has it.
	Acquire func(ctx context.Context) (l Leadership, owner string, err error)

	Owner    string        // the name of this process
	LeaseFor time.Duration // after which another process leads if this one has died
	AskEvery time.Duration // how often to ask for a lead that another process has
	Log      *slog.Logger
	Lost     func() // called when the lead was lost
}

// heldLead is the lead while this process has it.
type heldLead struct {
	Hold
	Leadership
}

// Run leads whenever no other process does, until stop ends. Then it waits for the
// current work, at most until work ends, gives the lead back and returns. It returns an
// error of Acquire that a retry cannot resolve.
func (l *Lead) Run(stop, work context.Context) error {
	asking := Retry{Outages: true, Trouble: &Trouble{Log: l.Log, Message: "cannot ask for the lead yet"}}
	working := &Trouble{Log: l.Log, Message: "cannot work as the leader yet"}
	for owner := ""; stop.Err() == nil; {
		var held *heldLead
		known := owner
		err := asking.Do(stop, func(ctx context.Context) (err error) {
			held, owner, err = l.acquire(ctx, work)
			return err
		})
		switch {
		case err != nil && stop.Err() == nil:
			return err
		case err != nil:
		case held == nil:
			if known != owner {
				l.Log.Info("another process leads, this one stands by", "leader", owner)
			}
			Pause(stop, min(l.AskEvery, l.LeaseFor/3))
		default:
			if owner = l.Owner; known != owner {
				l.Log.Info("this process leads", "owner", owner)
			}
			if !l.lead(stop, work, held, working) {
				owner = ""
			}
		}
	}
	return nil
}

// acquire asks for the lead. It does not stop with ctx, because nothing would give back
// a lead that the database has granted meanwhile.
func (l *Lead) acquire(ctx, work context.Context) (held *heldLead, owner string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.LeaseFor/2, LastWords))
	defer cancel()
	asked := time.Now()
	leadership, owner, err := l.Acquire(ctx)
	if err != nil || leadership == nil {
		return nil, owner, err
	}
	held = &heldLead{Leadership: leadership}
	held.Init(work, asked, l.LeaseFor)
	held.Lapse(l.LeaseFor)
	return held, owner, nil
}

// lead works while this process leads. It returns false if the lead was lost.
func (l *Lead) lead(stop, work context.Context, held *heldLead, trouble *Trouble) bool {
	heartbeat := Heartbeat[*heldLead]{
		Every: l.LeaseFor / 3, Trouble: &Trouble{Log: l.Log, Message: "cannot extend the lead yet"},
		Extend: func(ctx context.Context, held *heldLead) (time.Duration, error) {
			err := held.Extend(ctx)
			if err == nil {
				trouble.Over()
			}
			return l.LeaseFor, err
		},
	}
	heartbeat.Init()
	heartbeat.Add(held)
	var err error
	heartbeat.While(work, func() { err = held.Work(stop, held.Context()) })
	loss := held.loss(err)
	heartbeat.Remove(held)
	if loss != nil {
		l.Lost()
		l.Log.Warn("the lead was lost; work that was not recorded is done again", "error", loss)
	} else if err != nil && stop.Err() == nil {
		trouble.Report(err)
		wait := TroubleWait / 10
		if errors.Is(err, pg.ErrMoved) {
			wait = waitAfter(err)
		}
		Pause(stop, rand.N(l.LeaseFor/10)+wait)
	}
	if stop.Err() != nil {
		l.release(work, held)
	}
	return loss == nil
}

// loss returns the reason why the lead was lost, or nil. After a pause of the whole
// process, any error of the work may be the first sign of it.
func (h *heldLead) loss(err error) error {
	cause := context.Cause(h.Context())
	switch {
	case errors.Is(cause, pg.ErrLeaseLost), errors.Is(cause, ErrLapsed):
		return cause
	case errors.Is(err, pg.ErrLeaseLost):
		return err
	case err != nil && h.Lapsed():
		return fmt.Errorf("%w: %w", ErrLapsed, err)
	}
	return nil
}

func (l *Lead) release(work context.Context, held *heldLead) {
	ctx, cancel := Outlast(work, LastWords)
	defer cancel()
	if err := held.Release(ctx); err != nil {
		l.Log.Warn("the lead could not be given back; it ends by itself", "error", err)
	}
}

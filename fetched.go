package posthorn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// fetched are the leases that the program has to answer. Their heartbeat saves
// answers, and extends nothing.
type fetched struct {
	worker.Heartbeat[*fetchedLease]
	client *Client
	saving worker.Trouble
	begin  sync.Once
	ever   bool // guarded by begin
}

func (f *fetched) init(c *Client) {
	f.client = c
	f.saving = worker.Trouble{Log: c.log, What: "cannot save answers yet"}
	f.Every, f.ExtendAll = saveAfter, f.save
	f.Init()
}

// add begins to save what is answered. The first time it begins the heartbeat,
// which the end of the client ends.
func (f *fetched) add(l *fetchedLease) {
	f.Add(l)
	f.begin.Do(func() {
		f.ever = true
		leave, err := f.client.enter()
		if err != nil {
			return // closing saves it
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-f.client.closing
			cancel()
		}()
		go func() {
			defer leave()
			f.Run(ctx)
		}()
	})
}

func (f *fetched) save(ctx context.Context, leases []*fetchedLease) {
	l := leases[0]
	l.mu.Lock()
	expired := time.Now().After(l.ends)
	l.mu.Unlock()
	err := l.save(ctx)
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.end() // who answers next hears of it
	case err != nil:
		f.saving.Report(err)
	default:
		f.saving.Over()
	}
	if expired {
		f.Forget(l) // others have it: there is nothing to give back
	}
}

// giveBackFetched saves what was answered and gives the rest back, also what was
// taken in calls whose answer never arrived.
func (c *Client) giveBackFetched(ctx context.Context) {
	for _, l := range c.fetched.All() {
		l.giveBack(ctx, 0)
	}
	c.fetched.begin.Do(func() {})
	if !c.fetched.ever {
		return
	}
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	if _, err := pg.ReleaseNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot give events back; they expire", "error", err)
	}
}

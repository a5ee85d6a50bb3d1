package posthorn

import (
	"context"
	"sync"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// fetched are the leases that the program has to answer.
type fetched struct {
	mu     sync.Mutex
	ever   bool
	leases map[*fetchedLease]struct{}
	none   chan struct{} // closed when there are none; made when somebody waits for that
}

func (f *fetched) add(l *fetchedLease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ever = true
	f.leases[l] = struct{}{}
}

func (f *fetched) remove(l *fetchedLease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, l)
	if len(f.leases) == 0 && f.none != nil {
		close(f.none)
		f.none = nil
	}
}

func (f *fetched) all() []*fetchedLease {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*fetchedLease, 0, len(f.leases))
	for l := range f.leases {
		all = append(all, l)
	}
	return all
}

// await returns when everything is answered, or ctx ends.
func (f *fetched) await(ctx context.Context) {
	f.mu.Lock()
	if len(f.leases) == 0 {
		f.mu.Unlock()
		return
	}
	if f.none == nil {
		f.none = make(chan struct{})
	}
	none := f.none
	f.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// giveBackFetched saves what was answered and gives the rest back, also what was
// taken in calls whose answer never arrived.
func (c *Client) giveBackFetched(ctx context.Context) {
	for _, l := range c.fetched.all() {
		l.giveBack(ctx, 0)
	}
	c.fetched.mu.Lock()
	ever := c.fetched.ever
	c.fetched.mu.Unlock()
	if !ever {
		return
	}
	ctx, cancel := consume.Outlast(ctx, lastWords)
	defer cancel()
	if _, err := pg.ReleaseNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot give events back; they expire", "error", err)
	}
}

package archive

import (
	"context"
	"errors"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// held is a stream whose lease is being extended. Its context ends when the lease
// is lost, or could not be extended in time: what is on its way to the store then
// must not arrive after another worker's.
type held struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func hold(ctx context.Context, db pg.DB, stream pg.ArchiveStream, lease time.Duration) *held {
	h := &held{done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	go h.extend(db, stream, lease)
	return h
}

func (h *held) extend(db pg.DB, stream pg.ArchiveStream, lease time.Duration) {
	defer close(h.done)
	ticker := time.NewTicker(lease / 4)
	defer ticker.Stop()
	extended := time.Now()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(h.ctx, lease/4)
		err := pg.ExtendArchiveStream(ctx, db, stream, lease, "")
		cancel()
		switch {
		case err == nil:
			extended = began
		case errors.Is(err, pg.ErrLeaseLost), time.Since(extended) > lease/2:
			h.cancel(err)
			return
		}
	}
}

func (h *held) end() {
	h.cancel(nil)
	<-h.done
}

// pause waits longer each time, until it is reset.
type pause struct {
	least, most, next time.Duration
}

func (p *pause) wait(ctx context.Context, news <-chan struct{}) {
	p.next = min(max(p.next*2, p.least), p.most)
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-news:
	}
}

func (p *pause) reset() { p.next = 0 }

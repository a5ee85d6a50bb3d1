package listen

import (
	"context"
	"io"

	"github.com/posthorn/posthorn/internal/pg"
)

// catchUp reads a batch of events for this listener alone. At the end of the log the
// listener joins the shared read. Few listeners may read at the same time, and each
// waits for that right once per batch: so neither a long replay nor a slow handler
// delays the others for long.
func (l *Listener) catchUp(ctx context.Context) error {
	h := l.hub
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	select {
	case h.replays <- struct{}{}:
	case <-ctx.Done():
		return h.orClosed(ctx.Err())
	}
	defer func() { <-h.replays }()
	fresh := l.clean
	batch, err := pg.ReadLog(ctx, h.Pool, h.Namespace, l.at, batchSize)
	if err != nil {
		return h.orClosed(err)
	}
	l.take(batch)
	switch {
	case !fresh || !batch.AtEnd:
		return nil
	case l.toEnd && len(batch.Events) == 0:
		l.fail(io.EOF)
		return nil
	case l.toEnd:
		return nil
	}
	return h.orClosed(l.join(ctx))
}

// join joins the shared read. The listener reads the events between its own position
// and that of its admission by itself; if those are more than a batch, it leaves the
// shared read.
func (l *Listener) join(ctx context.Context) error {
	joined := false
	a, err := l.hub.admit(ctx, l)
	defer func() {
		if !joined {
			l.hub.leave(l)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if joined {
			l.live = a.reading
		} else {
			l.queue = nil
		}
	}()
	if err != nil {
		return err
	}
	batch, err := pg.ReadBetween(ctx, l.hub.Pool, l.hub.Namespace, l.at, a.position, batchSize)
	if err != nil {
		return err
	}
	l.take(batch)
	joined = batch.AtEnd
	return nil
}

// take keeps the events of a batch that pass the filter.
func (l *Listener) take(batch pg.Batch) {
	var wanted []Item
	for i := range batch.Events {
		if l.filter.passes(&subject{Event: &batch.Events[i]}) {
			wanted = append(wanted, Item{&batch.Events[i], batch.Prefix})
		}
	}
	l.at, l.clean = batch.Next, batch.AtEnd
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil && len(l.replay) == 0 && len(wanted) == 0 {
		l.done = place{text: batch.Next}
	}
	l.replay = append(l.replay, wanted...)
}

// orClosed returns Closed in place of an error that closing the hub has caused.
func (h *Hub) orClosed(err error) error {
	if err != nil && h.ctx.Err() != nil {
		return h.Closed
	}
	return err
}

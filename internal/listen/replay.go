package listen

import (
	"context"

	"github.com/posthorn/posthorn/internal/pg"
)

// catchUp reads some events for this listener alone. When these were all there
// are, it goes on with the others. It is one of a few that read at a time, and the
// next batch is another turn: a long replay holds up nobody, and neither does one
// whose events are dealt with slowly.
func (l *Listener) catchUp(ctx context.Context) error {
	h := l.hub
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		return h.orClosed(ctx.Err())
	}
	defer func() { <-h.turns }()
	fresh := l.clean
	batch, err := pg.ReadLog(ctx, h.Pool, h.Namespace, l.at, batchSize)
	if err != nil {
		return h.orClosed(err)
	}
	l.take(batch)
	if fresh && batch.AtEnd {
		return h.orClosed(l.join(ctx))
	}
	return nil
}

// join goes on with what the hub reads. From where this listener stands to where
// it is let in it reads by itself; should that be long, it leaves again.
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

// take keeps what this listener wants of a batch.
func (l *Listener) take(batch pg.Batch) {
	var wanted []Item
	for i := range batch.Events {
		if l.filter.passes(&subject{Event: &batch.Events[i]}) {
			wanted = append(wanted, Item{&batch.Events[i], batch.Way})
		}
	}
	l.at, l.clean = batch.Next, batch.AtEnd
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hand == nil && len(l.replay) == 0 && len(wanted) == 0 {
		l.done = place{text: batch.Next}
	}
	l.replay = append(l.replay, wanted...)
}

// orClosed says why it really failed.
func (h *Hub) orClosed(err error) error {
	if err != nil && h.ctx.Err() != nil {
		return h.Closed
	}
	return err
}

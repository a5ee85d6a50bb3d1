package posthorn

import (
	"context"
	"errors"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// run writes until the publisher or its client is closed and nothing is left.
func (p *Publisher) run() {
	defer close(p.ended)
	for {
		batch, wait, over := p.next()
		switch {
		case over:
			return
		case len(batch) > 0:
			p.write(batch)
			p.mu.Lock()
			p.release(batch...)
			p.mu.Unlock()
			continue
		}
		p.sleep(wait)
	}
}

// sleep waits for work, for as long as it says; 0 is for ever.
func (p *Publisher) sleep(wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-p.work:
	case <-due:
	case <-p.client.closing:
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
	}
}

// next cuts a batch from the queue, or says how long to wait for it to fill, or
// that all is over.
func (p *Publisher) next() (batch []*posting, wait time.Duration, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil, 0, p.closed
	}
	n, full := p.cut()
	if !full && !p.closed {
		if wait := p.config.MaxWait - time.Since(p.queue[0].since); wait > 0 {
			return nil, wait, false
		}
	}
	batch = p.queue[:n:n]
	p.queue = p.queue[n:]
	for _, posted := range batch {
		posted.taken = true
	}
	return batch, 0, false
}

// cut finds where the next batch ends, and whether nothing more fits into it.
// Special messages are not mixed with others, whose payloads would be rewritten.
func (p *Publisher) cut() (n int, full bool) {
	count, bytes := 0, 0
	for i, posted := range p.queue {
		count += len(posted.messages)
		bytes += posted.bytes
		if i > 0 && (count > p.config.MaxBatch || bytes > maxBatchBytes || posted.special != p.queue[0].special) {
			return i, true
		}
	}
	return len(p.queue), count >= p.config.MaxBatch || bytes >= maxBatchBytes
}

// write publishes a batch. Of one that is refused it finds out whose fault it is,
// by halves.
func (p *Publisher) write(batch []*posting) {
	ids, err := p.send(batch)
	if err != nil && len(batch) > 1 && isRefused(err) {
		half := len(batch) / 2
		p.write(batch[:half])
		p.write(batch[half:])
		return
	}
	for _, posted := range batch {
		if err != nil {
			posted.done(nil, err)
			continue
		}
		n := len(posted.messages)
		posted.done(ids[:n:n], nil)
		ids = ids[n:]
	}
}

// sendAgain is how often a batch is sent that has collided with somebody else's
// dedup keys.
const sendAgain = 5

func (p *Publisher) send(batch []*posting) (ids []int64, err error) {
	messages := messagesOf(batch)
	ctx, cancel := context.WithTimeout(context.Background(), sendFor)
	defer cancel()
	watched := p.client.telemetry.Writing(ctx, messages)
	for range sendAgain {
		ids, err = p.client.send(ctx, p.client.control, messages)
		if p.client.box.Stale(p.client.namespace, messages, err) && p.sealAgain(ctx, batch) == nil {
			messages = messagesOf(batch)
			ids, err = p.client.send(ctx, p.client.control, messages)
		}
		if !hasCollided(err) {
			break
		}
	}
	watched.End(ids, true, err)
	if err == nil {
		p.client.watch.Published()
	}
	return ids, err
}

func messagesOf(batch []*posting) []pg.Message {
	var messages []pg.Message
	for _, posted := range batch {
		messages = append(messages, posted.messages...)
	}
	return messages
}

// sealAgain is for messages whose streams have other policies or keys by now.
func (p *Publisher) sealAgain(ctx context.Context, batch []*posting) error {
	for _, posted := range batch {
		sealed, err := p.client.box.Seal(ctx, p.client.namespace, posted.plain)
		if err != nil {
			return err
		}
		posted.messages = sealed
	}
	return nil
}

// isRefused reports whether it is the messages that are wrong, and nothing of
// the batch is written.
func isRefused(err error) bool {
	return errors.Is(err, ErrInvalid) || pg.IsPlaintext(err) || pg.IsWrongKey(err) || sqlClass(err) == "22"
}

func hasCollided(err error) bool { return sqlClass(err) == "40" }

// sqlClass is the class of an error of the database, or "".
func sqlClass(err error) string {
	coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok || len(coded.SQLState()) != 5 {
		return ""
	}
	return coded.SQLState()[:2]
}

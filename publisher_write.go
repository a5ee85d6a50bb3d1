package posthorn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
)

// mostOnTheWay bounds the batches that are written at the same time.
const mostOnTheWay = 2

// flight is a batch that is written beside others. They are written in order: a batch begins
// when the one before has drawn its ids, and commits when that one is committed. If that one
// fails, it is rolled back.
type flight struct {
	batch    []*submission
	messages []pg.Message
	drawn    chan struct{} // closed when the ids are drawn, or the batch has ended
	done     chan struct{} // closed when the batch has ended
	ids      []int64
	err      error
}

// run writes batches until the publisher or its client is closed and the queue is empty.
func (p *Publisher) run() {
	defer close(p.ended)
	var flying []*flight // oldest first
	closing := p.client.closing
	for {
		flying = p.land(flying)
		var due <-chan time.Time
		blocked, oldest := progressOf(flying)
		if blocked == nil {
			batch, wait, ended := p.next(len(flying) > 0)
			switch {
			case len(batch) > 0 && p.mayFly(batch):
				flying = append(flying, p.begin(batch, flying))
				continue
			case len(batch) > 0:
				p.write(batch)
				p.free(batch)
				continue
			case ended && len(flying) == 0:
				return
			case wait > 0:
				due = time.After(wait)
			}
		}
		select {
		case <-p.wake:
		case <-due:
		case <-blocked:
		case <-oldest:
		case <-closing:
			closing = nil
			p.refuse()
		}
	}
}

// progressOf returns a channel that is closed when another batch may begin, or nil if it may
// begin now; and one that is closed when the oldest batch has ended.
func progressOf(flying []*flight) (blocked, oldest <-chan struct{}) {
	if len(flying) == 0 {
		return nil, nil
	}
	oldest, drawn := flying[0].done, flying[len(flying)-1].drawn
	switch {
	case len(flying) == mostOnTheWay:
		return oldest, oldest
	case isClosed(drawn):
		return nil, oldest
	}
	return drawn, oldest
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mayFly reports whether a batch can be written beside others. Ids are announced only to
// direct connections and for messages that are neither delayed nor have dedup keys.
func (p *Publisher) mayFly(batch []*submission) bool {
	return p.client.control.Direct() && !batch[0].special && (len(batch) > 1 || len(batch[0].messages) > 1)
}

// begin begins to write a batch, after those that are on their way.
func (p *Publisher) begin(batch []*submission, flying []*flight) *flight {
	f := &flight{batch: batch, messages: messagesOf(p.spare, batch), drawn: make(chan struct{}), done: make(chan struct{})}
	p.spare = nil
	turn := pg.Turn{Drawn: sync.OnceFunc(func() { close(f.drawn) })}
	if len(flying) > 0 {
		before := flying[len(flying)-1]
		turn.MayCommit = func() bool {
			<-before.done
			return before.err == nil
		}
	}
	go func() {
		defer close(f.done)
		defer turn.Drawn()
		f.ids, f.err = p.sendInTurn(f.messages, turn)
	}()
	return f
}

func (p *Publisher) sendInTurn(messages []pg.Message, turn pg.Turn) ([]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	span := p.client.telemetry.Writing(ctx, messages)
	ids, err := p.client.control.PublishInTurn(ctx, p.client.namespace, messages, turn)
	span.End(ids, !errors.Is(err, pg.ErrOvertaken), err)
	if err == nil {
		p.client.logWatch.Announce(logwatch.Events)
	}
	return ids, err
}

// land reports the results of batches that have ended, and returns those on their way. After
// a failure it waits until the later batches are rolled back, and writes them again.
func (p *Publisher) land(flying []*flight) []*flight {
	for len(flying) > 0 && isClosed(flying[0].done) {
		landed := 1
		if flying[0].err != nil {
			landed = len(flying)
		}
		for _, f := range flying[:landed] {
			<-f.done
		}
		for _, f := range flying[:landed] {
			p.conclude(f)
			p.free(f.batch)
			clear(f.messages)
			p.spare = f.messages[:0]
		}
		flying = flying[landed:]
	}
	return flying
}

// conclude reports the results of a batch. It writes the batch again if another attempt may
// go better.
func (p *Publisher) conclude(f *flight) {
	if errors.Is(f.err, pg.ErrOvertaken) || hasCollided(f.err) || p.client.box.Stale(p.client.namespace, f.messages, f.err) {
		p.write(f.batch)
		return
	}
	p.report(f.batch, f.ids, f.err)
}

// refuse refuses further submissions.
func (p *Publisher) refuse() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}

func (p *Publisher) free(batch []*submission) {
	p.mu.Lock()
	p.release(batch...)
	p.mu.Unlock()
}

// write publishes a batch while no other one is on its way.
func (p *Publisher) write(batch []*submission) {
	ids, err := p.send(batch)
	p.report(batch, ids, err)
}

// report ends the submissions of a batch. It halves a batch that is refused and writes the
// halves, so that an invalid message fails only its own submission.
func (p *Publisher) report(batch []*submission, ids []int64, err error) {
	if err != nil && len(batch) > 1 && isRefused(err) {
		half := len(batch) / 2
		p.write(batch[:half])
		p.write(batch[half:])
		return
	}
	for _, submitted := range batch {
		n := len(submitted.messages)
		switch {
		case err == nil && submitted.done != nil:
			submitted.done(ids[0], nil)
		case err == nil:
			submitted.results <- published{ids: ids[:n:n]}
		case submitted.done != nil:
			submitted.done(0, err)
		default:
			submitted.results <- published{err: err}
		}
		ids = ids[min(n, len(ids)):]
	}
}

// sendAttempts bounds the attempts for a batch that collides with other transactions,
// which use the same dedup keys.
const sendAttempts = 5

func (p *Publisher) send(batch []*submission) (ids []int64, err error) {
	messages := messagesOf(nil, batch)
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	span := p.client.telemetry.Writing(ctx, messages)
	for range sendAttempts {
		ids, err = p.client.send(ctx, p.client.control, messages)
		if p.client.box.Stale(p.client.namespace, messages, err) && p.reseal(ctx, batch) == nil {
			messages = messagesOf(nil, batch)
			ids, err = p.client.send(ctx, p.client.control, messages)
		}
		if !hasCollided(err) {
			break
		}
	}
	span.End(ids, true, err)
	if err == nil {
		p.client.logWatch.Announce(logwatch.Events)
	}
	return ids, err
}

// messagesOf appends the messages of a batch to messages, which is empty.
func messagesOf(messages []pg.Message, batch []*submission) []pg.Message {
	n := 0
	for _, submitted := range batch {
		n += len(submitted.messages)
	}
	messages = slices.Grow(messages, n)
	for _, submitted := range batch {
		messages = append(messages, submitted.messages...)
	}
	return messages
}

// reseal seals the messages of a batch again, after a policy or key of a stream has changed.
func (p *Publisher) reseal(ctx context.Context, batch []*submission) error {
	for _, submitted := range batch {
		sealed, err := p.client.box.Seal(ctx, p.client.namespace, submitted.plain)
		if err != nil {
			return err
		}
		submitted.messages = sealed
	}
	return nil
}

// isRefused reports whether an error is caused by the messages and not by the database.
func isRefused(err error) bool {
	return errors.Is(err, ErrInvalid) || pg.IsPlaintext(err) || pg.IsWrongKey(err) || sqlClass(err) == "22"
}

func hasCollided(err error) bool { return sqlClass(err) == "40" }

// sqlClass returns the class of the SQLSTATE of an error, or "".
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

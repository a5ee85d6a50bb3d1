package posthorn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// PublisherConfig says how a [Publisher] gathers messages. The zero value is
// sound.
type PublisherConfig struct {
	// MaxBatch is how many messages are written at once. Default: 1000.
	MaxBatch int
	// MaxWait is how long a message may wait for others to be written with it.
	// Default: not at all. Messages still gather while a batch is being written,
	// so batches grow with the load; waiting pays only where the database is far
	// or busy.
	MaxWait time.Duration
	// MaxPending is how many messages may be unwritten. Who publishes more waits
	// until there is room. More of them use memory, not more speed. Default:
	// 10000. Together they are also held to about 64 MiB.
	MaxPending int
}

const (
	maxBatchBytes   = 8 << 20
	maxPendingBytes = 64 << 20
	sendFor         = time.Minute // then the database is taken for gone
)

// Publisher writes messages in batches, for high rates outside of transactions.
// It writes one batch at a time, so messages keep the order in which they were
// given to it. It is safe for use by any number of goroutines.
type Publisher struct {
	client *Client
	config PublisherConfig

	mu      sync.Mutex
	queue   []*posting
	pending int           // messages in the queue or on their way
	bytes   int           // of them
	closed  bool          // nothing more is taken
	work    chan struct{} // receives when the queue or closed has changed
	room    chan struct{} // closed and made anew when something was written
	ended   chan struct{} // closed when all is written
}

// posting is what was published in one call: it is written as a whole or not.
type posting struct {
	messages []pg.Message
	plain    []pg.Message // the same before sealing
	bytes    int
	special  bool // delayed, or with a dedup key
	taken    bool // it is on its way
	since    time.Time
	done     func(ids []int64, err error)
}

// Publisher returns a publisher, to be closed in the end; closing the client
// closes it too.
func (c *Client) Publisher(config PublisherConfig) *Publisher {
	p := &Publisher{
		client: c,
		config: config,
		work:   make(chan struct{}, 1),
		room:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	if config.MaxBatch <= 0 {
		p.config.MaxBatch = 1000
	}
	if config.MaxPending <= 0 {
		p.config.MaxPending = 10_000
	}
	leave, err := c.enter()
	if err != nil {
		p.closed = true
		close(p.ended)
		return p
	}
	go func() {
		defer leave()
		p.run()
	}()
	return p
}

// Publish writes messages and returns the ids of their events when they are
// committed: all of them or, with an error, none. What others give to the same
// publisher does not fail them.
//
// When ctx ends while they are being written, they may be written all the same;
// a [Message].DedupKey makes it safe to publish them again.
func (p *Publisher) Publish(ctx context.Context, messages ...Message) ([]int64, error) {
	type result struct {
		ids []int64
		err error
	}
	if len(messages) == 0 {
		return nil, nil
	}
	results := make(chan result, 1)
	posted, err := p.post(ctx, messages, func(ids []int64, err error) { results <- result{ids, err} })
	if err != nil {
		return nil, err
	}
	select {
	case r := <-results:
		return r.ids, r.err
	case <-ctx.Done():
	}
	if p.withdraw(posted) {
		return nil, fmt.Errorf("publish: %w", ctx.Err())
	}
	select {
	case r := <-results:
		return r.ids, r.err
	default:
		return nil, fmt.Errorf("publish: it is on its way and may be written yet: %w", ctx.Err())
	}
}

// PublishAsync publishes a message without waiting for it to be written, only for
// room while there are MaxPending. What became of it done is told, exactly once:
// the id of the event, or an error. It runs where batches are written, so it must
// not block. When PublishAsync itself returns an error, such as of a payload that
// cannot be encoded, done is not called.
func (p *Publisher) PublishAsync(ctx context.Context, message Message, done func(id int64, err error)) error {
	_, err := p.post(ctx, []Message{message}, func(ids []int64, err error) {
		switch {
		case done == nil && err != nil:
			p.client.log.Error("an event was not published", "type", message.Type, "error", err)
		case done == nil:
		case err != nil:
			done(0, err)
		default:
			done(ids[0], nil)
		}
	})
	return err
}

// Close returns when everything given to the publisher is written, or has failed.
// Publishing fails with [ErrClosed] from then on.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
	<-p.ended
}

// post queues messages, when there is room.
func (p *Publisher) post(ctx context.Context, messages []Message, done func([]int64, error)) (*posting, error) {
	encoded, err := p.client.encode(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	// Here, and not where batches are written: a keeper that is away holds up only those who need it.
	sealed, err := p.client.box.Seal(ctx, p.client.namespace, encoded)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	posted := &posting{messages: sealed, plain: encoded, done: done, since: time.Now()}
	for i := range sealed {
		m := &sealed[i]
		posted.bytes += len(m.Payload) + len(m.Metadata)
		posted.special = posted.special || m.DeliverAt != nil || m.DedupKey != ""
	}
	for {
		room, err := p.tryPost(posted)
		if err != nil || room == nil {
			return posted, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return nil, fmt.Errorf("publish: no room among those that wait: %w", ctx.Err())
		}
	}
}

// tryPost returns what to wait for if there is no room. What is larger than all
// the room there is goes alone.
func (p *Publisher) tryPost(posted *posting) (room <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(posted.messages)
	switch {
	case p.closed:
		return nil, fmt.Errorf("publish: publisher %w", ErrClosed)
	case p.pending > 0 && (p.pending+n > p.config.MaxPending || p.bytes+posted.bytes > maxPendingBytes):
		return p.room, nil
	}
	p.pending += n
	p.bytes += posted.bytes
	p.queue = append(p.queue, posted)
	p.signal()
	return nil, nil
}

func (p *Publisher) signal() {
	select {
	case p.work <- struct{}{}:
	default: // it looks anyway
	}
}

// withdraw takes back what is not on its way yet.
func (p *Publisher) withdraw(posted *posting) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if posted.taken {
		return false
	}
	for i, other := range p.queue {
		if other == posted {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			break
		}
	}
	p.release(posted)
	return true
}

// release makes room. The caller holds the lock.
func (p *Publisher) release(written ...*posting) {
	for _, posted := range written {
		p.pending -= len(posted.messages)
		p.bytes -= posted.bytes
	}
	close(p.room)
	p.room = make(chan struct{})
}

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

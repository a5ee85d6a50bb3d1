package posthorn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
)

// PublisherConfig configures a [Publisher]. The zero value is a sound default.
type PublisherConfig struct {
	// MaxBatch bounds the messages of one batch. Default: 1000.
	MaxBatch int
	// MaxWait is how long a message may wait for others in its batch. Default: none.
	// Messages also gather while another batch is written, so batches grow with the
	// load. Waiting helps only if the database is remote or busy.
	MaxWait time.Duration
	// MaxPending bounds the messages that are not written yet. At the limit, publishing
	// waits. More pending messages use more memory and are not faster. Default: 10000.
	// Independently of it, pending messages are limited to about 64 MiB.
	MaxPending int
}

const (
	maxBatchBytes   = 8 << 20
	maxPendingBytes = 64 << 20
	sendTimeout     = time.Minute
)

// Publisher writes messages in batches, for high rates outside of transactions. It
// writes one batch at a time, so messages keep the order in which they were published.
// It is safe for use by any number of goroutines.
type Publisher struct {
	client *Client
	config PublisherConfig

	mu      sync.Mutex
	queue   []*submission
	pending int           // messages in the queue and in the batch that is being written
	bytes   int           // of the pending messages
	closed  bool          // submissions are refused
	wake    chan struct{} // receives when queue or closed has changed
	room    chan struct{} // closed and replaced when a batch was written
	ended   chan struct{} // closed when all submissions are written
}

// submission is the messages of one call. All of them are written, or none.
type submission struct {
	messages []pg.Message
	plain    []pg.Message // before sealing
	bytes    int
	special  bool // a message is delayed or has a dedup key
	taken    bool // it is part of the batch that is being written
	since    time.Time
	done     func(ids []int64, err error)
}

// Publisher starts a publisher. Close it when it is no longer needed; closing the client
// closes it too.
func (c *Client) Publisher(config PublisherConfig) *Publisher {
	p := &Publisher{
		client: c,
		config: config,
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	if config.MaxBatch <= 0 {
		p.config.MaxBatch = 1000
	}
	if config.MaxPending <= 0 {
		p.config.MaxPending = 10_000
	}
	endCall, err := c.beginCall()
	if err != nil {
		p.closed = true
		close(p.ended)
		return p
	}
	go func() {
		defer endCall()
		p.run()
	}()
	return p
}

// Publish returns the ids of the events when they are committed. With an error none of
// the messages is written. Other messages of the batch do not affect the result.
//
// If ctx ends while the messages are being written, they may still be written. With a
// [Message].DedupKey it is safe to publish them again.
func (p *Publisher) Publish(ctx context.Context, messages ...Message) ([]int64, error) {
	type result struct {
		ids []int64
		err error
	}
	if len(messages) == 0 {
		return nil, nil
	}
	results := make(chan result, 1)
	submitted, err := p.submit(ctx, messages, func(ids []int64, err error) { results <- result{ids, err} })
	if err != nil {
		return nil, err
	}
	select {
	case r := <-results:
		return r.ids, r.err
	case <-ctx.Done():
	}
	if p.withdraw(submitted) {
		return nil, fmt.Errorf("publish: %w", ctx.Err())
	}
	select {
	case r := <-results:
		return r.ids, r.err
	default:
		return nil, fmt.Errorf("publish: the messages may still be written: %w", ctx.Err())
	}
}

// PublishAsync publishes a message and does not wait until it is written; it waits only
// while MaxPending messages are pending. Then done is called once, with the id of the
// event or with an error. It must not block, since it runs in the goroutine that writes
// batches. If PublishAsync itself returns an error, such as for a payload that cannot be
// encoded, done is not called. With a nil done, errors are logged.
func (p *Publisher) PublishAsync(ctx context.Context, message Message, done func(id int64, err error)) error {
	_, err := p.submit(ctx, []Message{message}, func(ids []int64, err error) {
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

// Close waits until all pending messages are written or have failed. After it, publishing
// fails with [ErrClosed].
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
	<-p.ended
}

// submit queues messages as soon as there is room.
func (p *Publisher) submit(ctx context.Context, messages []Message, done func([]int64, error)) (*submission, error) {
	encoded, err := p.client.encode(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	// Sealing waits for a keeper, so it happens in the caller's goroutine: an unavailable
	// keeper delays only the callers that need it.
	sealed, err := p.client.box.Seal(ctx, p.client.namespace, encoded)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	submitted := &submission{messages: sealed, plain: encoded, done: done, since: time.Now()}
	for i := range sealed {
		m := &sealed[i]
		submitted.bytes += len(m.Payload) + len(m.Metadata)
		submitted.special = submitted.special || m.DeliverAt != nil || m.DedupKey != ""
	}
	for {
		room, err := p.trySubmit(submitted)
		if err != nil || room == nil {
			return submitted, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return nil, fmt.Errorf("publish: waiting for pending messages: %w", ctx.Err())
		}
	}
}

// trySubmit returns a channel to wait for if there is no room. A submission that is
// larger than the limit is queued when nothing else is pending.
func (p *Publisher) trySubmit(submitted *submission) (room <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(submitted.messages)
	switch {
	case p.closed:
		return nil, fmt.Errorf("publish: publisher %w", ErrClosed)
	case p.pending > 0 && (p.pending+n > p.config.MaxPending || p.bytes+submitted.bytes > maxPendingBytes):
		return p.room, nil
	}
	p.pending += n
	p.bytes += submitted.bytes
	p.queue = append(p.queue, submitted)
	p.signal()
	return nil, nil
}

func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // run is woken already
	}
}

// withdraw removes a submission from the queue. It returns false if the submission was taken.
func (p *Publisher) withdraw(submitted *submission) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if submitted.taken {
		return false
	}
	for i, other := range p.queue {
		if other == submitted {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			break
		}
	}
	p.release(submitted)
	return true
}

// release makes room for other submissions. The caller holds the lock.
func (p *Publisher) release(written ...*submission) {
	for _, submitted := range written {
		p.pending -= len(submitted.messages)
		p.bytes -= submitted.bytes
	}
	close(p.room)
	p.room = make(chan struct{})
}

// run writes batches until the publisher or its client is closed and the queue is empty.
func (p *Publisher) run() {
	defer close(p.ended)
	for {
		batch, wait, ended := p.next()
		switch {
		case ended:
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

// sleep waits for a submission or for closing, and at most for wait; 0 is no limit.
func (p *Publisher) sleep(wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-p.wake:
	case <-due:
	case <-p.client.closing:
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
	}
}

// next removes a batch from the queue, or returns how long to wait until the batch is
// due. It reports whether the publisher has ended.
func (p *Publisher) next() (batch []*submission, wait time.Duration, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil, 0, p.closed
	}
	n, full := p.batchSize()
	if !full && !p.closed {
		if wait := p.config.MaxWait - time.Since(p.queue[0].since); wait > 0 {
			return nil, wait, false
		}
	}
	batch = p.queue[:n:n]
	p.queue = p.queue[n:]
	for _, submitted := range batch {
		submitted.taken = true
	}
	return batch, 0, false
}

// batchSize returns how many submissions at the head of the queue are the next batch, and
// whether the batch is full. Special submissions get batches of their own: Postgres
// rewrites the JSON of all payloads in a statement that has one.
func (p *Publisher) batchSize() (n int, full bool) {
	count, bytes := 0, 0
	for i, submitted := range p.queue {
		count += len(submitted.messages)
		bytes += submitted.bytes
		if i > 0 && (count > p.config.MaxBatch || bytes > maxBatchBytes || submitted.special != p.queue[0].special) {
			return i, true
		}
	}
	return len(p.queue), count >= p.config.MaxBatch || bytes >= maxBatchBytes
}

// write publishes a batch. It halves a batch that is refused, so that an invalid message
// fails only its own submission.
func (p *Publisher) write(batch []*submission) {
	ids, err := p.send(batch)
	if err != nil && len(batch) > 1 && isRefused(err) {
		half := len(batch) / 2
		p.write(batch[:half])
		p.write(batch[half:])
		return
	}
	for _, submitted := range batch {
		if err != nil {
			submitted.done(nil, err)
			continue
		}
		n := len(submitted.messages)
		submitted.done(ids[:n:n], nil)
		ids = ids[n:]
	}
}

// sendAttempts bounds the attempts for a batch that collides with other transactions,
// which use the same dedup keys.
const sendAttempts = 5

func (p *Publisher) send(batch []*submission) (ids []int64, err error) {
	messages := messagesOf(batch)
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	span := p.client.telemetry.Writing(ctx, messages)
	for range sendAttempts {
		ids, err = p.client.send(ctx, p.client.control, messages)
		if p.client.box.Stale(p.client.namespace, messages, err) && p.reseal(ctx, batch) == nil {
			messages = messagesOf(batch)
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

func messagesOf(batch []*submission) []pg.Message {
	var messages []pg.Message
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

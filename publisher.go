package posthorn

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// Publisher writes messages in batches, for high rates outside of transactions. Messages
// keep the order in which they were published: their ids rise, and no reader sees a message
// before an earlier one. It is safe for use by any number of goroutines.
type Publisher struct {
	client *Client
	config PublisherConfig

	mu      sync.Mutex
	queue   []*submission
	pending int           // messages in the queue and in the batches that are being written
	bytes   int           // of the pending messages
	closed  bool          // submissions are refused
	wake    chan struct{} // receives when queue or closed has changed
	room    chan struct{} // closed and replaced when a batch was written
	ended   chan struct{} // closed when all submissions are written
	spare   []pg.Message  // memory for the next batch; of run
}

// submission is the messages of one call. All of them are written, or none.
type submission struct {
	messages []pg.Message
	plain    []pg.Message // before sealing
	bytes    int
	special  bool // a message is delayed or has a dedup key
	taken    bool // it is part of a batch that is being written
	since    time.Time

	results chan published            // for Publish
	done    func(id int64, err error) // for PublishAsync
	single  [1]pg.Message             // the memory of a single message
}

// published is the result of a submission.
type published struct {
	ids []int64
	err error
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
// the messages is written, except after [ErrUnconfirmed]. Other messages of the batch do not affect the result.
//
// If ctx ends while the messages are being written, they may still be written. With a
// [Message].DedupKey it is safe to publish them again.
func (p *Publisher) Publish(ctx context.Context, messages ...Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	submitted := &submission{results: make(chan published, 1)}
	if err := p.submit(ctx, submitted, messages); err != nil {
		return nil, err
	}
	select {
	case r := <-submitted.results:
		return r.ids, r.err
	case <-ctx.Done():
	}
	if p.withdraw(submitted) {
		return nil, fmt.Errorf("publish: %w", ctx.Err())
	}
	select {
	case r := <-submitted.results:
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
	if done == nil {
		done = func(_ int64, err error) {
			if err != nil {
				p.client.log.Error("an event was not published", "type", message.Type, "error", err)
			}
		}
	}
	return p.submit(ctx, &submission{done: done}, []Message{message})
}

// Close waits until all pending messages are written or have failed. After it, publishing
// fails with [ErrClosed].
func (p *Publisher) Close() {
	p.refuse()
	p.signal()
	<-p.ended
}

// submit queues messages as soon as there is room.
func (p *Publisher) submit(ctx context.Context, submitted *submission, messages []Message) error {
	encoded := submitted.single[:]
	if len(messages) != 1 {
		encoded = make([]pg.Message, len(messages))
	}
	if err := p.client.encodeInto(ctx, encoded, messages); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	// Sealing waits for a keeper, so it happens in the caller's goroutine: an unavailable
	// keeper delays only the callers that need it.
	sealed, err := p.client.box.Seal(ctx, p.client.namespace, encoded)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	submitted.messages, submitted.plain = sealed, encoded
	if p.config.MaxWait > 0 {
		submitted.since = time.Now()
	}
	for i := range sealed {
		m := &sealed[i]
		submitted.bytes += len(m.Payload) + len(m.Metadata)
		submitted.special = submitted.special || m.DeliverAt != nil || m.DedupKey != ""
	}
	for {
		room, err := p.trySubmit(submitted)
		if err != nil || room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("publish: waiting for pending messages: %w", ctx.Err())
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

// next removes a batch from the queue, or returns how long to wait until the batch is
// due. Beside a batch that is being written, only a full batch is due: others gather. next
// reports whether the publisher has ended.
func (p *Publisher) next(beside bool) (batch []*submission, wait time.Duration, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil, 0, p.closed
	}
	n, full := p.batchSize()
	if beside && (!full || p.queue[0].special) {
		return nil, 0, false
	}
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

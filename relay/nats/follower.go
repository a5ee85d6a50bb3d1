package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
)

// follower receives the messages of a stream through an ephemeral consumer, which the
// server deletes when it is not used for a while. The follower buffers the messages
// until they are read.
type follower struct {
	source   *Source
	stream   string
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	ended    chan struct{}

	mu       sync.Mutex
	notFull  sync.Cond
	entries  []posthorn.SourceEntry
	position uint64        // of the last entry that was taken
	arrived  chan struct{} // notified when an entry arrives or the follower fails
	used     time.Time     // when the follower was last read
	stopped  bool
	err      error
}

const (
	bufferEntries = 2000    // entries in the buffer of a follower
	requestBytes  = 8 << 20 // size of the messages that one request asks for
	heartbeat     = 5 * time.Second
)

// start starts a follower that begins after a position.
func (s *Source) start(ctx context.Context, stream string, position uint64, arrived chan struct{}) (*follower, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	consumer, err := s.js.CreateConsumer(ctx, s.names.stream(stream), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleTimeout,
	})
	if err != nil {
		return nil, err
	}
	bytes := max(requestBytes, 2*int(s.conn.MaxPayload())) // the largest message must fit
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(bufferEntries, bytes), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return nil, err
	}
	f := &follower{
		source: s, stream: stream, consumer: consumer, messages: messages, ended: make(chan struct{}),
		position: position, arrived: arrived, used: time.Now(),
	}
	f.notFull.L = &f.mu
	go f.run(position)
	return f, nil
}

// run receives messages until the follower is stopped or fails. last is the sequence
// before the first message.
func (f *follower) run(last uint64) {
	defer close(f.ended)
	defer f.messages.Stop()
	for next := uint64(1); ; next++ {
		m, err := f.messages.Next()
		if err != nil {
			f.fail(err)
			return
		}
		meta, err := m.Metadata()
		if err == nil && meta.Sequence.Consumer != next {
			err = fmt.Errorf("a message was lost in transit: received message %d of the consumer instead of %d", meta.Sequence.Consumer, next)
		}
		if err != nil {
			f.fail(err)
			return
		}
		// A gap in the sequences means that messages were removed. Messages that were removed
		// before the import read the stream for the first time are not reported.
		if before := meta.Sequence.Stream - 1; last != 0 && before != last &&
			!f.put(posthorn.SourceEntry{Stream: f.stream, Position: strconv.FormatUint(before, 10), Err: posthorn.ErrTrimmed}) {
			return
		}
		last = meta.Sequence.Stream
		if !f.put(decode(f.stream, strconv.FormatUint(last, 10), m.Headers(), m.Data())) {
			return
		}
	}
}

// put appends an entry to the buffer. It waits while the buffer is full, and returns
// false if the follower has failed.
func (f *follower) put(entry posthorn.SourceEntry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.entries) >= bufferEntries && f.err == nil {
		f.notFull.Wait()
	}
	if f.err != nil {
		return false
	}
	f.entries = append(f.entries, entry)
	if len(f.entries) == 1 {
		f.notify()
	}
	return true
}

func (f *follower) notify() {
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// continues reports whether the next entry of the follower is the one after a position.
// From now on the follower notifies the channel arrived.
func (f *follower) continues(position uint64, arrived chan struct{}) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived, f.used = arrived, time.Now()
	return f.position == position && (f.err == nil || len(f.entries) > 0)
}

// take moves up to limit entries from the buffer to the end of entries.
func (f *follower) take(entries []posthorn.SourceEntry, limit int) []posthorn.SourceEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(limit, len(f.entries))
	if n <= 0 {
		return entries
	}
	entries = append(entries, f.entries[:n]...)
	f.position, _ = strconv.ParseUint(f.entries[n-1].Position, 10, 64)
	if f.entries = f.entries[n:]; len(f.entries) == 0 {
		f.entries = nil
	}
	f.notFull.Signal()
	return entries
}

// failure returns the error of a follower that has failed.
func (f *follower) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("read stream %q of nats: %w", f.stream, f.err)
}

func (f *follower) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.used) > idleTimeout
}

func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.notFull.Signal()
	f.notify()
}

// stop stops the follower and deletes its consumer.
func (f *follower) stop() {
	f.mu.Lock()
	first := !f.stopped
	f.stopped = true
	f.mu.Unlock()
	if !first {
		return
	}
	f.fail(errors.New("stopped"))
	f.messages.Stop()
	// stop does not wait for the reply: if the request is lost, the server deletes the
	// idle consumer later.
	_ = f.source.conn.Publish("$JS.API.CONSUMER.DELETE."+f.source.names.stream(f.stream)+"."+f.consumer.CachedInfo().Name, nil)
}

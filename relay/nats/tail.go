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

// tail follows a stream: an ephemeral consumer, in the memory of one server, that
// the server forgets when nobody has asked for a while. What it has sent waits
// here until it is read.
type tail struct {
	source   *Source
	stream   string
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	ended    chan struct{}

	mu       sync.Mutex
	roomy    sync.Cond
	entries  []posthorn.SourceEntry
	position uint64 // of the last entry that was taken
	news     chan struct{}
	used     time.Time
	stopped  bool
	err      error
}

const (
	ahead      = 2000    // entries that wait
	aheadBytes = 8 << 20 // of messages asked for at a time
	beat       = 5 * time.Second
)

// start follows a stream from behind a position on.
func (s *Source) start(ctx context.Context, stream string, position uint64, news chan struct{}) (*tail, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	consumer, err := s.js.CreateConsumer(ctx, s.names.stream(stream), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleFor,
	})
	if err != nil {
		return nil, err
	}
	bytes := max(aheadBytes, 2*int(s.conn.MaxPayload())) // one message at least
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(ahead, bytes), jetstream.PullHeartbeat(beat))
	if err != nil {
		return nil, err
	}
	t := &tail{
		source: s, stream: stream, consumer: consumer, messages: messages, ended: make(chan struct{}),
		position: position, news: news, used: time.Now(),
	}
	t.roomy.L = &t.mu
	go t.run(position)
	return t, nil
}

// run receives what comes after a sequence, until the tail is stopped, or something
// is amiss.
func (t *tail) run(last uint64) {
	defer close(t.ended)
	defer t.messages.Stop()
	for next := uint64(1); ; next++ {
		m, err := t.messages.Next()
		if err != nil {
			t.fail(err)
			return
		}
		meta, err := m.Metadata()
		if err == nil && meta.Sequence.Consumer != next {
			err = fmt.Errorf("a message was lost on the way: %d came instead of %d", meta.Sequence.Consumer, next)
		}
		if err != nil {
			t.fail(err)
			return
		}
		// Sequences have no gaps but where messages were removed. What was removed before
		// the first reading is not missed.
		if before := meta.Sequence.Stream - 1; last != 0 && before != last &&
			!t.put(posthorn.SourceEntry{Stream: t.stream, Position: strconv.FormatUint(before, 10), Err: posthorn.ErrTrimmed}) {
			return
		}
		last = meta.Sequence.Stream
		if !t.put(decode(t.stream, strconv.FormatUint(last, 10), m.Headers(), m.Data())) {
			return
		}
	}
}

// put adds an entry when there is room, unless the tail is over.
func (t *tail) put(entry posthorn.SourceEntry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.entries) >= ahead && t.err == nil {
		t.roomy.Wait()
	}
	if t.err != nil {
		return false
	}
	t.entries = append(t.entries, entry)
	if len(t.entries) == 1 {
		t.tell()
	}
	return true
}

func (t *tail) tell() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// at reports whether the tail works and goes on after a position. Whoever asked
// hears from now on what comes.
func (t *tail) at(position uint64, news chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.news, t.used = news, time.Now()
	return t.position == position && (t.err == nil || len(t.entries) > 0)
}

// take appends up to that many entries.
func (t *tail) take(entries []posthorn.SourceEntry, limit int) []posthorn.SourceEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(limit, len(t.entries))
	if n <= 0 {
		return entries
	}
	entries = append(entries, t.entries[:n]...)
	t.position, _ = strconv.ParseUint(t.entries[n-1].Position, 10, 64)
	if t.entries = t.entries[n:]; len(t.entries) == 0 {
		t.entries = nil
	}
	t.roomy.Signal()
	return entries
}

// broken is why the tail ended by itself.
func (t *tail) broken() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("read stream %q of nats: %w", t.stream, t.err)
}

func (t *tail) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.used) > idleFor
}

func (t *tail) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.roomy.Signal()
	t.tell()
}

// stop ends the tail, and lets the server forget its consumer now.
func (t *tail) stop() {
	t.mu.Lock()
	first := !t.stopped
	t.stopped = true
	t.mu.Unlock()
	if !first {
		return
	}
	t.fail(errors.New("stopped"))
	t.messages.Stop()
	// No answer is awaited: what is not heard is forgotten a little later.
	_ = t.source.conn.Publish("$JS.API.CONSUMER.DELETE."+t.source.names.stream(t.stream)+"."+t.consumer.CachedInfo().Name, nil)
}

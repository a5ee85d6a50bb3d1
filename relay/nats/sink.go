package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// Sink writes events to JetStream. Its methods are safe for use by any number of
// goroutines.
type Sink struct {
	config Config
	conn   *natsgo.Conn
	js     jetstream.JetStream
	acks   *acks
	slots  chan struct{} // one is taken by each message on its way
	turns  chan struct{} // one is taken by each stream being written

	mu      sync.Mutex
	writers map[writerKey]*writer
	closed  bool
	running sync.WaitGroup
}

type writerKey struct{ namespace, stream string }

// concurrent is how many streams of a batch are written at a time.
const concurrent = 64

// Open connects to the servers of a URL: nats://user:password@host:4222?replicas=3,
// or tls://…. What [Config] says of parameters holds. The other servers of a cluster
// are found by the first; addr=host:4222, as often as needed, names others to begin
// with.
func Open(ctx context.Context, text string, config Config) (*Sink, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	config, servers, err := config.fromURL(u)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		config: config, writers: map[writerKey]*writer{},
		slots: make(chan struct{}, config.MaxPending), turns: make(chan struct{}, concurrent),
		acks: newAcks(),
	}
	s.conn, err = config.connect(ctx, servers, natsgo.DisconnectErrHandler(s.disconnected))
	if err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(config.Timeout)); err == nil {
		err = s.acks.subscribe(s.conn)
	}
	if err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("open nats: %w", err)
	}
	return s, nil
}

func (s *Sink) disconnected(_ *natsgo.Conn, err error) {
	if err == nil {
		err = errors.New("closed")
	} else {
		s.config.Logger.Warn("nats: connection lost", "error", err)
	}
	s.acks.abort(fmt.Errorf("connection to nats: %w", err))
}

// Close ends the connection, and what is being written.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.acks.abort(posthorn.ErrClosed)
	s.conn.Close()
	s.running.Wait()
	return nil
}

// Write writes events, as [posthorn.Sink] says. It returns when ctx ends, even if
// a server hangs.
func (s *Sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	w, err := s.start(ctx, batch)
	if err != nil {
		return err
	}
	failures := posthorn.EventErrors{}
	var causes []error
	for len(w.open) > 0 {
		select {
		case done := <-w.done:
			delete(w.open, done.stream)
			maps.Copy(failures, done.permanent)
			for _, e := range done.unwritten {
				failures[e.ID] = done.err
			}
			if done.err != nil {
				causes = append(causes, done.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("write to nats: %w", ctx.Err())
		}
	}
	switch {
	case len(failures) == 0:
		return nil
	case len(causes) == w.streams && len(failures) == len(batch.Events):
		return errors.Join(causes[:1]...) // nothing was written: it is the broker
	}
	return failures
}

// writing is a batch that is being written.
type writing struct {
	streams int
	open    map[string]bool // streams that are not done
	done    chan *outcome
}

// start lets a goroutine write each stream.
func (s *Sink) start(ctx context.Context, batch posthorn.SinkBatch) (*writing, error) {
	byStream := map[string][]*posthorn.Event{}
	for i := range batch.Events {
		e := &batch.Events[i]
		byStream[e.Stream] = append(byStream[e.Stream], e)
	}
	w := &writing{len(byStream), map[string]bool{}, make(chan *outcome, len(byStream))}
	source := relay.Source(batch.Origin, batch.Namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("write to nats: %w", posthorn.ErrClosed)
	}
	for stream, events := range byStream {
		writer := s.writer(batch.Namespace, stream)
		w.open[stream] = true
		s.running.Go(func() { w.done <- writer.write(ctx, source, events) })
	}
	return w, nil
}

func (s *Sink) writer(namespace, stream string) *writer {
	key := writerKey{namespace, stream}
	w := s.writers[key]
	if w == nil {
		w = newWriter(s, namespace, stream)
		s.writers[key] = w
	}
	return w
}

// take takes a place in a channel that bounds something.
func take(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

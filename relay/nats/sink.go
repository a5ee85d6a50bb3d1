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
)

// Sink writes events to JetStream. It is safe for concurrent use.
type Sink struct {
	config     Config
	conn       *natsgo.Conn
	js         jetstream.JetStream
	acks       *ackInbox
	messageSem chan struct{} // semaphore of messages in flight
	streamSem  chan struct{} // semaphore of streams that are being written

	mu      sync.Mutex
	writers map[writerKey]*writer
	closed  bool
	running sync.WaitGroup
}

type writerKey struct{ namespace, stream string }

// maxStreams is the maximum number of streams that are written concurrently.
const maxStreams = 64

// Open connects to the servers of a URL like nats://user:password@host:4222?replicas=3
// or tls://…. [Config] documents the parameters. The client discovers the other servers
// of a cluster. The parameter addr=host:4222, which can be repeated, names further
// servers for the first connection.
func Open(ctx context.Context, text string, config Config) (*Sink, error) {
	config, at, err := config.withURL(text)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		config: config, writers: map[writerKey]*writer{},
		messageSem: make(chan struct{}, config.MaxPending), streamSem: make(chan struct{}, maxStreams),
		acks: newAckInbox(),
	}
	s.conn, err = config.connect(ctx, at.servers, natsgo.DisconnectErrHandler(s.disconnected))
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

// Close closes the connection. Writes that wait for acknowledgements return an error.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.acks.abort(posthorn.ErrClosed)
	s.conn.Close()
	s.running.Wait()
	return nil
}

// Write writes events; see [posthorn.Sink]. When ctx ends it returns, even if the
// server does not reply.
func (s *Sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	w, err := s.start(ctx, batch)
	if err != nil {
		return err
	}
	failures := posthorn.EventErrors{}
	var causes []error
	for range w.streams {
		select {
		case r := <-w.results:
			maps.Copy(failures, r.permanent)
			for _, e := range r.unwritten {
				failures[e.ID] = r.err
			}
			if r.err != nil {
				causes = append(causes, r.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("write to nats: %w", ctx.Err())
		}
	}
	switch {
	case len(failures) == 0:
		return nil
	case len(causes) == w.streams && len(failures) == len(batch.Events):
		return causes[0] // no stream was written, so the broker is the cause
	}
	return failures
}

// batchWrite is a batch that is being written.
type batchWrite struct {
	streams int
	results chan *streamResult // one for each stream
}

// start starts a goroutine for each stream of a batch.
func (s *Sink) start(ctx context.Context, batch posthorn.SinkBatch) (*batchWrite, error) {
	byStream := map[string][]*posthorn.Event{}
	for i := range batch.Events {
		e := &batch.Events[i]
		byStream[e.Stream] = append(byStream[e.Stream], e)
	}
	w := &batchWrite{len(byStream), make(chan *streamResult, len(byStream))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("write to nats: %w", posthorn.ErrClosed)
	}
	for stream, events := range byStream {
		writer := s.writer(batch.Namespace, stream)
		s.running.Go(func() { w.results <- writer.write(ctx, batch, events) })
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

// acquire acquires a semaphore.
func acquire(ctx context.Context, sem chan struct{}) error {
	select {
	case sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

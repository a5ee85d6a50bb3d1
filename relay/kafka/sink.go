package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
)

// Sink writes events to Kafka. It is safe for concurrent use; calls wait for each other,
// since a transactional id has one transaction at a time.
type Sink struct {
	config  Config
	options []kgo.Opt

	turn    chan struct{} // held by the call that uses life
	life    *life         // nil: none
	closing context.Context
	close   context.CancelCauseFunc
}

// Open returns a sink for a URL; see the package documentation. It does not connect: if
// the server is down, [Sink.Write] returns the error.
func Open(_ context.Context, url string, config Config) (*Sink, error) {
	config, options, err := config.withURL(url)
	if err != nil {
		return nil, err
	}
	s := &Sink{config: config, options: options, turn: make(chan struct{}, 1)}
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Close closes all connections. Writes that wait for Kafka return an error.
func (s *Sink) Close() error {
	s.close(posthorn.ErrClosed)
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.end()
	return nil
}

// take waits for the turn of a call. The context that it returns ends with the sink, too.
func (s *Sink) take(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(posthorn.ErrClosed) })
	give := func() {
		stop()
		cancel(nil)
	}
	if s.closing.Err() != nil {
		give()
		return nil, nil, posthorn.ErrClosed
	}
	select {
	case s.turn <- struct{}{}:
		return ctx, func() { <-s.turn; give() }, nil
	case <-ctx.Done():
		defer give()
		return nil, nil, context.Cause(ctx)
	}
}

// streamBatch is the events of one stream, in their order.
type streamBatch struct {
	stream  string
	name    string // of the topic
	events  []*posthorn.Event
	topic   *topic
	records []*kgo.Record
	refused map[int64]error // events that Kafka never accepts
	err     error           // why the events were not written
	done    bool
}

func (b *streamBatch) refuse(id int64, err error) { b.refused[id] = posthorn.Permanent(err) }

// makeRecords makes the records of the events. It refuses those for good that are too large.
func (b *streamBatch) makeRecords(source string) {
	b.records = b.records[:0]
	for _, e := range b.events {
		r := newRecord(b.name, source, e)
		if n := size(r); n > b.topic.limit {
			b.refuse(e.ID, fmt.Errorf("write event %d to kafka: %w: %d bytes, and topic %s takes %d (%s)",
				e.ID, kerr.MessageTooLarge, n, b.name, b.topic.limit, limitSetting))
			continue
		}
		b.records = append(b.records, r)
	}
}

func (s *Sink) split(batch posthorn.SinkBatch) []*streamBatch {
	byStream := map[string]*streamBatch{}
	var all []*streamBatch
	n := names{s.config.Prefix, batch.Namespace}
	for i := range batch.Events {
		e := &batch.Events[i]
		b := byStream[e.Stream]
		if b == nil {
			b = &streamBatch{stream: e.Stream, name: n.topic(e.Stream), refused: map[int64]error{}}
			byStream[e.Stream] = b
			all = append(all, b)
		}
		b.events = append(b.events, e)
	}
	return all
}

// Write writes events; see [posthorn.Sink]. They are one transaction, unless Kafka refuses
// some streams: then the others are.
func (s *Sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	if len(batch.Events) == 0 {
		return nil
	}
	ctx, give, err := s.take(ctx)
	if err != nil {
		return fmt.Errorf("write to kafka: %w", err)
	}
	defer give()
	streams := s.split(batch)
	common := s.write(ctx, batch, streams)
	return result(streams, common)
}

// maxRounds is how often a call tries again without the streams that Kafka has refused.
const maxRounds = 3

// write writes streams. Its error is of Kafka and concerns all that were not written.
func (s *Sink) write(ctx context.Context, batch posthorn.SinkBatch, streams []*streamBatch) error {
	for range maxRounds {
		l, err := s.begin(ctx, batch.Log, batch.Namespace, batch.Lead)
		if err != nil {
			return err
		}
		if err := l.prepare(ctx, batch, open(streams)); err != nil {
			s.end()
			return explain(err)
		}
		var send []*streamBatch
		for _, b := range open(streams) {
			if b.done = len(b.records) == 0; !b.done {
				send = append(send, b)
			}
		}
		if len(send) == 0 {
			return nil
		}
		failed, err := l.commit(ctx, send)
		if err == nil {
			if err = l.settle(ctx, send); err == nil {
				return nil
			}
		}
		s.end()
		if len(failed) == 0 || ctx.Err() != nil {
			return err
		}
		for b, err := range failed {
			b.err = err
		}
	}
	return fmt.Errorf("no progress after %d attempts", maxRounds)
}

// open returns the streams that are neither written nor refused.
func open(streams []*streamBatch) (all []*streamBatch) {
	for _, b := range streams {
		if b.err == nil && !b.done {
			all = append(all, b)
		}
	}
	return all
}

// result returns the result of Write: nil, the error of Kafka if nothing was written
// because of it, or errors by event.
func result(streams []*streamBatch, common error) error {
	failures, something := posthorn.EventErrors{}, false
	for _, b := range streams {
		for id, err := range b.refused {
			failures[id] = err
		}
		if b.done {
			something = true
			continue
		}
		if b.err == nil {
			b.err = common
		} else {
			something = true // Kafka answers, and refuses this stream
		}
		for _, e := range b.events {
			if failures[e.ID] == nil {
				failures[e.ID] = fmt.Errorf("write stream %q to kafka: %w", b.stream, b.err)
			}
		}
	}
	switch {
	case common != nil && !something:
		return fmt.Errorf("write to kafka: %w", common)
	case len(failures) > 0:
		return failures
	}
	return nil
}

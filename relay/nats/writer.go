package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// writer writes one stream, one batch at a time.
type writer struct {
	sink    *Sink
	stream  string // the name in Posthorn
	name    string // the name in JetStream
	subject string // the common prefix of all subjects
	all     string // the wildcard for all subjects

	lock   chan struct{} // held while a batch is written; guards the fields below
	source string        // the CloudEvents source for which known and last hold
	lead   int64         // the lead of the relay for which they hold
	known  bool          // whether last is up to date
	last   uint64        // the last sequence of the stream
	before int64         // the highest id that the stream had when this lead came to it
	result *streamResult // of the batch that is being written
	lastID func(context.Context) (int64, error)
}

func newWriter(s *Sink, namespace, stream string) *writer {
	n := names{s.config.Prefix, namespace}
	return &writer{
		sink: s, stream: stream, name: n.stream(stream), subject: n.subject(stream), all: n.subject(stream) + ">",
		lock: make(chan struct{}, 1),
	}
}

// streamResult is the result of writing the events of a stream.
type streamResult struct {
	permanent map[int64]error   // events that JetStream will never accept
	unwritten []*posthorn.Event // events to retry
	err       error             // why they were not written
}

// maxAttempts is how often in a row the last sequence of a stream may turn out to be
// wrong before write gives up.
const maxAttempts = 3

// write writes events in order. After a refusal it reads the last message of the
// stream, and continues with the event after that.
func (w *writer) write(ctx context.Context, batch posthorn.SinkBatch, events []*posthorn.Event) *streamResult {
	r := &streamResult{permanent: map[int64]error{}, unwritten: events}
	for _, sem := range []chan struct{}{w.lock, w.sink.streamSem} {
		if r.err = acquire(ctx, sem); r.err != nil {
			return r
		}
		defer func() { <-sem }()
	}
	if !w.sink.conn.IsConnected() {
		r.err = errDisconnected
		return r
	}
	w.result, w.lastID = r, batch.LastID
	source := relay.Source(batch.Log, batch.Namespace)
	if w.source != source || w.lead != batch.Lead {
		w.known, w.source, w.lead = false, source, batch.Lead
	}
	compare := relay.LowestID(events) <= w.before // another event may have one of the ids
	single := false
	for attempt := 0; len(r.unwritten) > 0 && r.err == nil; attempt++ {
		if attempt == maxAttempts {
			r.err = refused("another program publishes to the stream", "Stop the program that publishes to its subjects.")
			break
		}
		if !w.known || compare {
			compare = false
			if r.unwritten, r.err = w.locate(ctx, r.unwritten); r.err != nil || len(r.unwritten) == 0 {
				break
			}
		}
		events := r.unwritten
		if single {
			events = events[:1]
		}
		messages, err := w.send(ctx, events)
		before := len(r.unwritten)
		single = w.apply(ctx, r, messages)
		if r.err == nil {
			r.err = err
		}
		if len(r.unwritten) < before {
			attempt = -1
		}
	}
	if r.err != nil {
		w.known = false
		r.err = fmt.Errorf("write stream %q to nats: %w", w.stream, r.err)
	}
	return r
}

// apply applies the acknowledgements of messages, and reports whether one was a
// duplicate. After a duplicate, all later messages expected a wrong sequence, and are
// likely to be duplicates too, so the next message is sent alone.
func (w *writer) apply(ctx context.Context, r *streamResult, messages []sentMessage) (duplicate bool) {
	inStep := true // whether messages expected the sequence that the stream really has
	for _, m := range messages {
		e := r.unwritten[0]
		switch {
		case !m.acked:
			w.known = false
			return duplicate
		case m.err == nil && m.duplicate:
			duplicate, inStep = true, false
			if r.err = w.checkDuplicate(ctx, r, e, m.sequence); r.err != nil {
				return duplicate
			}
		case m.err == nil:
			w.last = m.sequence
		case isTooLarge(m.err):
			r.permanent[e.ID] = posthorn.Permanent(fmt.Errorf("write event %d to nats: %w", e.ID, m.err))
			inStep = false
		case isWrongSequence(m.err):
			w.known = w.known && !inStep
			return duplicate
		default:
			r.err = m.err
			return duplicate
		}
		r.unwritten = r.unwritten[1:]
	}
	return duplicate
}

// checkDuplicate refuses an event for good if the message that JetStream takes for it
// is another event, which had the same id before the log was restored.
func (w *writer) checkDuplicate(ctx context.Context, r *streamResult, e *posthorn.Event, sequence uint64) error {
	m, err := w.sink.getMessage(ctx, w.name, fmt.Sprintf(`{"seq":%d}`, sequence))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil // it was removed
	case err != nil:
		return fmt.Errorf("read message %d: %w", sequence, err)
	}
	if at := m.Header.Get(headerPrefix + relay.Time); !relay.SameTime(e, at) {
		r.permanent[e.ID] = posthorn.Permanent(relay.OtherEvent(e, m.Header.Get(msgID), at))
	}
	return nil
}

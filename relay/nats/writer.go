package nats

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn"
)

// writer writes one stream, one batch at a time.
type writer struct {
	sink    *Sink
	stream  string // as Posthorn has it
	name    string // as JetStream has it
	subject string // what subjects begin with
	all     string // all subjects

	turn   chan struct{} // who has put something in has the rest
	source string        // whose the stream is known to be
	known  bool          // that it ends with last
	last   uint64
}

func newWriter(s *Sink, namespace, stream string) *writer {
	n := names{s.config.Prefix, namespace}
	return &writer{
		sink: s, stream: stream, name: n.stream(stream), subject: n.subject(stream), all: n.subject(stream) + ">",
		turn: make(chan struct{}, 1),
	}
}

// outcome is what became of a stream's events.
type outcome struct {
	stream    string
	permanent map[int64]error
	unwritten []*posthorn.Event // for a reason that may pass
	err       error             // the reason
}

// rounds is how often a stream may turn out to end elsewhere, without an event
// written meanwhile.
const rounds = 3

// write writes events behind each other. After trouble it looks at what the
// stream ends with, and goes on after that.
func (w *writer) write(ctx context.Context, source string, events []*posthorn.Event) *outcome {
	o := &outcome{stream: w.stream, permanent: map[int64]error{}, unwritten: events}
	for _, places := range []chan struct{}{w.turn, w.sink.turns} {
		if o.err = take(ctx, places); o.err != nil {
			return o
		}
		defer func() { <-places }()
	}
	if !w.sink.conn.IsConnected() {
		o.err = errDisconnected
		return o
	}
	if w.source != source {
		w.known, w.source = false, source
	}
	alone := false
	for idle := 0; len(o.unwritten) > 0 && o.err == nil; idle++ {
		if idle == rounds {
			o.err = refused("the stream grows meanwhile: something else writes to it", "Stop what publishes to its subjects.")
			break
		}
		if !w.known {
			if o.unwritten, o.err = w.locate(ctx, o.unwritten); o.err != nil || len(o.unwritten) == 0 {
				break
			}
		}
		sent := o.unwritten
		if alone {
			sent = sent[:1]
		}
		answers, err := w.send(ctx, sent)
		before := len(o.unwritten)
		alone = w.settle(o, answers)
		if o.err == nil {
			o.err = err
		}
		if len(o.unwritten) < before {
			idle = -1
		}
	}
	if o.err != nil {
		w.known = false
		o.err = fmt.Errorf("write stream %q to nats: %w", w.stream, o.err)
	}
	return o
}

// settle goes through the answers to what was sent, and reports whether an event
// was there already: those behind it were numbered wrong then, and are likely to
// be there too.
func (w *writer) settle(o *outcome, answers []answered) (repeated bool) {
	numbered := true // those from here on were expected where the stream ends
	for _, a := range answers {
		e := o.unwritten[0]
		switch {
		case !a.known:
			w.known = false
			return repeated
		case a.err == nil && a.duplicate:
			repeated, numbered = true, false
		case a.err == nil:
			w.last = a.sequence
		case tooLarge(a.err):
			o.permanent[e.ID] = posthorn.Permanent(fmt.Errorf("write event %d to nats: %w", e.ID, a.err))
			numbered = false
		case outOfStep(a.err):
			w.known = w.known && !numbered
			return repeated
		default:
			o.err = a.err
			return repeated
		}
		o.unwritten = o.unwritten[1:]
	}
	return repeated
}

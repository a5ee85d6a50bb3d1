package importer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// part has the events of one stream from one log in a batch, with the position of
// each event.
type part struct {
	pg.ImportPart
	at []string
}

// mostBytes ends a statement: no entry is added to one whose payloads have so many
// bytes.
const mostBytes = 8 << 20

// publish publishes a batch, in a transaction for each of its rounds. Most batches have
// one round.
func (l *leadership) publish(ctx context.Context, b batch) error {
	for _, round := range l.rounds(b) {
		if err := l.write(ctx, l.current(round)); err != nil {
			return err
		}
	}
	return nil
}

// rounds sorts the entries of a batch by stream. A new round begins where the next
// event of a stream is from another log, and after mostBytes.
func (l *leadership) rounds(b batch) [][]*part {
	rounds := [][]*part{nil}
	open := map[string]*part{}
	bytes := 0
	for i := range b.entries {
		e := &b.entries[i]
		p := open[e.Stream]
		isEvent := e.Err == nil && !e.Trimmed
		if bytes >= mostBytes || p != nil && isEvent && p.Log != "" && (p.Log != e.Log || p.Namespace != e.Namespace) {
			rounds, open, bytes = append(rounds, nil), map[string]*part{}, 0
			p = nil
		}
		if p == nil {
			p = &part{ImportPart: pg.ImportPart{Stream: e.Stream, From: b.from[e.Stream]}}
			open[e.Stream] = p
			rounds[len(rounds)-1] = append(rounds[len(rounds)-1], p)
		}
		l.add(p, e)
		b.from[e.Stream] = e.Position
		bytes += len(e.Event.Payload)
	}
	return rounds
}

// current leaves out parts that do not begin at the position of their stream: an
// earlier event of the stream was refused after they were read.
func (l *leadership) current(parts []*part) []*part {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(parts, func(p *part) bool { return p.From != l.positions[p.Stream] })
}

// add adds an entry to its part. An entry that is not an event is skipped and logged; of many, some are.
func (l *leadership) add(p *part, e *Entry) {
	p.Passed = e.Position
	switch {
	case e.Trimmed:
		p.Trimmed = true
		l.Log.Error("the broker has removed events that were not imported; the import goes on with the next entry",
			"stream", e.Stream, "position", e.Position)
	case e.Err != nil:
		l.passed.Report(true, "an entry of the broker is no event, and is passed over",
			"stream", e.Stream, "position", e.Position, "error", e.Err)
	default:
		p.Log, p.Namespace = e.Log, e.Namespace
		p.Events, p.at = append(p.Events, e.Event), append(p.at, e.Position)
	}
}

// write publishes parts. An event that the database refuses stops only its own
// stream, whose earlier events are published, as are the other streams.
func (l *leadership) write(ctx context.Context, parts []*part) error {
	if len(parts) == 0 {
		return nil
	}
	err := l.finish(ctx, parts)
	if !errors.Is(err, pg.ErrRefused) && !errors.Is(err, pg.ErrInvalid) {
		return err
	}
	if len(parts) > 1 {
		for _, p := range parts {
			if err := l.write(ctx, []*part{p}); err != nil {
				return err
			}
		}
		return nil
	}
	p := parts[0]
	if len(p.Events) < 2 {
		return l.postpone(ctx, p, err)
	}
	first, second := p.halves()
	if err := l.write(ctx, []*part{first}); err != nil || l.isRefused(p.Stream) {
		return err
	}
	return l.write(ctx, []*part{second})
}

func (p *part) halves() (first, second *part) {
	middle := len(p.Events) / 2
	a, b := *p, *p
	a.Events, a.at, a.Passed = p.Events[:middle], p.at[:middle], p.at[middle-1]
	b.Events, b.at, b.From, b.Trimmed = p.Events[middle:], p.at[middle:], a.Passed, false
	return &a, &b
}

// finish publishes parts and moves the import past them.
func (l *leadership) finish(ctx context.Context, parts []*part) error {
	given := make([]pg.ImportPart, len(parts))
	for i, p := range parts {
		given[i] = p.ImportPart
	}
	n, err := pg.ImportEvents(ctx, l.Pool, l.lead, given)
	if err != nil {
		return err
	}
	l.mu.Lock()
	for _, p := range parts {
		l.positions[p.Stream] = p.Passed
	}
	l.mu.Unlock()
	if n > 0 {
		l.Imported()
	}
	return nil
}

// postpone delays a stream that the database refuses.
func (l *leadership) postpone(ctx context.Context, p *part, cause error) error {
	l.mu.Lock()
	l.refused[p.Stream] = time.Now().Add(lastPause)
	l.mu.Unlock()
	l.Log.Error("a stream cannot be imported, trying again", "stream", p.Stream, "position", p.Passed, "error", cause)
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	return pg.NoteImportError(ctx, l.Pool, l.lead, p.Stream, worker.Clip(cause.Error()))
}

func (l *leadership) isRefused(stream string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, refused := l.refused[stream]
	return refused
}

package importer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// part is what a batch has of one stream from one log, with the position of each
// event.
type part struct {
	pg.ImportPart
	at []string
}

// mostBytes bounds the payloads of one statement, but for that of its first event.
const mostBytes = 8 << 20

// publish publishes a batch, in a transaction for each of its rounds; mostly it
// has one.
func (t *term) publish(ctx context.Context, b batch) error {
	for _, round := range t.rounds(b) {
		if err := t.write(ctx, t.current(round)); err != nil {
			return err
		}
	}
	return nil
}

// rounds sorts the entries of a batch by stream. A stream whose events are from
// another log all of a sudden goes on in the next round, and so does all that comes
// after too many bytes.
func (t *term) rounds(b batch) [][]*part {
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
		t.add(p, e)
		b.from[e.Stream] = e.Position
		bytes += len(e.Event.Payload)
	}
	return rounds
}

// current leaves out the parts of streams that do not stand where they begin: they
// were held since they were read.
func (t *term) current(parts []*part) []*part {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(parts, func(p *part) bool { return p.From != t.positions[p.Stream] })
}

// add adds an entry to its part. What is no event is passed over, loudly.
func (t *term) add(p *part, e *Entry) {
	p.Passed = e.Position
	switch {
	case e.Trimmed:
		p.Trimmed = true
		t.Log.Error("the broker has removed events that were not imported; the import goes on with what is there",
			"import", t.Import.Name, "stream", e.Stream, "position", e.Position)
	case e.Err != nil:
		t.Log.Error("an entry of the broker is no event, and is passed over",
			"import", t.Import.Name, "stream", e.Stream, "position", e.Position, "error", e.Err)
	default:
		p.Log, p.Namespace = e.Log, e.Namespace
		p.Events, p.at = append(p.Events, e.Event), append(p.at, e.Position)
	}
}

// write publishes parts. What the database refuses holds up its own stream only:
// the others are published without it, and of its own stream what comes before.
func (t *term) write(ctx context.Context, parts []*part) error {
	if len(parts) == 0 {
		return nil
	}
	err := t.finish(ctx, parts)
	if !errors.Is(err, pg.ErrRefused) && !errors.Is(err, pg.ErrInvalid) {
		return err
	}
	if len(parts) > 1 {
		for _, p := range parts {
			if err := t.write(ctx, []*part{p}); err != nil {
				return err
			}
		}
		return nil
	}
	p := parts[0]
	if len(p.Events) < 2 {
		return t.hold(ctx, p, err)
	}
	first, second := p.halves()
	if err := t.write(ctx, []*part{first}); err != nil || t.isHeld(p.Stream) {
		return err
	}
	return t.write(ctx, []*part{second})
}

func (p *part) halves() (first, second *part) {
	middle := len(p.Events) / 2
	a, b := *p, *p
	a.Events, a.at, a.Passed = p.Events[:middle], p.at[:middle], p.at[middle-1]
	b.Events, b.at, b.From, b.Trimmed = p.Events[middle:], p.at[middle:], a.Passed, false
	return &a, &b
}

// finish publishes parts and moves the import past them.
func (t *term) finish(ctx context.Context, parts []*part) error {
	ctx, cancel := worker.Outlast(ctx, max(t.LeaseFor, lastWords))
	defer cancel()
	given := make([]pg.ImportPart, len(parts))
	for i, p := range parts {
		given[i] = p.ImportPart
	}
	n, err := pg.ImportEvents(ctx, t.Pool, t.lead, given)
	if err != nil {
		return err
	}
	t.mu.Lock()
	for _, p := range parts {
		t.positions[p.Stream] = p.Passed
	}
	t.mu.Unlock()
	if n > 0 {
		t.Imported()
	}
	return nil
}

// hold lets a stream rest that the database refuses.
func (t *term) hold(ctx context.Context, p *part, cause error) error {
	t.mu.Lock()
	t.held[p.Stream] = time.Now().Add(lastPause)
	t.mu.Unlock()
	t.Log.Error("a stream cannot be imported, trying again", "import", t.Import.Name, "stream", p.Stream, "position", p.Passed, "error", cause)
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	return pg.NoteImportError(ctx, t.Pool, t.lead, p.Stream, worker.Clip(cause.Error()))
}

func (t *term) isHeld(stream string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, held := t.held[stream]
	return held
}

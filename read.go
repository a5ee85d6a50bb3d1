package posthorn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/worker"
)

// ReadConfig selects the events of a [Reader], and where it begins. The zero value is for
// all events, from the beginning of the log to its end.
type ReadConfig struct {
	// Filter selects events. Readers that follow with the same filter cost hardly more
	// than one.
	Filter Filter

	// From is the position at which the reader begins. Default: [Beginning].
	From Moment
	// Cursor is the position of another reader, see [Reader.Cursor], in place of From.
	Cursor string
	// AfterEvent is the id of the last event that the program has read, in place of From
	// or Cursor. An id is less exact than a cursor: events that were published up to
	// about a second before that event may be read again, so that none is lost.
	AfterEvent int64

	// Follow waits for more events at the end of the log. Default: the reader stops
	// there.
	Follow bool

	// KeepSealed leaves the payloads of confidential streams encrypted. Default: the
	// client opens them, see [Config].Seal. The filter always sees them encrypted.
	KeepSealed bool
}

// Reader reads the log of a namespace without a group: it writes nothing into the
// database, and the program stores the cursor. A process may have thousands of readers
// that follow: they share one scan of the log, and a slow reader does not delay others.
//
// Only one goroutine at a time may loop over its events.
type Reader struct {
	client *Client
	config ReadConfig

	mu       sync.Mutex
	cursor   string           // while there is no loop
	listener *listen.Listener // of the loop
}

// Read returns a reader. The reader uses no resources outside of its loop, and needs no
// closing.
func (c *Client) Read(config ReadConfig) *Reader {
	return &Reader{client: c, config: config, cursor: config.Cursor}
}

// Cursor returns the position after the last event of the loop, for another reader with
// the same filter. The position may be further on if no later event passes the filter. A
// reader that begins there skips no event, also if transactions commit out of order. The
// cursor is short enough for an HTTP header. Cursor may be called during the loop, and
// returns "" before the first event was read.
func (r *Reader) Cursor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return r.listener.Cursor()
	}
	return r.cursor
}

// Events yields the events in the order in which groups receive them, each once, until
// the end of the log. A reader that follows ends when ctx ends. A loop that was left may
// be started again, and continues after its last event.
//
// A reader that follows gets each event right after its commit. If its loop is slow, the
// reader scans the log by itself and loses no event. It waits for a database that cannot
// be reached; other readers end with the error.
//
// If an event of a confidential stream can never be opened again, it comes without
// payload and with [ErrSealed], and the loop may continue. If an event cannot be opened
// at present, the loop ends with the error.
func (r *Reader) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			err := r.read(ctx, yield)
			switch {
			case errors.Is(err, listen.ErrSlow):
				continue
			case err != nil && (ctx.Err() == nil || !r.config.Follow):
				yield(Event{}, fmt.Errorf("read: %w", err))
			}
			return
		}
	}
}

// readBuffer is the number of events that may wait for the loop of a reader that follows.
const readBuffer = 1000

// read yields events until the loop was left or the log has ended.
func (r *Reader) read(ctx context.Context, yield func(Event, error) bool) error {
	l, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer r.stopListening(l)
	for {
		item, err := l.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e := *item.Event // all readers of this process share the event
		if !r.config.KeepSealed {
			err = r.client.box.Open(ctx, r.client.namespace, &e)
		}
		if err != nil && !sealing.IsFinal(err) {
			return err
		}
		if err != nil {
			e.Payload = nil
		}
		l.Done()
		if !yield(Event(e), err) {
			return nil
		}
	}
}

// listen starts a listener. A reader that follows waits for a database that cannot be reached.
func (r *Reader) listen(ctx context.Context) (l *listen.Listener, err error) {
	retry := worker.Retry{Outages: r.config.Follow, Trouble: &worker.Trouble{Log: r.client.log, Message: "a reader cannot begin yet"}}
	err = retry.Do(ctx, func(ctx context.Context) error {
		l, err = r.start(ctx)
		return err
	})
	return l, err
}

func (r *Reader) start(ctx context.Context) (*listen.Listener, error) {
	start := listen.Start{Filter: listen.Filter(r.config.Filter), ToEnd: !r.config.Follow, Buffer: readBuffer}
	start.From, start.Cursor, start.AfterEvent = r.config.From, r.config.Cursor, r.config.AfterEvent
	switch cursor := r.Cursor(); {
	case cursor != "" && cursor != r.config.Cursor:
		start.From, start.Cursor, start.AfterEvent = Moment{}, cursor, 0
	case !start.From.Valid && start.Cursor == "" && start.AfterEvent == 0:
		start.From = Beginning
	}
	l, err := r.client.hub.Listen(ctx, start)
	if err == nil {
		r.mu.Lock()
		r.listener = l
		r.mu.Unlock()
	}
	return l, err
}

func (r *Reader) stopListening(l *listen.Listener) {
	l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor, r.listener = l.Cursor(), nil
}

// Filter selects the events that meet all of its conditions. An empty condition allows
// all events, so the zero value selects all events.
//
// In JSON its fields are type, stream, key, tags_any, tags_all and payload. In JSON that
// is read, each field except payload may be a string or a list of strings.
type Filter struct {
	// Types and Streams are patterns, and one of each must match: order.placed, order.*
	// for any one part, order.> for one or more parts.
	Types, Streams []string
	// Keys: the event has one of them.
	Keys []string
	// TagsAny: the event has one of them. TagsAll: the event has all of them.
	TagsAny, TagsAll []string
	// Payload is contained in the payload of the event, as with the operator @> of
	// jsonb: {"status": "paid"} in any document with that field, [1] in any array with
	// that element. It is any value for [json.Marshal]; nil allows all payloads.
	Payload any
}

// MarshalJSON returns the filter as SQL functions take it.
func (f Filter) MarshalJSON() ([]byte, error) { return listen.Filter(f).MarshalJSON() }

// UnmarshalJSON reads a filter. It refuses unknown fields.
func (f *Filter) UnmarshalJSON(text []byte) error { return (*listen.Filter)(f).UnmarshalJSON(text) }

// Moment is a position in the log: [At] a time, at the [Beginning] or at the [End].
type Moment = admin.Moment

// The first and the last position in the log.
var (
	Beginning = pg.Beginning
	End       = pg.End
)

// At returns the position of the first event that was published at a time or later.
func At(t time.Time) Moment { return pg.At(t) }

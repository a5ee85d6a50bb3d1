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
)

// ReadConfig says which events a [Reader] gets, and from where on. The zero value is
// for every event from the beginning of the log to its end.
type ReadConfig struct {
	// Filter of the events. Readers that follow with the same filter cost hardly more
	// than one.
	Filter Filter

	// From is where to begin. Default: [Beginning].
	From Moment
	// Cursor goes on where another reader stood, see [Reader.Cursor].
	Cursor string
	// AfterEvent goes on after an event of which only the id is known. An id says less
	// than a cursor: events that were published within about a second before that event
	// may come again, so that nothing is lost.
	AfterEvent int64

	// Follow waits for more at the end of the log. Default: to stop there.
	Follow bool

	// Sealed leaves the payloads of confidential streams as they are in the log.
	// Default: they are opened, see [Config].Seal. The filter sees them sealed.
	Sealed bool
}

// Reader reads the log of a namespace without a group: nothing is written, nothing is
// settled, and the program keeps the cursor. A process may have thousands of readers
// that follow: they share one read of the log, and a slow one holds up no other.
//
// Its loop is for one goroutine at a time.
type Reader struct {
	client *Client
	config ReadConfig

	mu       sync.Mutex
	cursor   string           // while there is no listener
	listener *listen.Listener // of the loop
}

// Read returns a reader. It holds nothing outside of its loop, and needs no closing.
func (c *Client) Read(config ReadConfig) *Reader {
	return &Reader{client: c, config: config, cursor: config.Cursor}
}

// Cursor is where another reader with the same filter goes on: right after the last
// event that the loop has got, or further on when no later event passes the filter. It
// skips nothing, in whatever order transactions commit, and is short enough for a
// header. It may be called beside the loop. It is "" before anything was read.
func (r *Reader) Cursor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return r.listener.Cursor()
	}
	return r.cursor
}

// Events yields the events in the order in which groups see them, each once, until the
// end of the log, or, when the reader follows, until ctx ends. A loop that is left in
// between may be entered again, and goes on after the last event that it got.
//
// A reader that follows gets each event right after it was committed. While its loop is
// slow it reads by itself, and loses nothing. It waits for a database that is away;
// every other reader ends with the error.
//
// An event of a confidential stream that will never open again comes without payload
// and with [ErrSealed]; the loop may go on after it. At an event that does not open
// yet, the loop ends.
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

// readBuffer is how many events may wait for the loop of a reader that follows.
const readBuffer = 1000

// read returns an error unless the loop, or the log, has ended.
func (r *Reader) read(ctx context.Context, yield func(Event, error) bool) error {
	l, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer r.leave(l)
	for {
		item, err := l.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e := *item.Event // readers share what was read
		if !r.config.Sealed {
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

func (r *Reader) listen(ctx context.Context) (*listen.Listener, error) {
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

func (r *Reader) leave(l *listen.Listener) {
	l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor, r.listener = l.Cursor(), nil
}

// Filter says which events are wanted: those that meet all of its conditions.
// One that is left out lets everything pass, so the zero value is for all events.
//
// As JSON it has the fields type, stream, key, tags_any, tags_all and payload;
// read from JSON, each but payload may be one text or a list.
type Filter struct {
	// Types and Streams are patterns, of which one has to match: order.placed,
	// order.* for one part, order.> for all that follow.
	Types, Streams []string
	// Keys of which the event has one.
	Keys []string
	// TagsAny of which the event has one, and TagsAll of which it has each.
	TagsAny, TagsAll []string
	// Payload is contained in that of the event, as with jsonb's @> operator:
	// {"status": "paid"} in any document with that field, [1] in any array with
	// that element. It is written as JSON by [json.Marshal]; nil looks at no
	// payload.
	Payload any
}

// MarshalJSON writes the filter as SQL reads it.
func (f Filter) MarshalJSON() ([]byte, error) { return listen.Filter(f).MarshalJSON() }

// UnmarshalJSON reads a filter. Fields that it does not know are refused.
func (f *Filter) UnmarshalJSON(text []byte) error { return (*listen.Filter)(f).UnmarshalJSON(text) }

// Moment is a place in the log: a time, or one of its ends.
type Moment = admin.Moment

// The ends of the log.
var (
	Beginning = pg.Beginning
	End       = pg.End
)

// At is the moment of a time.
func At(t time.Time) Moment { return pg.At(t) }

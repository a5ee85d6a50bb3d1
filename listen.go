package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/pg"
)

// Slow says what becomes of a listener that does not keep up.
type Slow int

const (
	// Drop ends its loop with [ErrSlow]; its cursor resumes, later or elsewhere.
	Drop Slow = iota
	// Skip lets it miss the oldest of the events that wait for it.
	Skip
)

// ListenConfig says what a [Listener] hears of, and from where on. The zero value
// hears of every event from now on.
type ListenConfig struct {
	// Filter of the events. Listeners with the same one cost hardly more than one.
	Filter Filter

	// From is where to begin. Default: now, [End].
	From Moment
	// Cursor goes on where another listener or reader stood, with nothing lost
	// and nothing twice.
	Cursor string
	// AfterEvent goes on after an event of which only the id is known. An id says
	// less than a cursor does: what was published within about a second before
	// that event may come again, so that nothing is lost.
	AfterEvent int64

	// Sealed leaves the payloads of confidential streams as they are in the log.
	// Default: they are opened, see [Config].Seal; the filter sees them sealed.
	Sealed bool

	// Buffer is how many events may wait for the loop. Default: 100.
	Buffer int
	// Slow is what happens when more would. Default: [Drop].
	Slow Slow
}

// Listener hears of events as they are published, without a group: nothing is
// written, nothing is settled, and what is missed is missed. It is for things
// like browsers and dashboards, of which there may be thousands in a process:
// they share one read of the log, and a slow one holds up nobody.
type Listener struct {
	client *Client
	inner  *listen.Listener
	sealed bool
}

// Heard is an event that a listener has heard of. All listeners share it: do not
// change what its fields point to.
type Heard struct {
	Event
	item listen.Item
}

// Cursor goes on right after this event, see [ListenConfig].Cursor: with what was
// next for this listener, and whatever has been committed since, however late.
func (h Heard) Cursor() string { return h.item.Cursor() }

// Listen begins to listen. When it returns, everything that is committed from
// then on will be heard, and, by default, nothing that was committed before the
// call. The listener has to be closed.
//
// One that begins in the past catches up first, in its own time, a batch of
// events at a time and two listeners of a process at once.
func (c *Client) Listen(ctx context.Context, config ListenConfig) (*Listener, error) {
	l, err := c.newListener(config)
	if err == nil {
		if err = l.start(ctx, config); err != nil {
			l.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

func (c *Client) newListener(config ListenConfig) (*Listener, error) {
	starts := 0
	for _, given := range []bool{config.From.Valid, config.Cursor != "", config.AfterEvent != 0} {
		if given {
			starts++
		}
	}
	switch {
	case starts > 1:
		return nil, invalid("From, Cursor and AfterEvent exclude each other", "Give one of them, or none to start now.")
	case config.From.Time.After(time.Now().Add(time.Minute)):
		return nil, invalid("From lies in the future", "Leave it out to start now.")
	case config.Buffer < 0:
		return nil, invalid("Buffer cannot be negative", "Leave it out for 100.")
	case config.Slow != Drop && config.Slow != Skip:
		return nil, invalid("Slow is neither Drop nor Skip", "Leave it out for Drop.")
	}
	filter, err := listen.Filter(config.Filter).Compile()
	if err != nil {
		return nil, invalid("filter: "+err.Error(), "Leave out what shall not be looked at.")
	}
	inner := c.hub.NewListener(filter, cmp.Or(config.Buffer, 100), config.Slow == Skip)
	return &Listener{client: c, inner: inner, sealed: config.Sealed}, nil
}

func (l *Listener) start(ctx context.Context, config ListenConfig) error {
	leave, err := l.client.enter()
	if err != nil {
		return err
	}
	defer leave()
	cursor := config.Cursor
	switch {
	case config.AfterEvent != 0:
		cursor, err = pg.CursorAfter(ctx, l.client.control, l.client.namespace, config.AfterEvent)
	case config.From.Valid && config.From != End:
		cursor, err = pg.CursorAt(ctx, l.client.control, config.From)
	}
	if err != nil {
		return err
	}
	if cursor == "" {
		return l.inner.StartNow(ctx)
	}
	return l.inner.StartAt(ctx, cursor)
}

// Events yields the events as they come, until ctx ends, which also closes the
// listener, or Close is called. A loop that is left in between may be entered
// again, and gets again the event at which it was left.
//
// It ends with [ErrSlow] when the listener was dropped, after it has yielded what
// had fit into its buffer. Trouble with the database is waited out, and loses
// nothing. An event of a confidential stream that does not open comes without
// payload and with [ErrSealed]; the loop goes on.
func (l *Listener) Events(ctx context.Context) iter.Seq2[Heard, error] {
	return func(yield func(Heard, error) bool) {
		for {
			item, err := l.inner.Next(ctx)
			if ctx.Err() != nil {
				l.Close()
				return
			}
			if err != nil {
				if !errors.Is(err, listen.ErrEnded) {
					yield(Heard{}, fmt.Errorf("listen: %w", err))
				}
				return
			}
			if !yield(l.heard(ctx, item)) {
				return
			}
			l.inner.Done()
		}
	}
}

// Next is for loops that have something else to do as well, such as to send a
// heartbeat: it waits for the next event until ctx ends, and the listener stays
// open. To call it again says that the event before has been dealt with.
func (l *Listener) Next(ctx context.Context) (Heard, error) {
	l.inner.Done()
	item, err := l.inner.Next(ctx)
	if errors.Is(err, listen.ErrEnded) {
		err = ErrClosed
	}
	if err != nil {
		return Heard{}, fmt.Errorf("listen: %w", err)
	}
	return l.heard(ctx, item)
}

// heard opens an event for this listener; the others share what was read.
func (l *Listener) heard(ctx context.Context, item listen.Item) (Heard, error) {
	e := *item.Event
	if l.sealed {
		return Heard{Event(e), item}, nil
	}
	err := l.client.box.Open(ctx, l.client.namespace, &e)
	if err != nil {
		e.Payload = nil
		err = fmt.Errorf("listen: %w", err)
	}
	return Heard{Event(e), item}, err
}

// Cursor is where a listener with the same filter can go on that shall miss
// nothing: after the last event that the loop was done with, or further on, when
// what came since was not for this one. So a server that sends it now and then
// spares a browser for which nothing happens a long way when it comes back. It
// may be called beside the loop.
func (l *Listener) Cursor() string { return l.inner.Cursor() }

// Skipped is how many events the listener has missed, see [Skip]. It may be
// called beside the loop.
func (l *Listener) Skipped() int64 { return l.inner.Skipped() }

// Close ends the listener, and its loop, at once. It may be called beside the
// loop, and more than once.
func (l *Listener) Close() { l.inner.Close() }

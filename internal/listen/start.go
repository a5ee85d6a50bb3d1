package listen

import (
	"cmp"
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Start says which events a listener gets, and from where on. The zero value is for
// every event from now on.
type Start struct {
	Filter Filter

	From       pg.Moment // default: now
	Cursor     string    // right after an event of another listener
	AfterEvent int64     // after an event of which only the id is known
	ToEnd      bool      // Next returns [io.EOF] at the end of the log

	Buffer int // events that may wait for Next, before the listener ends with [ErrSlow]; default 100
}

func (s Start) check() error {
	starts := 0
	for _, given := range []bool{s.From.Valid, s.Cursor != "", s.AfterEvent != 0} {
		if given {
			starts++
		}
	}
	switch {
	case starts > 1:
		return pg.Invalid("From, Cursor and AfterEvent exclude each other", "Give one of them, or none for the default.")
	case s.From.Time.After(time.Now().Add(time.Minute)):
		return pg.Invalid("From lies in the future", "Leave it out, or give the end of the log.")
	case s.Buffer < 0:
		return pg.Invalid("Buffer cannot be negative", "Leave it out for 100.")
	}
	return nil
}

// Listen starts a listener, which has to be closed. When it returns, the listener gets
// every event that is committed from then on, and, by default, none that was committed
// before the call.
func (h *Hub) Listen(ctx context.Context, start Start) (*Listener, error) {
	if err := start.check(); err != nil {
		return nil, err
	}
	filter, err := start.Filter.Compile()
	if err != nil {
		return nil, pg.Invalid("filter: "+err.Error(), "Leave out the conditions that are not needed.")
	}
	if h.ctx.Err() != nil {
		return nil, h.Closed
	}
	l := h.NewListener(filter, cmp.Or(start.Buffer, 100))
	l.toEnd = start.ToEnd
	if err := l.start(ctx, start); err != nil {
		l.Close()
		return nil, h.orClosed(err)
	}
	return l, nil
}

func (l *Listener) start(ctx context.Context, start Start) (err error) {
	cursor := start.Cursor
	switch {
	case start.AfterEvent != 0:
		cursor, err = pg.CursorAfter(ctx, l.hub.Pool, l.hub.Namespace, start.AfterEvent)
	case start.From.Valid && (start.From != pg.End || start.ToEnd):
		cursor, err = pg.CursorAt(ctx, l.hub.Pool, start.From)
	}
	if err != nil {
		return err
	}
	if cursor == "" {
		return l.StartNow(ctx)
	}
	return l.StartAt(ctx, cursor)
}

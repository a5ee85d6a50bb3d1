package listen

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// ErrSlow is the error of a listener whose queue has overflowed.
var ErrSlow = errors.New("reader is too slow")

// ErrEnded is the error of a listener that was closed.
var ErrEnded = errors.New("reader is closed")

// Item is an event for a listener. Listeners share the event: it must not be
// changed.
type Item struct {
	*pg.Event
	way string
}

// Cursor is the cursor right after the event.
func (i Item) Cursor() string { return place{i.way, i.Event.ID}.String() }

// place is a cursor before it is written as text.
type place struct {
	text  string
	event int64 // added to the text; 0 for none
}

func (p place) String() string {
	if p.event == 0 {
		return p.text
	}
	return p.text + "." + strconv.FormatInt(p.event, 10)
}

// Listener receives the events that pass a filter. One goroutine at a time may use
// Next and Done; the other methods are safe for any number.
type Listener struct {
	hub    *Hub
	filter *Matcher
	buffer int
	toEnd  bool // it ends where the log does

	entry *entry        // in the index of the hub; guarded by the hub's lock
	ready chan struct{} // receives when an event or an error has arrived

	// Used by the goroutine that calls Next, until the listener is live.
	at    string // the cursor of the next read
	clean bool   // at lies between two scans

	mu      sync.Mutex // taken under the hub's lock, never around it
	live    *reading   // that fills the queue; nil while the listener catches up
	current *Item      // returned by Next, and not done
	replay  []Item     // events from catching up; they come before the queue
	queue   []Item
	scans   int   // of the shared read, up to the one that found the last event for the queue
	done    place // all events before it are done, or did not pass the filter
	err     error // that ended it
}

// NewListener returns a listener with a queue of buffer events. When the queue is
// full, the listener ends with [ErrSlow]. The caller has to start and to close it.
func (h *Hub) NewListener(filter *Matcher, buffer int) *Listener {
	return &Listener{hub: h, filter: filter, buffer: buffer, ready: make(chan struct{}, 1)}
}

// StartNow starts at the end of the log. The listener receives all events that are
// committed after StartNow has returned, and none that were committed before the call.
func (l *Listener) StartNow(ctx context.Context) error {
	a, err := l.hub.admit(ctx, l)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live, l.done = a.reading, place{text: a.position}
	return nil
}

// StartAt starts at a cursor. It reads the first events, so that an invalid cursor is
// an error here and not of Next.
func (l *Listener) StartAt(ctx context.Context, cursor string) error {
	l.at, l.done = cursor, place{text: cursor}
	return l.catchUp(ctx)
}

// Next returns the next event; it returns the same event until [Listener.Done] is
// called. It waits for an event until ctx ends.
func (l *Listener) Next(ctx context.Context) (Item, error) {
	for {
		item, live, err := l.peek()
		if err != nil {
			return Item{}, err
		} else if item != nil {
			return *item, nil
		} else if live {
			select {
			case <-l.ready:
			case <-ctx.Done():
				return Item{}, ctx.Err()
			}
			continue
		}
		if err := l.retryCatchUp(ctx); ctx.Err() != nil {
			return Item{}, ctx.Err()
		} else if err != nil {
			return Item{}, err
		}
	}
}

// retryCatchUp calls catchUp, and repeats it after temporary errors.
func (l *Listener) retryCatchUp(ctx context.Context) error {
	if l.toEnd {
		return l.catchUp(ctx)
	}
	var closed error
	retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: l.hub.Log, Message: "a reader cannot catch up yet"}}
	err := retry.Do(ctx, func(ctx context.Context) error {
		err := l.catchUp(ctx)
		if errors.Is(err, l.hub.Closed) {
			closed = err
			return nil
		}
		return err
	})
	return cmp.Or(closed, err)
}

// peek makes the next item the current one, if there is one.
func (l *Listener) peek() (item *Item, live bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err == ErrEnded:
		return nil, false, ErrEnded
	case l.current != nil:
	case len(l.replay) > 0:
		l.current = shift(&l.replay)
	case l.live != nil && len(l.queue) > 0:
		l.current = shift(&l.queue)
	default:
		return nil, l.live != nil, l.err
	}
	return l.current, true, nil
}

func shift(items *[]Item) *Item {
	first := (*items)[0]
	(*items)[0] = Item{}
	*items = (*items)[1:]
	return &first
}

// Done marks the event that Next returned as done.
func (l *Listener) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return
	}
	l.done = place{l.current.way, l.current.ID}
	l.current = nil
}

// Cursor returns the position at which another listener with the same filter can go
// on without missing an event: after all events that are done or did not pass the
// filter.
func (l *Listener) Cursor() string {
	l.mu.Lock()
	live := l.live
	l.mu.Unlock()
	var reached *position
	if live != nil {
		reached = live.position.Load() // read before the queue is, since the hub fills the queue first
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reached != nil && l.err == nil {
		l.passed(reached)
	}
	return l.done.String()
}

// passed moves the cursor to a position of the shared read. The cursor stays where it is
// while an event is not done, or if an event behind the position has arrived: that event
// may be done already. The caller holds the lock.
func (l *Listener) passed(reached *position) {
	if l.isIdle() && reached.scans >= l.scans {
		l.done = place{text: reached.cursor}
	}
}

// isIdle reports whether all events that have arrived are done. The caller holds the lock.
func (l *Listener) isIdle() bool { return l.current == nil && len(l.replay) == 0 && len(l.queue) == 0 }

// Close ends the listener and drops the events in its queue.
func (l *Listener) Close() {
	l.Cursor() // keeps the final position
	l.hub.leave(l)
	l.mu.Lock()
	l.replay, l.queue = nil, nil
	l.mu.Unlock()
	l.fail(ErrEnded)
}

// fail ends the listener with an error. The first error stays.
func (l *Listener) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.wake()
}

func (l *Listener) wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// push puts an event into the queue. It reports whether the queue was full, and the
// listener has to be removed. All events before the position were handed out by earlier
// scans; the event comes from the scan after it.
func (l *Listener) push(item Item, before *position) (slow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	if l.live != nil && len(l.queue) >= l.buffer { // before it is live, the read is slow and not the listener
		l.err = ErrSlow
		l.wake()
		return true
	}
	if l.live != nil {
		l.passed(before)
	}
	l.scans = before.scans + 1
	l.queue = append(l.queue, item)
	l.wake()
	return false
}

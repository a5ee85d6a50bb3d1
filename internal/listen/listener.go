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

// ErrSlow is what a listener ends with that let its queue overflow.
var ErrSlow = errors.New("listener is too slow")

// ErrEnded is what a listener returns that was closed.
var ErrEnded = errors.New("listener is closed")

// Item is an event that a listener gets. The event is shared: it must not be
// changed.
type Item struct {
	Event *pg.Event
	way   string
}

// Cursor goes on right after the event.
func (i Item) Cursor() string { return place{i.way, i.Event.ID}.String() }

// place is where a cursor stands, before it is put into words.
type place struct {
	text  string
	event int64 // on a way; 0 for none
}

func (p place) String() string {
	if p.event == 0 {
		return p.text
	}
	return p.text + "." + strconv.FormatInt(p.event, 10)
}

// Listener hears of the events that pass a filter. Next and Done are for one
// goroutine at a time, the rest for any.
type Listener struct {
	hub    *Hub
	filter *Matcher
	buffer int
	skip   bool

	entry *entry        // where the hub keeps it; guarded by the hub's lock
	ready chan struct{} // receives when there is something to look at

	// Of who calls Next, until it is live.
	at    string // where it reads on
	clean bool   // at stands between two looks

	mu      sync.Mutex // taken under the hub's lock, never around it
	live    *reading   // from which it gets what comes; nil while it catches up
	hand    *Item      // returned by Next, and not done
	replay  []Item     // read by itself, before what is in the queue
	queue   []Item
	done    place // all before was heard, or was not for it
	skipped int64
	err     error // why it gets no more
}

// NewListener returns a listener with a queue for so many events. If skip is set
// it misses the oldest of those when there are more, otherwise it is dropped. It
// has to be started, and closed.
func (h *Hub) NewListener(filter *Matcher, buffer int, skip bool) *Listener {
	return &Listener{hub: h, filter: filter, buffer: buffer, skip: skip, ready: make(chan struct{}, 1)}
}

// StartNow returns when all that is committed from here on will be heard, and
// nothing that was committed before the call.
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

// StartAt goes on from a cursor. It returns when it has begun to read, so that
// one which is no good fails here.
func (l *Listener) StartAt(ctx context.Context, cursor string) error {
	l.at, l.done = cursor, place{text: cursor}
	return l.catchUp(ctx)
}

// Next returns the next event, which stays the next one until [Listener.Done]. It
// waits for one until ctx ends.
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

// retryCatchUp reads events that are not live yet, again after errors that pass.
func (l *Listener) retryCatchUp(ctx context.Context) error {
	var closed error
	retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: l.hub.Log, What: "a listener cannot catch up yet"}}
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

// peek takes the next item in hand, if there is one.
func (l *Listener) peek() (item *Item, live bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err == ErrEnded:
		return nil, false, ErrEnded
	case l.hand != nil:
	case len(l.replay) > 0:
		l.hand = shift(&l.replay)
	case l.live != nil && len(l.queue) > 0:
		l.hand = shift(&l.queue)
	default:
		return nil, l.live != nil, l.err
	}
	return l.hand, true, nil
}

func shift(items *[]Item) *Item {
	first := (*items)[0]
	(*items)[0] = Item{}
	*items = (*items)[1:]
	return &first
}

// Done says that what Next returned has been dealt with.
func (l *Listener) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hand == nil {
		return
	}
	l.done = place{l.hand.way, l.hand.Event.ID}
	l.hand = nil
}

// Cursor is where a listener with the same filter can go on that shall miss
// nothing: after all that is done, and what was not for this one.
func (l *Listener) Cursor() string {
	l.mu.Lock()
	live := l.live
	l.mu.Unlock()
	var position *string
	if live != nil {
		position = live.position.Load() // before looking for what it has put into the queue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if position != nil && l.err == nil && l.isIdle() {
		l.done = place{text: *position}
	}
	return l.done.String()
}

// isIdle reports whether it has dealt with all it got. The caller holds the lock.
func (l *Listener) isIdle() bool { return l.hand == nil && len(l.replay) == 0 && len(l.queue) == 0 }

// Skipped counts the events that it has missed.
func (l *Listener) Skipped() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.skipped
}

// Close ends it. What it has not heard yet it does not hear any more.
func (l *Listener) Close() {
	l.Cursor() // as far as it has come
	l.hub.leave(l)
	l.mu.Lock()
	l.replay, l.queue = nil, nil
	l.mu.Unlock()
	l.fail(ErrEnded)
}

// fail ends it, for the first reason that there is.
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

// push puts an event into the queue. It reports whether that was too much, and
// the listener is to be dropped. All before position was handed out earlier.
func (l *Listener) push(item Item, position string) (slow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	if l.live != nil && len(l.queue) >= l.buffer { // until it is live, it is we who are slow
		if !l.skip {
			l.err = ErrSlow
			l.wake()
			return true
		}
		shift(&l.queue)
		l.skipped++
	} else if l.live != nil && l.isIdle() {
		l.done = place{text: position}
	}
	l.queue = append(l.queue, item)
	l.wake()
	return false
}

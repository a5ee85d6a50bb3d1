package listen

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes the log that a hub reads.
type Config struct {
	Pool      *pg.Pool
	Namespace string
	Watch     *logwatch.Watcher
	Log       *slog.Logger
	Closed    error // the error of listeners when the hub is closed
}

const (
	batchSize = 1000
	replays   = 2 // listeners that catch up at the same time

	// poll is how often to scan the log without a notification: an event whose
	// transaction stayed open for long causes none.
	poll = 500 * time.Millisecond
)

// Hub reads the log for all listeners of a client. It is safe for use by any number
// of goroutines.
type Hub struct {
	Config
	replays chan struct{} // has one entry for each listener that is catching up
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	reading *reading // nil while there are no listeners
}

// NewHub returns a hub, which the caller has to close.
func NewHub(config Config) *Hub {
	h := &Hub{Config: config, replays: make(chan struct{}, replays)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// Close ends all listeners, and returns when no goroutine reads any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.end()
	if r := h.reading; r != nil {
		r.finish(h.Closed)
	}
	h.mu.Unlock()
	h.running.Wait()
}

// admission is the position at which a listener joined the shared read: it receives
// the events after it.
type admission struct {
	reading  *reading
	position string
	err      error
}

// admit adds a listener to the shared read. The position of the admission lies
// between two scans of the log; the first of them began after admit was called.
func (h *Hub) admit(ctx context.Context, l *Listener) (admission, error) {
	admitted := make(chan admission, 1)
	h.mu.Lock()
	if h.ctx.Err() != nil {
		h.mu.Unlock()
		return admission{}, h.Closed
	}
	if h.reading == nil {
		h.read()
	}
	h.reading.waiting[l] = admitted
	h.reading.call()
	h.mu.Unlock()
	select {
	case a := <-admitted:
		return a, a.err
	case <-ctx.Done():
		h.leave(l)
		return admission{}, ctx.Err()
	}
}

// leave removes a listener. The hub stops reading when the last one is removed.
func (h *Hub) leave(l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.reading; r != nil {
		delete(r.waiting, l)
		delete(r.boarding, l)
		r.index.remove(l)
		r.endIfIdle()
	}
}

// read starts a reading. The caller holds the lock.
func (h *Hub) read() {
	ctx, cancel := context.WithCancel(h.ctx)
	r := &reading{
		hub: h, cancel: cancel, index: newIndex(),
		waiting: map[*Listener]chan<- admission{}, called: make(chan struct{}, 1),
	}
	h.reading = r
	h.running.Go(func() { r.run(ctx) })
}

// reading is one read of the log, which lasts while there are listeners. Only its
// goroutine uses cursor and clean; the lock of the hub guards the fields from over on.
type reading struct {
	hub    *Hub
	cancel context.CancelFunc
	cursor string
	clean  bool // cursor lies between two scans

	position atomic.Pointer[position]
	called   chan struct{} // receives when a listener waits for admission

	over     bool
	index    *index
	waiting  map[*Listener]chan<- admission // asked since the last scan began
	boarding map[*Listener]chan<- admission // asked before the last scan began
}

// position is the cursor after a scan, once all events before it are in the queues.
type position struct {
	cursor string
	scans  int // the number of scans before it
}

func (r *reading) run(ctx context.Context) {
	notified, end := r.hub.Watch.Follow(logwatch.Events)
	defer end()
	retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: r.hub.Log, Message: "cannot read the log for readers yet"}}
	for ctx.Err() == nil {
		var caughtUp bool
		err := retry.Do(ctx, func(ctx context.Context) (err error) {
			caughtUp, err = r.scan(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.hub.mu.Lock()
			r.finish(err)
			r.hub.mu.Unlock()
		case caughtUp:
			r.rest(ctx, notified)
		}
	}
}

// scan reads a batch of events and puts them into the queues. It reports whether it
// has reached the end that the log had when the scan began.
func (r *reading) scan(ctx context.Context) (caughtUp bool, err error) {
	h := r.hub
	h.mu.Lock()
	if r.boarding == nil {
		r.boarding = map[*Listener]chan<- admission{}
	}
	maps.Copy(r.boarding, r.waiting)
	clear(r.waiting)
	h.mu.Unlock()

	fresh := r.clean
	batch := pg.Batch{AtEnd: true}
	if r.cursor == "" {
		fresh = true
		batch.Next, err = pg.CursorAt(ctx, h.Pool, pg.End)
	} else {
		batch, err = pg.ReadLog(ctx, h.Pool, h.Namespace, r.cursor, batchSize)
	}
	if err != nil {
		return false, err
	}
	r.cursor, r.clean = batch.Next, batch.AtEnd

	h.mu.Lock()
	defer h.mu.Unlock()
	if r.over {
		return false, nil
	}
	r.handOut(batch)
	if fresh && batch.AtEnd {
		r.board(batch.Next)
	}
	r.endIfIdle()
	return fresh && batch.AtEnd, nil
}

// handOut puts each event into the queues of the listeners whose filters it passes,
// and removes listeners whose queues overflow.
func (r *reading) handOut(batch pg.Batch) {
	before := r.position.Load()
	if before == nil {
		before = new(position)
	}
	var slow []*Listener
	for i := range batch.Events {
		s := subject{Event: &batch.Events[i]}
		var shared *pg.Event
		r.index.find(&s, func(e *entry) {
			if shared == nil { // a copy, so that a queue with this event does not keep the whole batch in memory
				shared = new(pg.Event)
				*shared = batch.Events[i]
			}
			for _, l := range e.listeners {
				if l.push(Item{shared, batch.Prefix}, before) {
					slow = append(slow, l)
				}
			}
		})
	}
	r.position.Store(&position{batch.Next, before.scans + 1})
	for _, l := range slow {
		r.index.remove(l)
	}
}

// board adds the listeners that asked before the last scan.
func (r *reading) board(position string) {
	for l, admitted := range r.boarding {
		r.index.add(l)
		admitted <- admission{reading: r, position: position}
	}
	clear(r.boarding)
}

// rest waits for a notification, or for a listener that asks for admission.
func (r *reading) rest(ctx context.Context, notified <-chan struct{}) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-notified:
	case <-r.called:
	case <-timer.C:
	}
}

func (r *reading) call() {
	select {
	case r.called <- struct{}{}:
	default:
	}
}

// finish ends the reading, with an error for all listeners. The caller holds the lock.
func (r *reading) finish(err error) {
	if r.over {
		return
	}
	for _, came := range []map[*Listener]chan<- admission{r.waiting, r.boarding} {
		for l, admitted := range came {
			delete(came, l)
			admitted <- admission{err: err}
		}
	}
	for _, e := range r.index.byName {
		for _, l := range e.listeners {
			l.entry = nil
			l.fail(err)
		}
	}
	r.index = newIndex()
	r.endIfIdle()
}

// endIfIdle ends the reading when there are no listeners. The caller holds the lock.
func (r *reading) endIfIdle() {
	if !r.over && r.index.isEmpty() && len(r.waiting) == 0 && len(r.boarding) == 0 {
		r.over = true
		r.hub.reading = nil
		r.cancel()
	}
}

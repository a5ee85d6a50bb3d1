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

// Config says what a hub reads, and how.
type Config struct {
	Pool      *pg.Pool
	Namespace string
	Watch     *logwatch.Watcher
	Log       *slog.Logger
	Closed    error // that listeners get when the hub is closed
}

const (
	batchSize = 1000
	replays   = 2 // that read at the same time, for all listeners

	// poll is how often to look for what there was no news of: an event whose
	// transaction stayed open for long.
	poll = 250 * time.Millisecond
)

// Hub is what the listeners of a client share. It is safe for use by any number
// of goroutines.
type Hub struct {
	Config
	turns   chan struct{} // who holds one may read for one listener
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	reading *reading // nil while nobody listens
}

// NewHub returns a hub. It has to be closed.
func NewHub(config Config) *Hub {
	h := &Hub{Config: config, turns: make(chan struct{}, replays)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// Close ends all listeners, and returns when nothing reads any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.end()
	if r := h.reading; r != nil {
		r.finish(h.Closed)
	}
	h.mu.Unlock()
	h.running.Wait()
}

// admission is where a listener was let in: it gets what comes after.
type admission struct {
	reading  *reading
	position string
	err      error
}

// admit lets a listener in. The position stands between two looks at the log,
// of which the first was taken after admit was called.
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

// leave takes a listener out. After the last one the hub reads no more.
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

// read begins to read. The caller holds the lock.
func (h *Hub) read() {
	ctx, cancel := context.WithCancel(h.ctx)
	r := &reading{
		hub: h, cancel: cancel, index: newIndex(),
		waiting: map[*Listener]chan<- admission{}, called: make(chan struct{}, 1),
	}
	h.reading = r
	h.running.Go(func() { r.run(ctx) })
}

// reading is one read of the log, for as long as anybody listens. What is below
// its goroutine's own is guarded by the lock of the hub.
type reading struct {
	hub    *Hub
	cancel context.CancelFunc
	cursor string
	clean  bool // cursor stands between two looks

	position atomic.Pointer[string] // the cursor, when what came before it has been handed out
	called   chan struct{}          // receives when somebody waits

	over     bool
	index    *index
	waiting  map[*Listener]chan<- admission // came since the last look
	boarding map[*Listener]chan<- admission // came before it
}

func (r *reading) run(ctx context.Context) {
	news, end := r.hub.Watch.Subscribe()
	defer end()
	defer r.hub.Watch.KeepRunning()()
	retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: r.hub.Log, What: "cannot read for listeners yet"}}
	for ctx.Err() == nil {
		var caughtUp bool
		err := retry.Do(ctx, func(ctx context.Context) (err error) {
			caughtUp, err = r.look(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.hub.mu.Lock()
			r.finish(err)
			r.hub.mu.Unlock()
		case caughtUp:
			r.rest(ctx, news)
		}
	}
}

// look reads some events and hands them out. It reports whether these were all
// that there were when it began to look.
func (r *reading) look(ctx context.Context) (caughtUp bool, err error) {
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

// handOut puts each event into the queues of those who want it. Whoever lets
// theirs overflow is out.
func (r *reading) handOut(batch pg.Batch) {
	var before string
	if position := r.position.Load(); position != nil {
		before = *position
	}
	var slow []*Listener
	for i := range batch.Events {
		s := subject{Event: &batch.Events[i]}
		var shared *pg.Event
		r.index.find(&s, func(e *entry) {
			if shared == nil { // by itself: a queue that keeps it must not keep the whole batch
				shared = new(pg.Event)
				*shared = batch.Events[i]
			}
			for _, l := range e.listeners {
				if l.push(Item{shared, batch.Way}, before) {
					slow = append(slow, l)
				}
			}
		})
	}
	r.position.Store(&batch.Next)
	for _, l := range slow {
		r.index.remove(l)
	}
}

// board lets in those who came before the last look.
func (r *reading) board(position string) {
	for l, admitted := range r.boarding {
		r.index.add(l)
		admitted <- admission{reading: r, position: position}
	}
	clear(r.boarding)
}

// rest waits for news, or for somebody who wants to be let in.
func (r *reading) rest(ctx context.Context, news <-chan struct{}) {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-news:
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

// finish ends it with an error for all who listen. The caller holds the lock.
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

// endIfIdle ends it when nobody listens. The caller holds the lock.
func (r *reading) endIfIdle() {
	if !r.over && r.index.isEmpty() && len(r.waiting) == 0 && len(r.boarding) == 0 {
		r.over = true
		r.hub.reading = nil
		r.cancel()
	}
}

package importer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// leadership is the work of a process while it leads. It reads the broker and
// publishes, until the lead is lost or given back.
type leadership struct {
	Config
	lead    pg.ImportLead
	changed chan struct{} // receives when the set of streams to read has changed

	mu        sync.Mutex
	positions map[string]string    // in the database, by stream
	read      map[string]string    // positions of the reader, by stream
	refused   map[string]time.Time // streams that the database refuses, with the time of the next try
	interrupt context.CancelFunc   // of the read that is under way
	faults    map[string]string    // errors by activity
	noted     *string              // the error in the database; nil: unknown

	passed worker.Failures // entries that are no events
}

func newLeadership(config Config, lead pg.ImportLead) *leadership {
	return &leadership{
		Config: config, lead: lead, changed: make(chan struct{}, 1),
		read: map[string]string{}, refused: map[string]time.Time{}, faults: map[string]string{},
		passed: worker.Failures{Log: config.Log, LeftOut: "more entries of the broker were passed over than are logged"},
	}
}

const (
	lookEvery  = 2 * time.Second // how often to ask the broker for its streams and their lag
	readWait   = time.Second     // how long to wait for entries
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second  // between tries, at most
	brokerTime = 20 * time.Second // of one request to the broker
	noteTime   = 10 * time.Second // of a statement that records status
)

// Extend keeps the lead.
func (l *leadership) Extend(ctx context.Context) error {
	_, err := l.Config.lead(ctx, l.lead.Epoch)
	return err
}

// Release gives the lead back.
func (l *leadership) Release(ctx context.Context) error { return pg.ResignImport(ctx, l.Pool, l.lead) }

// Work imports until stop or ctx ends. One goroutine reads, one batch ahead of the
// one that is published here; another watches the streams of the broker.
func (l *leadership) Work(stop, ctx context.Context) error {
	var err error
	if l.positions, err = pg.ImportPositions(ctx, l.Pool, l.Import); err != nil {
		return err
	}
	reading, end := context.WithCancel(ctx)
	defer context.AfterFunc(stop, end)()
	var all sync.WaitGroup
	batches := make(chan batch)
	all.Go(func() { l.watchBroker(reading) })
	all.Go(func() { l.readAhead(reading, batches) })
	for b := range batches {
		if err = l.publish(ctx, b); err != nil {
			break
		}
	}
	end()
	for range batches { // the reader ends
	}
	all.Wait()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// batch has the entries of one read, and the position of each stream before them.
type batch struct {
	from    map[string]string
	entries []Entry
}

// readAhead reads until ctx ends.
func (l *leadership) readAhead(ctx context.Context, batches chan<- batch) {
	defer close(batches)
	pause := firstPause
	for ctx.Err() == nil {
		reading, cancel := context.WithCancel(ctx)
		after := l.wanted(cancel)
		if len(after) == 0 {
			cancel()
			worker.Rest(ctx, readWait, l.changed)
			continue
		}
		entries, err := l.Source.Read(reading, after, l.BatchSize, readWait)
		interrupted := reading.Err() != nil
		cancel()
		switch {
		case err == nil:
			pause = firstPause
			l.fault(ctx, "read", nil)
		case !interrupted:
			l.fault(ctx, "read", err)
			worker.Pause(ctx, pause)
			pause = min(2*pause, lastPause)
		}
		if len(entries) == 0 {
			continue
		}
		l.advance(entries)
		select {
		case batches <- batch{after, entries}:
		case <-ctx.Done():
		}
	}
}

// wanted returns the streams to read, with the position to read from.
func (l *leadership) wanted(interrupt context.CancelFunc) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupt = interrupt
	after := maps.Clone(l.read)
	for stream, until := range l.refused {
		if time.Now().Before(until) {
			delete(after, stream)
			continue
		}
		delete(l.refused, stream)
		l.read[stream] = l.positions[stream]
		after[stream] = l.positions[stream]
	}
	return after
}

// advance moves the positions of the reader past entries.
func (l *leadership) advance(entries []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		l.read[entries[i].Stream] = entries[i].Position
	}
}

// watchBroker regularly asks the broker for its streams and their lag, and reports the
// positions of the import to it.
func (l *leadership) watchBroker(ctx context.Context) {
	kept := map[string]string{}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.checkBroker(ctx, kept)
		if ctx.Err() == nil {
			l.fault(ctx, "look", err)
		}
		worker.Pause(ctx, max(lookEvery, 5*time.Since(began)))
	}
}

func (l *leadership) checkBroker(ctx context.Context, kept map[string]string) error {
	listing, cancel := context.WithTimeout(ctx, brokerTime)
	found, err := l.Source.Streams(listing)
	cancel()
	if err != nil {
		return err
	}
	positions := l.follow(found)
	lags := make([]pg.StreamLag, 0, len(positions))
	for stream, position := range positions {
		lag, err := l.lag(ctx, stream, position, kept)
		if err != nil {
			return err
		}
		lags = append(lags, lag)
	}
	noting, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	return pg.NoteImportLag(noting, l.Pool, l.lead, lags)
}

// lag returns the number of entries of a stream that are not imported yet, and reports
// the position to the broker unless it has been reported before.
func (l *leadership) lag(ctx context.Context, stream, position string, kept map[string]string) (pg.StreamLag, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTime)
	defer cancel()
	lag := pg.StreamLag{Stream: stream}
	events, oldest, err := l.Source.Lag(ctx, stream, position)
	if err != nil {
		return lag, err
	}
	if lag.Events = events; events > 0 {
		lag.Oldest = &oldest
	}
	if was, known := kept[stream]; !known || was != position {
		if err := l.Source.SavePosition(ctx, l.lead.KnownAs, stream, position); err != nil {
			return lag, err
		}
		kept[stream] = position
	}
	return lag, nil
}

// follow begins to read new streams, and returns the position of the import in each
// stream of the broker that matches its patterns.
func (l *leadership) follow(found []string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	positions := map[string]string{}
	fresh := false
	for _, stream := range found {
		if !consume.MatchesAny(l.lead.Streams, stream) {
			continue
		}
		positions[stream] = l.positions[stream]
		if _, follows := l.read[stream]; !follows {
			l.read[stream], fresh = l.positions[stream], true
		}
	}
	if fresh {
		if l.interrupt != nil {
			l.interrupt()
		}
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
	return positions
}

// fault records the error of an activity in the database; nil ends an earlier one.
func (l *leadership) fault(ctx context.Context, activity string, err error) {
	text := ""
	if err != nil {
		text = worker.Clip(err.Error())
	}
	l.mu.Lock()
	l.faults[activity] = text
	text = cmp.Or(l.faults["read"], l.faults["look"])
	same := l.noted != nil && *l.noted == text
	l.mu.Unlock()
	if same {
		return
	}
	if text != "" {
		l.Log.Warn("the import cannot go on, trying again", "error", text)
	}
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if err := pg.NoteImportError(ctx, l.Pool, l.lead, "", text); err != nil {
		if ctx.Err() == nil && !errors.Is(err, pg.ErrLeaseLost) {
			l.Log.Warn("the status of the import could not be noted", "error", err)
		}
		return
	}
	l.mu.Lock()
	l.noted = &text
	l.mu.Unlock()
}

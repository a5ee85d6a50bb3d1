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

// term is what a process does from taking the lead of an import to losing it or
// giving it back.
type term struct {
	Config
	lead pg.ImportLead
	kick chan struct{} // receives when the streams to read are others

	mu        sync.Mutex
	positions map[string]string    // as they are in the database, of all streams of the broker
	read      map[string]string    // where to read on
	held      map[string]time.Time // streams that the database refuses: when to try again
	interrupt context.CancelFunc   // of the reading that goes on
	faults    map[string]string    // by activity
	noted     *string              // the fault that the database has; nil: it may have one of an earlier term
}

func newTerm(config Config, lead pg.ImportLead) *term {
	return &term{
		Config: config, lead: lead, kick: make(chan struct{}, 1),
		positions: map[string]string{}, read: map[string]string{}, held: map[string]time.Time{}, faults: map[string]string{},
	}
}

const (
	lookEvery  = 2 * time.Second // how often to ask the broker for its streams and what it has left
	readWait   = time.Second     // how long to wait for entries
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second  // when the broker does not answer, and before a stream is tried again
	brokerTime = 20 * time.Second // of one look at the broker, for each stream at most
)

// run imports until stop or the lead ends. One goroutine reads, one batch ahead of
// the one that is published here; one looks what there is; one keeps the lead.
func (t *term) run(stop context.Context) error {
	var err error
	if t.positions, err = t.load(stop); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stop)
	var all sync.WaitGroup
	batches := make(chan batch)
	all.Go(func() { extend(ctx, t.Config, t.lead, end) })
	all.Go(func() { t.look(ctx) })
	all.Go(func() { t.readAhead(ctx, batches) })
	for b := range batches {
		if err = t.publish(ctx, b); err != nil {
			break
		}
	}
	end(err)
	for range batches { // the reader ends
	}
	all.Wait()
	if err == nil && stop.Err() == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (t *term) load(stop context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(stop, lastWords)
	defer cancel()
	known, err := pg.ImportPositions(ctx, t.Pool, t.Import)
	return known, err
}

// batch is what was read at once: the entries, and where each stream stood before.
type batch struct {
	from    map[string]string
	entries []Entry
}

// readAhead reads until ctx ends.
func (t *term) readAhead(ctx context.Context, batches chan<- batch) {
	defer close(batches)
	pause := firstPause
	for ctx.Err() == nil {
		reading, cancel := context.WithCancel(ctx)
		after := t.wanted(cancel)
		if len(after) == 0 {
			cancel()
			worker.Rest(ctx, readWait, t.kick)
			continue
		}
		entries, err := t.Source.Read(reading, after, t.BatchSize, readWait)
		interrupted := reading.Err() != nil
		cancel()
		switch {
		case err == nil:
			pause = firstPause
			t.fault(ctx, "read", nil)
		case !interrupted:
			t.fault(ctx, "read", err)
			worker.Pause(ctx, pause)
			pause = min(2*pause, lastPause)
		}
		if len(entries) == 0 {
			continue
		}
		t.advance(entries)
		select {
		case batches <- batch{after, entries}:
		case <-ctx.Done():
		}
	}
}

// wanted are the streams to read, and where to read on in each.
func (t *term) wanted(interrupt context.CancelFunc) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt = interrupt
	after := maps.Clone(t.read)
	for stream, until := range t.held {
		if time.Now().Before(until) {
			delete(after, stream)
			continue
		}
		delete(t.held, stream)
		t.read[stream] = t.positions[stream]
		after[stream] = t.positions[stream]
	}
	return after
}

// advance moves the reading past entries.
func (t *term) advance(entries []Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range entries {
		t.read[entries[i].Stream] = entries[i].Position
	}
}

// look asks the broker every now and then which streams there are and how much of
// them is left, and tells it how far the import is.
func (t *term) look(ctx context.Context) {
	kept := map[string]string{}
	for ctx.Err() == nil {
		began := time.Now()
		err := t.lookOnce(ctx, kept)
		if ctx.Err() == nil {
			t.fault(ctx, "look", err)
		}
		worker.Pause(ctx, max(lookEvery, 5*time.Since(began)))
	}
}

func (t *term) lookOnce(ctx context.Context, kept map[string]string) error {
	listing, cancel := context.WithTimeout(ctx, brokerTime)
	found, err := t.Source.Streams(listing)
	cancel()
	if err != nil {
		return err
	}
	positions := t.follow(found)
	lags := make([]pg.StreamLag, 0, len(positions))
	for stream, position := range positions {
		lag, err := t.lag(ctx, stream, position, kept)
		if err != nil {
			return err
		}
		lags = append(lags, lag)
	}
	noting, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	return pg.NoteImportLag(noting, t.Pool, t.lead, lags)
}

// lag asks how much the broker has left of a stream. What was kept before need not
// be kept again.
func (t *term) lag(ctx context.Context, stream, position string, kept map[string]string) (pg.StreamLag, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTime)
	defer cancel()
	lag := pg.StreamLag{Stream: stream}
	events, oldest, err := t.Source.Behind(ctx, stream, position)
	if err != nil {
		return lag, err
	}
	if lag.Events = events; events > 0 {
		lag.Oldest = &oldest
	}
	if was, known := kept[stream]; !known || was != position {
		if err := t.Source.Keep(ctx, t.lead.KnownAs, stream, position); err != nil {
			return lag, err
		}
		kept[stream] = position
	}
	return lag, nil
}

// follow adds streams that are new to those that are read, and returns where the
// import is in each of those that the broker has.
func (t *term) follow(found []string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	positions := map[string]string{}
	fresh := false
	for _, stream := range found {
		if !consume.MatchesAny(t.lead.Streams, stream) {
			continue
		}
		positions[stream] = t.positions[stream]
		if _, follows := t.read[stream]; !follows {
			t.read[stream], fresh = t.positions[stream], true
		}
	}
	if fresh {
		if t.interrupt != nil {
			t.interrupt()
		}
		select {
		case t.kick <- struct{}{}:
		default:
		}
	}
	return positions
}

// fault notes the error of an activity in the database, and that it is over.
func (t *term) fault(ctx context.Context, activity string, err error) {
	text := ""
	if err != nil {
		text = worker.Clip(err.Error())
	}
	t.mu.Lock()
	t.faults[activity] = text
	text = cmp.Or(t.faults["read"], t.faults["look"])
	same := t.noted != nil && *t.noted == text
	t.mu.Unlock()
	if same {
		return
	}
	if text != "" {
		t.Log.Warn("the import cannot go on, trying again", "import", t.Import.Name, "error", text)
	}
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if err := pg.NoteImportError(ctx, t.Pool, t.lead, "", text); err != nil {
		if ctx.Err() == nil && !errors.Is(err, pg.ErrLeaseLost) {
			t.Log.Warn("the status of the import could not be noted", "import", t.Import.Name, "error", err)
		}
		return
	}
	t.mu.Lock()
	t.noted = &text
	t.mu.Unlock()
}

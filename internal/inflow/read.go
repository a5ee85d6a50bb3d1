package inflow

import (
	"context"
	"maps"
	"time"

	"github.com/posthorn/posthorn/internal/worker"
)

// How long to wait for entries: where all streams are read, and where some are
// not, because they have enough for now.
const (
	longWait  = time.Second
	shortWait = 10 * time.Millisecond
)

// How long to wait when the broker does not answer, at first and at most.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// read reads from the broker until ctx ends.
func (f *Feed) read(ctx context.Context) {
	pause := firstPause
	for down := false; ctx.Err() == nil; {
		reading, cancel := context.WithCancel(ctx)
		after, held, wait := f.wants(cancel)
		if len(after) == 0 {
			cancel()
			worker.Rest(ctx, longWait, f.more)
			continue
		}
		entries, err := f.Source.Read(reading, after, f.BatchSize, wait)
		interrupted := reading.Err() != nil
		cancel()
		switch {
		case err == nil:
			if down {
				f.Log.Info("the broker answers again", "group", f.Group.Name)
			}
			down, pause = false, firstPause
		case ctx.Err() != nil:
			return
		case !interrupted:
			if !down {
				f.Log.Warn("cannot read from the broker, trying again", "group", f.Group.Name, "error", err)
			}
			down = true
			worker.Pause(ctx, pause)
			pause = min(2*pause, lastPause)
		}
		f.took(entries, held)
	}
}

// wants are the streams of which more is needed, and where to read on.
func (f *Feed) wants(interrupt context.CancelFunc) (after map[string]string, held map[string]*stream, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupt = interrupt
	after = map[string]string{}
	wait = longWait
	if f.buffered < 10*f.BatchSize {
		for name, s := range f.streams {
			if s.stale || s.blocked || len(s.buffer) >= 2*f.BatchSize {
				wait = shortWait
				continue
			}
			after[name] = s.read
		}
	}
	return after, maps.Clone(f.streams), wait
}

// took adds what was read to the streams that are still the same.
func (f *Feed) took(entries []Entry, held map[string]*stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		s := held[e.Stream]
		if s == nil || s.stale || f.streams[e.Stream] != s {
			continue
		}
		s.buffer = append(s.buffer, *e)
		s.read = e.Position
		f.buffered++
		f.queue(s)
	}
}

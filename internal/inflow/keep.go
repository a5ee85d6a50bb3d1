package inflow

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// lastWords is for what is said when it is over.
const lastWords = 10 * time.Second

// keeper looks after the streams: which there are, which of them are ours, which
// go on again.
type keeper struct {
	*Feed
	stop   context.Context
	names  []string  // of all streams that are wanted
	listed time.Time // when that was asked
	joined time.Time // when this reader said last that it lives
	known  string    // the group's name at the broker
	down   bool      // the broker did not answer last time
}

// keep looks after the streams until ctx ends, but takes none when stop has.
func (f *Feed) keep(ctx, stop context.Context, fail context.CancelCauseFunc) {
	k := &keeper{Feed: f, stop: stop}
	for complained := false; ctx.Err() == nil; {
		err := k.tend(ctx)
		switch {
		case err == nil:
			complained = false
		case ctx.Err() != nil:
			return
		case errors.Is(err, pg.ErrConflict), errors.Is(err, pg.ErrNotFound), errors.Is(err, pg.ErrRefused):
			fail(&finalError{err})
			return
		default:
			if !complained {
				f.Log.Warn("cannot look after the streams of a group yet", "group", f.Group.Name, "error", err)
			}
			complained = true
		}
		k.rest(ctx, err != nil)
	}
}

// listEvery is how often to ask for new streams, and to tell the broker how far
// the group is.
func (k *keeper) listEvery() time.Duration {
	return min(3*time.Second, max(50*time.Millisecond, 12*k.IdlePoll), k.LeaseFor/3)
}

// rest waits until it is time to look again.
func (k *keeper) rest(ctx context.Context, trouble bool) {
	wait := k.listEvery()
	if k.waiting() {
		wait = min(wait, k.IdlePoll)
	}
	if trouble {
		worker.Pause(ctx, max(wait, firstPause))
		return
	}
	worker.Rest(ctx, wait, k.kick)
}

// waiting reports whether a stream is held back, or is to be taken anew.
func (k *keeper) waiting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.streams {
		if s.stale && !s.isOut || s.blocked {
			return true
		}
	}
	return false
}

func (k *keeper) tend(ctx context.Context) error {
	due := time.Since(k.listed) >= k.listEvery()
	if due {
		if err := k.round(ctx); err != nil {
			return err
		}
	}
	if k.stop.Err() != nil {
		return nil
	}
	if err := k.takeAnew(ctx); err != nil {
		return err
	}
	return k.unblock(ctx)
}

// round is what is done every few seconds.
func (k *keeper) round(ctx context.Context) error {
	passed := k.passed()
	state, err := k.join(ctx)
	if err != nil {
		return err
	}
	if !k.joined.IsZero() && time.Since(k.joined) > k.LeaseFor {
		k.loseAll() // we were taken for dead
	}
	k.joined, k.known = time.Now(), state.KnownAs
	k.learn(state)
	k.listed = time.Now()
	if k.stop.Err() != nil {
		return nil
	}
	if err := k.list(ctx, state); err != nil {
		if ctx.Err() == nil && !k.down {
			k.Log.Warn("cannot ask the broker for its streams, trying again", "group", k.Group.Name, "error", err)
		}
		k.down = true
		return nil // streams that we have go on
	}
	k.down = false
	k.tell(ctx, passed) // joining was written to disk, and so all that was settled before
	return k.share(ctx, state)
}

// join says that this reader lives. A call that was called off could arrive after
// leave's, and the reader would live on.
func (k *keeper) join(ctx context.Context) (pg.SourceState, error) {
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	return pg.JoinSource(ctx, k.Pool, k.Group.ID, k.reader, k.Node, k.LeaseFor)
}

// learn applies what the database says of the group.
func (k *keeper) learn(state pg.SourceState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused, k.from = state.Paused, state.From
	k.change.Broadcast()
}

// list asks for the streams; before the group has begun, also where they end.
func (k *keeper) list(ctx context.Context, state pg.SourceState) error {
	ctx, cancel := context.WithTimeout(ctx, k.LeaseFor/6)
	defer cancel()
	found, err := k.Source.Streams(ctx)
	if err != nil {
		return err
	}
	names := found[:0:0]
	for _, name := range found {
		if k.Wanted(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if !state.Begun {
		ends := make([]string, len(names))
		for i, name := range names {
			if ends[i], err = k.Source.End(ctx, name); err != nil {
				return err
			}
		}
		if err := pg.BeginSource(ctx, k.Pool, k.Group.ID, names, ends); err != nil {
			return err
		}
	}
	k.names = slices.Compact(names)
	return nil
}

// share takes as many streams as are this reader's part, or gives up what is more.
func (k *keeper) share(ctx context.Context, state pg.SourceState) error {
	part := (len(k.names) + state.Readers - 1) / max(state.Readers, 1)
	k.mu.Lock()
	have := len(k.streams)
	var others []string
	for _, name := range k.names {
		if k.streams[name] == nil {
			others = append(others, name)
		}
	}
	k.mu.Unlock()
	switch {
	case have > part:
		return k.giveUp(ctx, have-part)
	case have < part && len(others) > 0:
		return k.take(ctx, others, part-have)
	}
	return nil
}

// giveUp gives streams to those who have less, as far as nobody works on them.
func (k *keeper) giveUp(ctx context.Context, n int) error {
	k.mu.Lock()
	var names, fences []string
	for name, s := range k.streams {
		if len(names) == n {
			break
		}
		if s.isOut || s.stale {
			continue
		}
		names, fences = append(names, name), append(fences, s.fence)
		k.buffered -= len(s.buffer)
		s.buffer = nil
		delete(k.streams, name)
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return pg.ReleaseSourceStreams(ctx, k.Pool, k.Group.ID, names, fences)
}

// take takes streams that are free, and finds out whether they may go on.
func (k *keeper) take(ctx context.Context, names []string, most int) error {
	taken, err := pg.TakeSourceStreams(ctx, k.Pool, k.Group.ID, k.reader, names, most)
	if err != nil || len(taken) == 0 {
		return err
	}
	fresh := map[string]*stream{}
	taking := make([]string, len(taken))
	for i, t := range taken {
		fresh[t.Stream], taking[i] = newStream(t, k.BatchSize), t.Stream
	}
	if k.Blocks {
		blocks, err := pg.SourceBlocks(ctx, k.Pool, k.Group.ID, taking)
		if err != nil {
			return err // they are ours, and will be found to be so
		}
		for _, b := range blocks {
			fresh[b.Stream].block(b)
		}
	}
	known := map[*stream]string{}
	k.mu.Lock()
	for name, s := range fresh {
		k.streams[name] = s
		known[s] = s.done
	}
	k.interruptReading()
	k.mu.Unlock()
	k.tell(ctx, known) // from now on, nothing of it may be thrown away
	return nil
}

// interruptReading lets the reader begin anew, with other streams. The caller
// holds the lock.
func (k *keeper) interruptReading() {
	if k.interrupt != nil {
		k.interrupt()
	}
	wake(k.more)
}

// loseAll makes all streams ones that are to be taken anew.
func (k *keeper) loseAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.streams {
		if !s.stale {
			k.forget(s)
		}
	}
}

// takeAnew takes the streams again of which we have lost track. Those that are
// somebody else's by now are none of ours.
func (k *keeper) takeAnew(ctx context.Context) error {
	k.mu.Lock()
	var names []string
	for name, s := range k.streams {
		if s.stale && !s.isOut {
			names = append(names, name)
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := k.take(ctx, names, len(names)); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		if k.streams[name].stale {
			delete(k.streams, name)
		}
	}
	return nil
}

// unblock asks which of the streams that are held back go on.
func (k *keeper) unblock(ctx context.Context) error {
	k.mu.Lock()
	held := map[string]*stream{}
	var names []string
	for name, s := range k.streams {
		if s.blocked && !s.stale && !s.isOut {
			held[name], names = s, append(names, name)
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	blocks, err := pg.SourceBlocks(ctx, k.Pool, k.Group.ID, names)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range held {
		s.blocked, s.keys = false, nil
	}
	for _, b := range blocks {
		held[b.Stream].block(b)
	}
	for _, s := range held {
		k.queue(s)
	}
	wake(k.more)
	return nil
}

// passed is how far streams are that the broker does not know of.
func (k *keeper) passed() map[*stream]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	passed := map[*stream]string{}
	for _, s := range k.streams {
		if !s.stale && (s.kept == nil || *s.kept != s.done) {
			passed[s] = s.done
		}
	}
	return passed
}

// tell lets the broker know how far the group is.
func (k *keeper) tell(ctx context.Context, passed map[*stream]string) {
	ctx, cancel := context.WithTimeout(ctx, k.LeaseFor/6)
	defer cancel()
	for s, position := range passed {
		if err := k.Source.Keep(ctx, k.known, s.name, position); err != nil {
			if ctx.Err() == nil {
				k.Log.Warn("cannot tell the broker how far the group is", "group", k.Group.Name, "stream", s.name, "error", err)
			}
			return // the next time
		}
		k.mu.Lock()
		s.kept = &position
		k.mu.Unlock()
	}
}

// leave gives everything up. It is written to disk, and all that was settled
// before: then the broker may know.
func (f *Feed) leave(ctx context.Context) {
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	k := &keeper{Feed: f}
	passed := k.passed()
	state, err := k.join(ctx)
	if err == nil {
		k.known = state.KnownAs
		err = pg.LeaveSource(ctx, f.Pool, f.Group.ID, f.reader)
	}
	if err != nil {
		if !errors.Is(err, pg.ErrConflict) {
			f.Log.Warn("cannot give streams back; they go to others in a while", "group", f.Group.Name, "error", err)
		}
		return
	}
	k.tell(ctx, passed)
}

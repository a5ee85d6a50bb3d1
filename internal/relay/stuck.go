package relay

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// stuck is a stream that the broker refuses. It stays stuck while any of its events
// are owed: events that are set aside in the database, and events of windows that are
// not settled yet. After that it is written with the other streams again.
type stuck struct {
	name  string
	owed  int // events
	tries int
	next  time.Time // when to try again
}

// atOnce is how many stuck streams one call of Write may contain.
const atOnce = 16

// remember restores the stuck streams of earlier leaderships.
func (l *leadership) remember(aside []pg.SetAside) {
	now := time.Now()
	for _, s := range aside {
		l.stuck[s.StreamID] = &stuck{name: s.Stream, owed: int(s.Events), next: now}
		l.owed += int(s.Events)
	}
}

// setAside notes the streams of parts as stuck, and returns their events.
func (l *leadership) setAside(pending []*part, cause error) []pg.Aside {
	var aside []pg.Aside
	var names []string
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pending {
		ids := make([]int64, len(p.events))
		for i := range p.events {
			ids[i] = p.events[i].ID
		}
		aside = append(aside, pg.Aside{StreamID: p.stream, IDs: ids})
		l.stuck[p.stream] = &stuck{name: p.name, owed: len(ids), next: time.Now().Add(l.Backoff.after(1))}
		l.owed += len(ids)
		names = append(names, p.name)
	}
	message := "the broker does not take some streams; their events are set aside and tried again"
	if l.down { // the next streams show whether the broker is down
		message = "the broker takes nothing; events are set aside, and other streams are tried"
	}
	l.Log.Warn(message, "streams", len(names), "such_as", names[0], "error", cause)
	return aside
}

// retry writes the first events of stuck streams, beside the windows.
func (l *leadership) retry() {
	for l.going.Err() == nil {
		due, wait, changed := l.due()
		if len(due) == 0 {
			worker.Rest(l.going, wait, changed)
			continue
		}
		if err := l.retryOnce(due); errors.Is(err, pg.ErrMoved) {
			return // fetch ends the lead when the windows that were written are settled
		} else if err != nil {
			l.end(err)
		}
	}
}

// due returns the stuck streams to try now, the longest waiting first, or the time
// until the next one is due.
func (l *leadership) due() (due []int64, wait time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	wait = time.Minute
	for stream, s := range l.stuck {
		if s.next.After(now) {
			wait = min(wait, s.next.Sub(now))
		} else {
			due = append(due, stream)
		}
	}
	slices.SortFunc(due, func(a, b int64) int { return l.stuck[a].next.Compare(l.stuck[b].next) })
	return due[:min(len(due), atOnce)], wait, l.changed
}

func (l *leadership) retryOnce(due []int64) error {
	windows, err := l.Pool.TakeAside(l.ctx, l.lead, due, l.LeaseFor)
	if err != nil {
		return err
	}
	l.postpone(due, windows)
	if len(windows) == 0 {
		return nil
	}
	a := &attempt{}
	for i := range windows {
		w := &windows[i]
		p := &part{stream: w.StreamIDs[0], events: w.Events}
		if len(w.Events) > 0 {
			p.name = w.Events[0].Stream
		}
		a.parts = append(a.parts, p)
	}
	if len(a.pending()) > 0 && l.call(a) {
		l.noteUp()
	}
	if len(a.pending()) > 0 && l.ctx.Err() == nil {
		l.noteFailure(a.err)
	}
	if l.ctx.Err() != nil {
		return nil // the next leader gives them back
	}
	leases := make([]pg.SettledAside, len(windows))
	for i := range windows {
		upto := int64(math.MaxInt64)
		if rest := a.parts[i].events; len(rest) > 0 {
			upto = rest[0].ID - 1
		}
		leases[i] = pg.SettledAside{Lease: windows[i].Lease, UpTo: upto}
	}
	done, err := pg.SettleAside(l.ctx, l.Pool, l.lead, leases, pg.RelayReport{Relayed: a.relayed(), Failures: a.failures})
	if err != nil {
		return err
	}
	if len(a.failures) > 0 {
		l.Buried(l.ctx, a.failures)
	}
	l.wentOn(a.parts, done)
	if len(a.pending()) == 0 {
		l.noteSuccess()
	}
	return nil
}

// postpone sets the times of the next tries. A stream without a window was not tried:
// its events are in a window that is not settled yet.
func (l *leadership) postpone(streams []int64, windows []pg.Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, stream := range streams {
		s := l.stuck[stream]
		if slices.ContainsFunc(windows, func(w pg.Window) bool { return w.StreamIDs[0] == stream }) {
			s.tries++
		}
		s.next = time.Now().Add(l.Backoff.after(s.tries))
	}
}

// wentOn notes that events of stuck streams were written. A stream without owed events
// is no longer stuck, from the next window on.
func (l *leadership) wentOn(parts []*part, done map[int64]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		s := l.stuck[p.stream]
		s.owed -= done[p.stream]
		l.owed -= done[p.stream]
		if len(p.events) == 0 {
			s.tries, s.next = 0, time.Now() // all events of this try were written: go on at once
		}
		if s.owed == 0 {
			delete(l.stuck, p.stream)
			l.Log.Info("the broker takes a stream again", "stream", s.name)
		}
	}
	l.notify()
}

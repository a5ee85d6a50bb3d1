package relay

import (
	"math"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// stuck is a stream that the broker does not take. It is over when it owes
// nothing: neither what the database has set aside, nor what windows have that are
// not settled yet.
type stuck struct {
	name  string
	owed  int
	tries int
	next  time.Time
}

// atOnce is how many stuck streams are tried in one call.
const atOnce = 16

// remember begins with what earlier terms have set aside.
func (t *term) remember(aside []pg.SetAside) {
	now := time.Now()
	for _, s := range aside {
		t.stuck[s.StreamID] = &stuck{name: s.Stream, owed: int(s.Events), next: now}
		t.owed += int(s.Events)
	}
}

// setAside makes stuck streams of parts, and returns their events.
func (t *term) setAside(pending []*part, cause error) []pg.Aside {
	var aside []pg.Aside
	var names []string
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range pending {
		ids := make([]int64, len(p.events))
		for i := range p.events {
			ids[i] = p.events[i].ID
		}
		aside = append(aside, pg.Aside{StreamID: p.stream, IDs: ids})
		t.stuck[p.stream] = &stuck{name: p.name, owed: len(ids), next: time.Now().Add(t.Backoff.after(1))}
		t.owed += len(ids)
		names = append(names, p.name)
	}
	t.Log.Warn("the broker does not take some streams; their events are set aside and tried again", "relay", t.Group.Name,
		"streams", len(names), "such_as", names[0], "error", cause)
	return aside
}

// retry tries the heads of stuck streams, beside the windows.
func (t *term) retry() {
	for t.stop.Err() == nil && t.ctx.Err() == nil {
		due, wait, changed := t.due()
		if len(due) == 0 {
			timer := time.NewTimer(wait)
			select {
			case <-t.ctx.Done():
			case <-t.stop.Done():
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		if err := t.retryOnce(due); err != nil {
			t.end(err)
		}
	}
}

// due are stuck streams to try now, those that wait for longest first; or how long
// there are none.
func (t *term) due() (due []int64, wait time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	wait = time.Minute
	for stream, s := range t.stuck {
		if s.next.After(now) {
			wait = min(wait, s.next.Sub(now))
		} else {
			due = append(due, stream)
		}
	}
	slices.SortFunc(due, func(a, b int64) int { return t.stuck[a].next.Compare(t.stuck[b].next) })
	return due[:min(len(due), atOnce)], wait, t.changed
}

func (t *term) retryOnce(due []int64) error {
	windows, err := t.Pool.TakeAside(t.ctx, t.lead, due, t.LeaseFor)
	if err != nil {
		return err
	}
	t.postpone(due, windows)
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
	if len(a.pending()) > 0 && t.call(a) {
		t.alive()
	}
	if len(a.pending()) > 0 && t.ctx.Err() == nil {
		t.noteFailure(a.err)
	}
	if t.ctx.Err() != nil {
		return nil // whoever leads next gives them back
	}
	leases := make([]pg.SettledAside, len(windows))
	for i := range windows {
		upto := int64(math.MaxInt64)
		if rest := a.parts[i].events; len(rest) > 0 {
			upto = rest[0].ID - 1
		}
		leases[i] = pg.SettledAside{Lease: windows[i].Lease, UpTo: upto}
	}
	done, err := pg.SettleAside(t.ctx, t.Pool, t.lead, leases, pg.RelayReport{Relayed: a.relayed(), Failures: a.failures})
	if err != nil {
		return err
	}
	if len(a.failures) > 0 {
		t.Buried(t.ctx, a.failures)
	}
	t.wentOn(a.parts, done)
	if len(a.pending()) == 0 {
		t.noteSuccess()
	}
	return nil
}

// postpone sees to it that streams are not tried again at once. Those without a
// window have one that is not settled yet.
func (t *term) postpone(streams []int64, windows []pg.Window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, stream := range streams {
		s := t.stuck[stream]
		if slices.ContainsFunc(windows, func(w pg.Window) bool { return w.StreamIDs[0] == stream }) {
			s.tries++
		}
		s.next = time.Now().Add(t.Backoff.after(s.tries))
	}
}

// wentOn notes what was written. A stream that owes nothing any more is written
// with the others again, from the next window on.
func (t *term) wentOn(parts []*part, done map[int64]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parts {
		s := t.stuck[p.stream]
		s.owed -= done[p.stream]
		t.owed -= done[p.stream]
		if len(p.events) == 0 {
			s.tries, s.next = 0, time.Now() // all of its head: go on
		}
		if s.owed == 0 {
			delete(t.stuck, p.stream)
			t.Log.Info("the broker takes a stream again", "relay", t.Group.Name, "stream", s.name)
		}
	}
	t.tell()
}

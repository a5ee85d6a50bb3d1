package webhook

import (
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Bounds of the events in memory. The others are left in the log.
const (
	mostEvents     = 1000  // of a window
	mostWindows    = 500   // that are not done
	mostDeliveries = 2000  // that those windows wait for, before another one is read
	mostUnrecorded = 10000 // results
)

// patience is how long a window waits for its deliveries. Then they go on by themselves.
const patience = time.Second

// window is a part of the log whose events are being sent.
type window struct {
	pg.WebhookWindow
	began      time.Time
	took       time.Duration // until the last delivery before it has left any
	deliveries []*delivery
	waiting    int // those that it waits for
	parted     int // those that it has left
}

// readWindows reads the log until no new work may begin.
func (l *leadership) readWindows() error {
	news, end := l.News()
	defer end()
	step := 0 // grows while no webhook wants any event
	for l.going.Err() == nil {
		if !l.hasRoom() {
			worker.Rest(l.going, l.IdlePoll, l.read)
			continue
		}
		most := l.mostEvents()
		// It is not repeated after an error: a window may be held whose events did not come, and the lead keeps it for
		// this process. So the lead is taken anew, which gives all windows back.
		w, err := l.Pool.TakeWebhooks(pg.Within(l.going, pg.LeaseTime(l.LeaseFor)), l.lead, max(step, most), most, l.LeaseFor)
		switch {
		case err != nil:
			return err
		case !w.Held():
			worker.Rest(l.going, l.IdlePoll, news)
			step = 0
			continue
		case len(w.Events) == 0:
			step = 4 * max(step, most)
		default:
			step = 0
		}
		if l.isOutdated(w) {
			if err := l.readEndpoints(); err != nil {
				return err
			}
		}
		l.distribute(w)
	}
	return nil
}

// hasRoom reports whether another window may be read. It may not if all endpoints are
// busy or failing: then the log is the best place for their events.
func (l *leadership) hasRoom() bool {
	if l.record.size() > mostUnrecorded {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.windows) >= mostWindows || l.waiting >= mostDeliveries {
		return false
	}
	blocked := false
	for _, e := range l.endpoints {
		if !e.Disabled && !e.isBusy() {
			return true
		}
		blocked = blocked || !e.Disabled
	}
	return !blocked
}

// mostEvents returns the number of events of the next window.
func (l *leadership) mostEvents() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, min(l.sizes.Next(), int(mostDeliveries/l.fanOut)))
}

// isOutdated reports whether a window was matched with other settings than those that
// are known. Then it may be for a new webhook, or for one that has to catch up first.
func (l *leadership) isOutdated(w pg.WebhookWindow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(w.Events) > 0 && w.Version != l.version
}

// distribute gives the endpoints their deliveries.
func (l *leadership) distribute(found pg.WebhookWindow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &window{WebhookWindow: found, began: time.Now()}
	for i := range found.Events {
		event := newEvent(l.lead.Group.Namespace, found.Events[i].Event)
		for _, id := range found.Events[i].Webhooks {
			if e := l.endpoints[id]; e != nil { // otherwise it was deleted
				w.deliveries = append(w.deliveries, &delivery{endpoint: e, event: event, window: w, slot: found.Events[i].Slot})
			}
		}
	}
	if len(found.Events) > 0 {
		l.fanOut += (float64(len(w.deliveries))/float64(len(found.Events)) - l.fanOut) / 8
		l.fanOut = max(l.fanOut, 1)
	}
	w.waiting = len(w.deliveries)
	l.waiting += w.waiting
	l.windows = append(l.windows, w)
	for _, d := range w.deliveries {
		d.endpoint.add(d)
	}
	for _, d := range w.deliveries {
		d.endpoint.proceed()
	}
	l.endIfDone(w)
	w.Events = nil
}

// leave notes that a window does not wait for a delivery any more. The caller holds
// the lock, and has added the result.
func (l *leadership) leave(d *delivery) {
	w := d.window
	if d.window = nil; w == nil {
		return
	}
	if w.parted == 0 {
		w.took = time.Since(w.began)
	}
	w.waiting--
	l.waiting--
	l.endIfDone(w)
}

// endIfDone ends a window that waits for nothing. The caller holds the lock.
func (l *leadership) endIfDone(w *window) {
	i := slices.Index(l.windows, w)
	if w.waiting > 0 || i < 0 {
		return
	}
	l.windows = slices.Delete(l.windows, i, i+1)
	if w.parted <= len(w.deliveries)/2 { // others were slow, and not the log or this process
		l.sizes.Took(max(1, int(float64(len(w.deliveries))/l.fanOut)), w.took)
	}
	l.record.addWindow(w.WebhookWindow)
	wake(l.read)
}

// leaveWindows ends windows that have waited for long enough.
func (l *leadership) leaveWindows() {
	for worker.Pause(l.going, patience/5) {
		l.mu.Lock()
		for _, w := range slices.Clone(l.windows) {
			if time.Since(w.began) < patience {
				continue
			}
			for _, d := range w.deliveries {
				if d.window == w {
					w.parted++
					d.endpoint.part(d)
				}
			}
		}
		l.mu.Unlock()
	}
}

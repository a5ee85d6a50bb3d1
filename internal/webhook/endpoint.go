package webhook

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// event is an event in memory, for one delivery or several.
type event struct {
	pg.Event
	namespace string
	size      int // of its payload

	once sync.Once
	err  error // its payload does not open
}

func newEvent(namespace string, e pg.Event) *event {
	return &event{Event: e, namespace: namespace, size: len(e.Payload)}
}

// delivery is an event for one endpoint.
type delivery struct {
	endpoint *endpoint
	event    *event
	window   *window // that waits for it; nil: none does
	attempts int     // so far
	owed     bool    // it has a row in retries
	slot     int     // of its key; negative: none
	underWay bool    // it has left the queue
}

// endpoint is a webhook with its deliveries in this process. The lock of the leadership
// guards it.
type endpoint struct {
	pg.WebhookEndpoint
	l *leadership

	queue   []*delivery         // in the order in which they are sent
	running int                 // requests
	busy    map[int]int         // deliveries under way and unrecorded failures by slot, if it is ordered
	held    map[int64]*delivery // rows of retries that are in memory, by event

	// backlog: there may be rows of retries that are due and not in memory. An ordered
	// endpoint has a backlog as long as there are any rows: later events wait.
	backlog    bool
	dueFrom    time.Time // rows that were due before were read since the last look
	nothingDue bool      // the last look at an ordered endpoint's rows has found none that is due
	changes    int       // of its rows in retries
	unrecorded int       // results that make such rows
	failed     int       // failures, and those that were recorded: while it changes, rows are not read in order
	draining   bool      // it has become ordered, and requests are under way from before

	took  time.Duration // a request, on average
	begun time.Time     // when the last request began
	next  time.Time     // by its rate
	timer *time.Timer   // for next
}

func newEndpoint(l *leadership) *endpoint {
	return &endpoint{l: l, busy: map[int]int{}, held: map[int64]*delivery{}}
}

// failsOften is the number of failures in a row from which on an endpoint gets one
// request at a time.
const failsOften = 5

// soon is the longest time that a delivery may wait in a queue, and usual is the
// duration of a request as long as there was none.
const (
	soon  = 500 * time.Millisecond
	usual = 50 * time.Millisecond
)

// mustWait reports whether new events have to wait in retries: they could not be sent
// soon, or others come before them.
func (e *endpoint) mustWait() bool { return e.backlog || e.isBusy() }

// isBusy reports whether the endpoint has no room for new events. An ordered endpoint has room
// while none of its retries is due, since events of other keys can be sent.
func (e *endpoint) isBusy() bool {
	return e.Rests || e.backlog && !e.nothingDue || e.CatchingUp && e.Ordered || e.wait() > soon ||
		e.Failures >= failsOften && e.running+len(e.queue) > 0
}

// wait returns how long a delivery would wait in the queue.
func (e *endpoint) wait() time.Duration {
	requests := float64(len(e.queue)) / float64(e.Batch)
	took := cmp.Or(e.took, usual)
	if e.running >= e.Concurrency { // it may hang
		took = max(took, time.Since(e.begun))
	}
	wait := time.Duration(requests / float64(e.Concurrency) * float64(took))
	if e.Rate > 0 {
		wait = max(wait, time.Duration(requests/e.Rate*float64(time.Second)))
	}
	return wait
}

// add queues the delivery of a window, or sets it aside.
func (e *endpoint) add(d *delivery) {
	if e.Disabled || e.mustWait() {
		e.setAside(d, 0, "")
		return
	}
	e.queue = append(e.queue, d)
}

// setAside makes a delivery that was not tried a row of retries, which is due after a
// time. The reason is for people.
func (e *endpoint) setAside(d *delivery, after time.Duration, reason string) {
	e.result(d, pg.WebhookResult{Outcome: pg.WebhookAside, Attempts: d.attempts, WaitMS: after.Milliseconds()}, reason)
	if after == 0 || e.Ordered {
		e.backlog = true
		wake(e.l.look)
	}
}

// result records the outcome of a delivery. If it was under way and makes a row, the
// later ones of its slot wait until the row is there.
func (e *endpoint) result(d *delivery, r pg.WebhookResult, reason string) {
	r.Webhook, r.Event, r.Owed = e.ID, d.event.ID, d.owed
	if d.slot >= 0 {
		r.Slot = &d.slot
	}
	if reason != "" {
		r.Error = &reason
	}
	i := item{delivery: d, result: r}
	if makesRow(r) {
		i.rows = 1
		e.changes++
		e.unrecorded++
		if d.underWay && e.Ordered && d.slot >= 0 {
			i.holds = 1
			e.failed++
			e.busy[d.slot]++
		}
	}
	e.l.record.put(i)
	e.l.leave(d)
}

// makesRow reports whether a result makes a row of retries, or may.
func makesRow(r pg.WebhookResult) bool {
	return r.Outcome == pg.WebhookAside || r.Outcome == pg.WebhookFailed || r.Outcome == pg.WebhookGone
}

// part separates a delivery from its window: from now on it has a row of retries.
func (e *endpoint) part(d *delivery) {
	if i := slices.Index(e.queue, d); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
		e.setAside(d, 0, "")
		e.holdBack(d.slot)
		return
	}
	e.result(d, pg.WebhookResult{Outcome: pg.WebhookAside, Attempts: d.attempts}, "") // and it is under way
	d.owed = true
	e.held[d.event.ID] = d
	e.backlog = e.backlog || e.Ordered
}

// shed removes deliveries from the queue: they become or stay rows of retries.
func (e *endpoint) shed(which func(d *delivery) bool) {
	queue := e.queue
	e.queue = nil
	for _, d := range queue {
		switch {
		case !which(d):
			e.queue = append(e.queue, d)
		case d.owed:
			delete(e.held, d.event.ID)
			e.backlog = true
			e.dueFrom = time.Time{}
		default:
			e.setAside(d, 0, "")
		}
	}
}

// holdBack sheds the later deliveries of slots whose first event has to wait.
func (e *endpoint) holdBack(slots ...int) {
	if e.Ordered {
		e.shed(func(d *delivery) bool { return d.slot >= 0 && slices.Contains(slots, d.slot) })
	}
}

// allowed returns how many requests may be under way.
func (e *endpoint) allowed() int {
	switch {
	case e.Disabled || e.Rests || e.CatchingUp && e.Ordered || e.draining:
		return 0
	case e.Failures >= failsOften:
		return 1
	}
	return e.Concurrency
}

// wants returns how many events to read of those that it is owed.
func (e *endpoint) wants() int {
	allowed := e.allowed()
	if !e.backlog || e.nothingDue {
		return 0
	}
	if allowed == 0 || e.Failures >= failsOften {
		return max(0, allowed-e.running-len(e.queue))
	}
	most := 2 * allowed * e.Batch
	if room := most - len(e.queue) - e.running*e.Batch; room >= most/4 {
		return room
	}
	return 0
}

// proceed makes requests, as far as the endpoint may have some.
func (e *endpoint) proceed() {
	e.draining = e.draining && (e.running > 0 || e.unrecorded > 0)
	if e.Disabled || e.Rests {
		e.shed(func(*delivery) bool { return true })
	}
	for e.running < e.allowed() && len(e.queue) > 0 && e.l.going.Err() == nil {
		if wait := time.Until(e.next); wait > 0 {
			e.proceedAfter(wait)
			return
		}
		batch := e.take()
		if len(batch) == 0 {
			return
		}
		if e.Rate > 0 {
			e.next = time.Now().Add(time.Duration(float64(time.Second) / e.Rate))
		}
		e.running++
		e.begun = time.Now()
		e.depart(batch)
		settings := e.WebhookEndpoint
		e.l.sending.Go(func() { e.l.send(e, settings, batch) })
	}
	if e.wants() > 0 {
		wake(e.l.look)
	}
}

// depart occupies the slots of a batch.
func (e *endpoint) depart(batch []*delivery) {
	for _, d := range batch {
		d.underWay = true
		if e.Ordered && d.slot >= 0 {
			e.busy[d.slot]++
		}
	}
}

// free ends the use of a slot that depart or a result has begun.
func (e *endpoint) free(slot int) {
	if e.busy[slot]--; e.busy[slot] <= 0 {
		delete(e.busy, slot)
	}
}

// proceedAfter proceeds later, when its rate allows it.
func (e *endpoint) proceedAfter(wait time.Duration) {
	if e.timer != nil {
		return
	}
	e.timer = time.AfterFunc(wait, func() {
		e.l.mu.Lock()
		defer e.l.mu.Unlock()
		e.timer = nil
		e.proceed()
	})
}

// mostBytes is the size of the payloads of a request with several events.
const mostBytes = 1 << 20

// take removes the events of the next request from the queue. Those of an ordered
// endpoint whose slot has a request under way stay.
func (e *endpoint) take() (batch []*delivery) {
	var rest []*delivery
	size := 0
	for i, d := range e.queue {
		if len(batch) == e.Batch || len(batch) > 0 && size+d.event.size > mostBytes {
			rest = append(rest, e.queue[i:]...)
			break
		}
		if e.Ordered && e.busy[d.slot] > 0 {
			rest = append(rest, d)
			continue
		}
		batch = append(batch, d)
		size += d.event.size
	}
	e.queue = rest
	return batch
}

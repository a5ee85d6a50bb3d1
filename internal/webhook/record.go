package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// recorder collects results, and windows that are done. While one call is under way,
// the results of the next gather.
type recorder struct {
	l        *leadership
	settling worker.Retry
	wake     chan struct{}

	mu     sync.Mutex
	items  []item // in the order in which they came
	closed bool
}

// item is a result, or a window that is done when the items before it are recorded.
type item struct {
	delivery *delivery
	result   pg.WebhookResult
	rows     int // results in it that make a row
	holds    int // how often it occupies its slot
	window   pg.WebhookWindow
}

func (r *recorder) init(l *leadership) {
	r.l, r.wake = l, make(chan struct{}, 1)
	r.settling = worker.Retry{
		Outages: true, Each: max(l.LeaseFor/3, time.Second),
		Trouble: &worker.Trouble{Log: l.Log, Message: "cannot record what webhooks have got yet"},
	}
}

func (r *recorder) addWindow(w pg.WebhookWindow) { r.put(item{window: w}) }

func (r *recorder) put(i item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, i)
	wake(r.wake)
}

func (r *recorder) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// close lets run return when everything is recorded.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	wake(r.wake)
}

// gather is how long results wait for others. A call costs the database about as much
// as twenty results.
const gather = 50 * time.Millisecond

// run records until the recorder is closed, or the lead is lost.
func (r *recorder) run() error {
	for {
		r.mu.Lock()
		none, closed := len(r.items) == 0, r.closed
		r.mu.Unlock()
		switch {
		case none && closed || r.l.ctx.Err() != nil:
			return nil
		case none:
			select {
			case <-r.wake:
			case <-r.l.ctx.Done():
			}
			continue
		case !closed:
			worker.Pause(r.l.ctx, gather)
		}
		if err := r.record(r.next()); err != nil {
			return err
		}
	}
}

// mostAtOnce is the number of items of a call.
const mostAtOnce = 2000

// next returns the items of the next call. It has one result for each event of a
// webhook: that of a request replaces the earlier one that it was under way.
func (r *recorder) next() []item {
	r.mu.Lock()
	defer r.mu.Unlock()
	type key struct {
		webhook int
		event   int64
	}
	at := map[key]int{}
	var items []item
	for n, i := range r.items {
		if n == mostAtOnce {
			r.items = r.items[n:]
			return items
		}
		k := key{i.result.Webhook, i.result.Event}
		earlier, twice := at[k]
		switch {
		case i.delivery == nil:
		case twice && items[earlier].delivery == i.delivery:
			items[earlier].result = i.result
			items[earlier].rows += i.rows
			items[earlier].holds += i.holds
			continue
		case twice:
			r.items = r.items[n:]
			return items
		default:
			at[k] = len(items)
		}
		items = append(items, i)
	}
	r.items = nil
	return items
}

func (r *recorder) record(items []item) error {
	var results []pg.WebhookResult
	var windows []pg.WebhookWindow
	for _, i := range items {
		if i.delivery != nil {
			results = append(results, i.result)
		} else {
			windows = append(windows, i.window)
		}
	}
	var health []pg.WebhookHealth
	err := r.settling.Do(r.l.ctx, func(ctx context.Context) (err error) {
		health, err = pg.RecordWebhooks(ctx, r.l.Pool, r.l.lead, results, windows)
		return err
	})
	if err == nil {
		r.l.recorded(items, health)
	}
	return err
}

// recorded notes that the database has results.
func (l *leadership) recorded(items []item, health []pg.WebhookHealth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := map[*endpoint]int{}
	touched := map[*endpoint]bool{}
	for _, i := range items {
		d := i.delivery
		if d == nil {
			continue
		}
		e := d.endpoint
		if i.rows > 0 {
			e.changes++
			e.unrecorded -= i.rows
			touched[e] = true
		}
		underWay := i.result.Outcome == pg.WebhookAside && !i.result.Owed
		if !underWay && e.held[d.event.ID] == d {
			delete(e.held, d.event.ID)
			touched[e] = true
		}
		if i.holds > 0 {
			e.failed++
			for range i.holds {
				e.free(d.slot)
			}
			e.holdBack(d.slot) // rows that were read before it was recorded
		}
		if i.result.RequestID != "" && i.result.Outcome != pg.WebhookDelivered {
			failed[e]++
			l.report(e, i.result)
		}
	}
	dead := map[*endpoint]int{}
	for _, h := range health {
		e := l.endpoints[h.Webhook]
		if e == nil {
			continue
		}
		dead[e] = h.Dead
		if e.Generation != h.Generation { // its settings were read since, or will be
			continue
		}
		if h.Disabled && !e.Disabled {
			l.Log.Error("a webhook was disabled", "webhook", e.Name)
		}
		e.Failures, e.Rests, e.Disabled, touched[e] = h.Failures, h.Rests, h.Disabled, true
	}
	for e, n := range failed {
		l.Observe.Failed(l.lead.Group.Namespace, e.Name, n, dead[e])
	}
	for e := range touched {
		e.nothingDue = false
		e.proceed()
	}
	wake(l.read)
}

// report logs a failed request.
func (l *leadership) report(e *endpoint, r pg.WebhookResult) {
	attributes := []any{"webhook", e.Name, "event", r.Event, "attempt", r.Attempts, "error", *r.Error}
	if r.Outcome == pg.WebhookRejected {
		l.failing.Report(true, "an endpoint refused an event, which is a dead letter now", attributes...)
		return
	}
	l.failing.Report(false, "an event was not delivered to a webhook", attributes...)
}

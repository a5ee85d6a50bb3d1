package webhook

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// lookEvery is how often to look for changes by others: settings, and rows of
// retries that came back from the dead letters or are due now. It also bounds how late
// a retry is.
//
// A look reads the rows of events that were delivered, too, as long as a transaction holds
// its snapshot. So the pause is also lookShare times as long as a look takes, at most
// lookAtLeast.
const (
	lookEvery   = time.Second
	lookShare   = 20
	lookAtLeast = 10 * time.Second
)

// dueMargin is the time that rows may need from when they are due until they are
// committed. Later ones wait for the next look.
const dueMargin = time.Second

// askPause lets endpoints have room for several events before they are read. While a transaction
// holds its snapshot, a read of what ordered endpoints are owed passes over what was delivered. So
// the pause is also askShare times as long as a read takes, at most lookEvery.
const (
	askPause = 50 * time.Millisecond
	askShare = 4
)

// readOwed reads the rows of retries of endpoints, as they have room, until no new work
// may begin.
func (l *leadership) readOwed() error {
	var next time.Time
	for l.going.Err() == nil {
		if now := time.Now(); !now.Before(next) {
			pause, err := l.lookAround()
			if err != nil {
				return err
			}
			next = now.Add(pause)
		}
		asks, before := l.asks()
		if len(asks) == 0 {
			worker.Rest(l.going, time.Until(next), l.look)
			continue
		}
		var due []pg.WebhookDue
		var took time.Duration
		err := l.asking.Do(l.going, func(ctx context.Context) (err error) {
			began := time.Now()
			due, err = pg.DueWebhooks(ctx, l.Pool, l.lead, asks)
			took = time.Since(began)
			return err
		})
		if err != nil {
			return err
		}
		l.receive(asks, before, due)
		worker.Pause(l.going, min(max(askPause, askShare*took), lookEvery))
	}
	return nil
}

// lookAround finds out which endpoints rest, and which have a backlog. It returns how long
// to wait for the next look.
func (l *leadership) lookAround() (time.Duration, error) {
	changes := l.changes()
	var look pg.WebhookLook
	var took time.Duration
	err := l.asking.Do(l.going, func(ctx context.Context) (err error) {
		began := time.Now()
		look, err = pg.LookAtWebhooks(ctx, l.Pool, l.lead)
		took = time.Since(began)
		return err
	})
	if err != nil {
		return 0, err
	}
	if l.note(look, changes) {
		err = l.readEndpoints()
	}
	if len(look.Resting) > 0 { // they are to go on in time
		return lookEvery, err
	}
	return min(max(lookEvery, lookShare*took), lookAtLeast), err
}

// changes returns the changes of each endpoint's rows so far.
func (l *leadership) changes() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes := map[int]int{}
	for id, e := range l.endpoints {
		changes[id] = e.changes
	}
	return changes
}

// note keeps the result of a look, unless an endpoint's rows have changed since it
// began. It reports whether the settings have to be read again.
func (l *leadership) note(look pg.WebhookLook, changes map[int]int) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again = look.Version != l.version
	for id, e := range l.endpoints {
		again = again || e.CatchingUp && !e.Disabled
		owing := slices.Contains(look.Owing, id)
		if e.nothingDue = false; owing {
			e.backlog = true
		}
		e.dueFrom = time.Time{}
		if e.changes == changes[id] && e.unrecorded == 0 {
			e.Rests = slices.Contains(look.Resting, id)
			if e.Ordered && !owing && !e.Rests && len(e.held) == 0 {
				e.backlog = false
			}
		}
		e.proceed()
	}
	wake(l.read)
	return again
}

// state has the counters of an endpoint that may change while a statement about it runs.
type state struct{ changes, failed int }

// asks returns the rows to read, and the states of the endpoints.
func (l *leadership) asks() ([]pg.WebhookAsk, map[int]state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var asks []pg.WebhookAsk
	before := map[int]state{}
	for id, e := range l.endpoints {
		if room := e.wants(); room > 0 {
			asks = append(asks, pg.WebhookAsk{Webhook: id, Room: room, Held: slices.Collect(maps.Keys(e.held)), DueFrom: e.dueFrom})
			before[id] = state{e.changes, e.failed}
		}
	}
	return asks, before
}

// receive gives endpoints the rows that were read for them.
func (l *leadership) receive(asks []pg.WebhookAsk, before map[int]state, due []pg.WebhookDue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[int]int{}
	for i := range due {
		found[due[i].Webhook]++
		if e := l.endpoints[due[i].Webhook]; e != nil && (!e.Ordered || e.failed == before[e.ID].failed) {
			e.receive(&due[i])
		}
	}
	for _, ask := range asks {
		e := l.endpoints[ask.Webhook]
		if e == nil {
			continue
		}
		if found[e.ID] < ask.Room && e.changes == before[e.ID].changes && e.unrecorded == 0 {
			e.nothingDue = e.Ordered
			e.backlog = e.Ordered
		}
		e.proceed()
	}
	wake(l.read)
}

// receive queues an event that the endpoint is owed.
func (e *endpoint) receive(due *pg.WebhookDue) {
	if e.held[due.Event.ID] != nil {
		return
	}
	d := &delivery{
		endpoint: e, event: newEvent(e.l.lead.Group.Namespace, due.Event),
		attempts: due.Attempts, owed: true, slot: due.Slot,
	}
	e.held[due.Event.ID] = d
	if from := due.DueAt.Add(-dueMargin); due.Slot < 0 && from.After(e.dueFrom) {
		e.dueFrom = from
	}
	switch {
	case due.Gone:
		e.l.Log.Warn("an event that a webhook is owed is not in the log any more", "webhook", e.Name, "event", due.Event.ID)
		e.result(d, pg.WebhookResult{Outcome: pg.WebhookDropped, Attempts: due.Attempts}, "")
	case due.Withheld:
		e.result(d, pg.WebhookResult{Outcome: pg.WebhookWithheld, Attempts: due.Attempts},
			"its stream is restricted, and the webhook does not name it")
	default:
		e.queue = append(e.queue, d)
	}
}

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/internal/worker"
)

// send makes a request for a batch, and records the outcome.
func (l *leadership) send(e *endpoint, settings pg.WebhookEndpoint, batch []*delivery) {
	ready := l.open(e, settings, batch)
	var verdict verdict
	var took time.Duration
	if len(ready) > 0 {
		verdict, took = l.request(settings, ready)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.running--
	for _, d := range batch {
		e.free(d.slot)
	}
	if l.ctx.Err() != nil {
		return // the next leader does it again
	}
	if len(ready) > 0 {
		e.finish(settings, ready, verdict, took)
	}
	e.proceed()
	wake(l.read)
}

// sealedPause is how long an event rests whose payload does not open yet.
const sealedPause = 5 * time.Second

// open opens the payloads of a batch, and returns the deliveries that can be sent.
func (l *leadership) open(e *endpoint, settings pg.WebhookEndpoint, batch []*delivery) []*delivery {
	ready := make([]*delivery, 0, len(batch))
	var waiting []int // slots
	for _, d := range batch {
		err := d.event.open(l.ctx, l)
		behind := settings.Ordered && d.slot >= 0 && slices.Contains(waiting, d.slot)
		if err == nil && !behind {
			ready = append(ready, d)
			continue
		}
		l.mu.Lock()
		if behind {
			e.setAside(d, 0, "")
		} else if _, final := errors.AsType[*worker.PermanentError](err); final {
			e.result(d, pg.WebhookResult{Outcome: pg.WebhookRejected, Attempts: d.attempts}, worker.Clip(err.Error()))
		} else if l.ctx.Err() == nil {
			e.setAside(d, sealedPause, worker.Clip(err.Error()))
			waiting = append(waiting, d.slot)
		}
		l.mu.Unlock()
	}
	return ready
}

func (e *event) open(ctx context.Context, l *leadership) error {
	e.once.Do(func() { e.err = l.Open(ctx, e.namespace, &e.Event) })
	return e.err
}

// verdict is the meaning of an answer for the events of a request.
type verdict struct {
	send.Answer
	outcome string
	wait    time.Duration // until the next request
	err     error         // nil: they are delivered
}

// request sends events.
func (l *leadership) request(settings pg.WebhookEndpoint, batch []*delivery) (verdict, time.Duration) {
	events := make([]pg.Event, len(batch))
	for i, d := range batch {
		events[i] = d.event.Event
		events[i].Delivery, events[i].Subscriptions = d.attempts+1, nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, settings.Timeout)
	defer cancel()
	ctx = l.Observe.Sending(ctx, l.lead.Group.Namespace, settings.Name, events)
	var answer send.Answer
	err := worker.Call(ctx, began, 0, func(ctx context.Context) (err error) {
		answer, err = l.Send(ctx, send.Request{
			URL: settings.URL, Headers: settings.Headers, Secrets: settings.Secrets,
			Body: settings.Body, Batch: settings.Batch > 1, Gzip: settings.Gzip,
			Namespace: l.lead.Group.Namespace, Origin: l.origin, Events: events, At: began,
		})
		return err
	})
	took := time.Since(began)
	v := judge(answer, err)
	l.Observe.Sent(ctx, l.lead.Group.Namespace, settings.Name, events, took, v.err)
	return v, took
}

// tooManyPause is how long an endpoint rests that has answered 429 and names no time.
const tooManyPause = 5 * time.Second

// judge turns an answer into a verdict.
func judge(answer send.Answer, err error) verdict {
	v := verdict{Answer: answer, outcome: pg.WebhookFailed, wait: answer.RetryAfter, err: err}
	if err != nil {
		return v
	}
	switch {
	case answer.Status >= 200 && answer.Status < 300:
		v.outcome, v.wait = pg.WebhookDelivered, 0
		return v
	case answer.Status == http.StatusGone:
		v.outcome = pg.WebhookGone
	case answer.Status == http.StatusUnprocessableEntity:
		v.outcome, v.wait = pg.WebhookRejected, 0
	case answer.Status == http.StatusTooManyRequests && v.wait == 0:
		v.wait = tooManyPause
	}
	v.err = fmt.Errorf("the endpoint answered %d %s", answer.Status, http.StatusText(answer.Status))
	return v
}

// finish records the outcomes of the events of a request.
func (e *endpoint) finish(settings pg.WebhookEndpoint, batch []*delivery, v verdict, took time.Duration) {
	if e.took == 0 {
		e.took = took
	}
	e.took = (7*e.took + took) / 8
	reason := ""
	if v.err != nil {
		reason = worker.Clip(v.err.Error())
	}
	var slots []int
	for _, d := range batch {
		slots = append(slots, d.slot)
		e.result(d, pg.WebhookResult{
			Outcome: v.outcome, Attempts: d.attempts + 1, WaitMS: v.wait.Milliseconds(),
			RequestID: send.ID(e.l.origin, d.event.Event), Status: v.Status, DurationMS: took.Milliseconds(), Excerpt: v.Excerpt, Generation: settings.Generation,
		}, reason)
	}
	if v.outcome != pg.WebhookGone && v.outcome != pg.WebhookFailed {
		return
	}
	if settings.Generation == e.Generation {
		e.Disabled = e.Disabled || v.outcome == pg.WebhookGone
		e.Rests = e.Rests || v.wait > 0
	}
	if e.Ordered {
		e.backlog, e.nothingDue = true, false
		e.holdBack(slots...)
	}
}

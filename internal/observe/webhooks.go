package observe

import (
	"context"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Webhooks observes the requests of this process to webhooks. It uses a [Group]: a webhook
// is recorded as a handler, whose calls are requests. The name of one in another namespace
// than the client's has that namespace before it.
type Webhooks struct {
	Group     *Group
	namespace string

	mu       sync.Mutex
	handlers map[string]*consume.Handler
}

// Webhooks returns the observer of webhooks.
func (t *Telemetry) Webhooks() *Webhooks {
	return &Webhooks{Group: t.Group("webhooks"), namespace: t.namespace.Value.AsString(), handlers: map[string]*consume.Handler{}}
}

func (w *Webhooks) handler(namespace, webhook string) *consume.Handler {
	if namespace != w.namespace {
		webhook = namespace + "/" + webhook
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handlers[webhook]
	if h == nil {
		h = &consume.Handler{Name: webhook, Batch: func(context.Context, []pg.Event) error { return nil }}
		w.Group.Watch(h)
		w.handlers[webhook] = h
	}
	return h
}

// Sending starts a span for a request.
func (w *Webhooks) Sending(ctx context.Context, namespace, webhook string, events []pg.Event) context.Context {
	w.Group.Took(pg.Lease{})
	return w.Group.Handling(ctx, w.handler(namespace, webhook), events)
}

// Sent ends the span of a request, and counts the request and its events.
func (w *Webhooks) Sent(ctx context.Context, namespace, webhook string, events []pg.Event, took time.Duration, err error) {
	w.Group.Handled(ctx, w.handler(namespace, webhook), events, took, err)
}

// Failed counts failed events, and those of them that became dead letters.
func (w *Webhooks) Failed(namespace, webhook string, failed, dead int) {
	name := w.handler(namespace, webhook).Name
	for i := range failed {
		w.Group.failed(context.Background(), name, i < dead)
	}
}

// LeadLost counts a lost lead.
func (w *Webhooks) LeadLost() { w.Group.LeaseLost() }

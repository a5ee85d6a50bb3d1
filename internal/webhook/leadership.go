package webhook

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// leadership is the work of a process while it leads the webhooks of a namespace.
type leadership struct {
	Config
	lead    pg.WebhookLead
	origin  string // of the log
	failing worker.Failures
	asking  worker.Retry // for statements that read
	sizes   *worker.Sizer

	ctx   context.Context // ends a little before the lead may end; nothing is sent after that
	end   context.CancelCauseFunc
	going context.Context // ends with ctx, and when no new work may begin

	read chan struct{} // wakes the reader
	look chan struct{} // wakes the goroutine that reads rows of retries

	record recorder

	mu        sync.Mutex
	endpoints map[int]*endpoint
	version   int64     // of their settings
	windows   []*window // not done yet
	waiting   int       // deliveries that they wait for
	fanOut    float64   // deliveries of an event, on average
	sending   sync.WaitGroup
}

func newLeadership(config Config, lead pg.WebhookLead, origin string) *leadership {
	l := &leadership{
		Config: config, lead: lead, origin: origin,
		failing: worker.Failures{Log: config.Log},
		asking:  worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: config.Log, Message: "cannot read events for webhooks yet"}},
		sizes:   worker.NewSizer(mostEvents),
		read:    make(chan struct{}, 1), look: make(chan struct{}, 1),
		endpoints: map[int]*endpoint{}, fanOut: 1,
	}
	l.record.init(l)
	return l
}

// wake lets a goroutine that waits for the channel go on.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Extend keeps the lead.
func (l *leadership) Extend(ctx context.Context) error {
	_, err := pg.LeadWebhooks(ctx, l.Pool, l.lead.Group, l.lead.Owner, l.LeaseFor, l.lead.Epoch)
	return err
}

// Release gives the lead back.
func (l *leadership) Release(ctx context.Context) error {
	return pg.ResignWebhooks(ctx, l.Pool, l.lead)
}

// Work sends until stop or ctx ends. Its goroutines end before it returns.
func (l *leadership) Work(stop, ctx context.Context) error {
	l.ctx, l.end = context.WithCancelCause(ctx)
	defer l.end(nil)
	var stopped context.CancelFunc
	l.going, stopped = context.WithCancel(l.ctx)
	defer context.AfterFunc(stop, stopped)()
	if err := l.readEndpoints(); err != nil {
		return err
	}
	var reading, recording sync.WaitGroup
	var moved error // the namespace is closed: what is being sent may still be recorded
	reading.Go(func() {
		err := l.readWindows()
		if errors.Is(err, pg.ErrMoved) {
			moved = err
			stopped()
			return
		}
		l.endWith(err)
	})
	reading.Go(func() { l.endWith(l.readOwed()) })
	reading.Go(l.leaveWindows)
	recording.Go(func() { l.endWith(l.record.run()) })
	reading.Wait()
	l.setAllAside()
	l.sending.Wait()
	l.record.close()
	recording.Wait()
	err := cmp.Or(context.Cause(l.ctx), moved)
	l.end(nil)
	return err
}

// endWith ends the leadership after an error.
func (l *leadership) endWith(err error) {
	if err != nil && l.going.Err() == nil {
		l.end(err)
	}
}

// readEndpoints reads the settings and secrets of all endpoints.
func (l *leadership) readEndpoints() error {
	return l.asking.Do(l.ctx, func(ctx context.Context) error {
		found, version, err := pg.WebhookEndpoints(ctx, l.Pool, l.lead)
		if err == nil {
			l.setEndpoints(found, version)
		}
		return err
	})
}

func (l *leadership) setEndpoints(found []pg.WebhookEndpoint, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
	known := l.endpoints
	l.endpoints = map[int]*endpoint{}
	for i := range found {
		e := known[found[i].ID]
		if e == nil {
			e = newEndpoint(l)
		}
		ordered := e.Ordered
		e.WebhookEndpoint = found[i]
		if e.Ordered && !ordered {
			e.draining = true
			e.shed(func(*delivery) bool { return true })
		}
		if e.Ordered { // it may be owed something, until a look shows that it is not
			e.backlog, e.nothingDue = true, false
			e.changes++
		}
		l.endpoints[e.ID] = e
		delete(known, e.ID)
		e.proceed()
	}
	for _, e := range known { // deleted
		e.Disabled = true
		e.proceed()
	}
	wake(l.read)
	wake(l.look)
}

// setAllAside sets all queued deliveries aside, when no new requests may be made.
func (l *leadership) setAllAside() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.endpoints {
		e.shed(func(*delivery) bool { return true })
	}
}
